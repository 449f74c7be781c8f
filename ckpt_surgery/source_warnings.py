"""Warnings about a source that hold whatever is done with it. Imports nothing of planning."""

import os
from collections.abc import Iterable, Set

from ckpt_surgery.core.protocols import ChosenSource, Source, UntypedSource
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.shared.steps import holds_no_model
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.storage.listing import is_directory, names_in, real_path

WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".msgpack", ".npz", ".gguf", ".h5"})
"""Suffixes of files of weights that lie side by side in the directory of a model."""


def _unread_files(source: Source) -> list[str]:
    """Names of the files of weights that lie beside those of the source, in the directory that was given.

    Files of other formats do not count: models come in several.
    """
    if isinstance(source, TreeSource) or not is_directory(source.path):
        return []
    root = real_path(source.path)
    read = {os.path.basename(file) for file in source.files() if os.path.dirname(file) in (root, source.path)}
    suffixes = {os.path.splitext(name)[1] for name in read} & WEIGHT_SUFFIXES
    if not suffixes:
        return []
    return [name for name in names_in(root) if os.path.splitext(name)[1] in suffixes and name not in read]


def unread_weights(sources: Iterable[Source]) -> tuple[str, ...]:
    """A warning for each source whose directory holds weights that do not belong to it."""
    unread = ((source.path, _unread_files(source)) for source in sources)
    return tuple(f"not read, as they are not part of {path}: {few(names)}" for path, names in unread if names)


def about_source(source: Source) -> tuple[str, ...]:
    """The warnings about a source that hold whatever is done with it."""
    return (*unread_weights([source]), *disguised(len(suspects_in(source))))


def chosen_items(sources: Iterable[Source]) -> tuple[str, ...]:
    """A note for each source of which an item was taken because it holds the model, and others do not."""
    others = {
        source: [name for name in source.choices().items if holds_no_model(name)]
        for source in sources
        if isinstance(source, ChosenSource) and source.item is not None and not holds_no_model(source.item)
    }
    return tuple(
        f"{shown(source.path)}: the item `{shown(source.item or '')}` is read, as it holds the model, not "
        f"{few(names)}"
        for source, names in others.items()
        if names
    )


def kept_as_integers(sources: Iterable[Source]) -> tuple[str, ...]:
    """A warning for each source with arrays of uint16 that are most likely bfloat16, for a comparison."""
    counts = {source.path: len(suspects_in(source)) for source in sources}
    return tuple(
        f"{shown(path)}: {count:,} {'leaf' if count == 1 else 'leaves'} of uint16 compared as integers: T5X "
        "kept bfloat16 so; write it anew with `input: {uint16: bfloat16}` to compare what it means"
        for path, count in counts.items()
        if count
    )


def disguised(count: int) -> tuple[str, ...]:
    """A warning that `count` leaves of uint16 are most likely bfloat16; none for 0."""
    if not count:
        return ()
    leaves, them = ("1 leaf is", "it") if count == 1 else (f"{count:,} leaves are", "them")
    return (f"{leaves} uint16: T5X kept bfloat16 so; `input: {{uint16: bfloat16}}` reads {them} back",)


def suspects_in(source: Source) -> Set[str]:
    """Texts of the keys of a source's arrays of uint16 that are most likely bfloat16."""
    return source.disguised_bfloat16() if isinstance(source, UntypedSource) else frozenset()
