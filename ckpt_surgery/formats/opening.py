"""Finding out which format a path holds, opening a checkpoint for reading, and one for writing."""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError, in_one_line, name_beside
from ckpt_surgery.core.protocols import Encoder, Output, Sink, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.known import format_named, formats, formats_to_write, part
from ckpt_surgery.formats.registry import Format, Listing, Selection, SinkOptions
from ckpt_surgery.storage.listing import exists, is_directory, names_in, real_path
from ckpt_surgery.storage.publications import check_published

if TYPE_CHECKING:
    from ckpt_surgery.formats.recognition import Mark


def detect_format(path: str) -> Format:
    """The format of the checkpoint at `path`, by content.

    Raises SourceError where none or several fit; StorageError where none does because it may not be read.
    """
    claiming = _claims(path)
    if not claiming:
        raise _unknown(path)
    if len(claiming) > 1:
        inside = _claimed_inside(path)
        named = ((offer.name, ", ".join(inside.get(offer.name, ()))) for offer in claiming)
        listed = "; ".join(f"{name} ({names})" if names else name for name, names in named)
        hint = "Name the file that is meant, or its format: `src_format=NAME` (`inspect`: `format=NAME`)."
        raise SourceError(f"{shown(path)} holds checkpoints of several formats: {listed}", hint=hint)
    return claiming[0]


def _claims(path: str) -> list[Format]:
    """The formats that recognize a path. Raises StorageError if none does, and something may not be read."""
    claiming, refused = [], None
    for known in formats().values():
        try:
            if known.recognizes(path):
                claiming.append(known)
        except StorageError as error:
            refused = refused or error
    if refused is not None and not claiming:
        raise refused
    return claiming


def _unknown(path: str) -> SourceError:
    from ckpt_surgery.formats.recognition import recognized, without_arrays

    inside = _claimed_inside(path)
    other = recognized(path) or (None if inside else without_arrays(path))
    if other is not None:
        return SourceError(f"{shown(path)} cannot be read: it looks like {other.what}", hint=other.hint)
    if inside:
        listed = "; ".join(f"{', '.join(names)} ({name})" for name, names in inside.items())
        what = f"{shown(path)} is not a checkpoint itself, but holds some: {listed}"
        return SourceError(what, hint="Name one of them.")
    known = f"Formats that can be read: {', '.join(formats())}."
    hint = f"{known} Name one if you are sure: `src_format=NAME` (of `inspect`: `format=NAME`)."
    return SourceError(f"{shown(path)} is not a checkpoint of a known format", hint=hint)


MOST_ENTRIES = 1000
"""Number of names of a directory that are looked at, in order to say which formats are inside it."""


def _claimed_inside(path: str) -> dict[str, list[str]]:
    """The first names in a directory that are checkpoints, printable, by their format."""
    if not is_directory(path):
        return {}
    inside: dict[str, list[str]] = {}
    for name in names_in(path)[:MOST_ENTRIES]:
        with contextlib.suppress(StorageError):  # the others may be what is meant
            for offer in _claims(os.path.join(path, name)):
                inside.setdefault(offer.name, []).append(shown(name))
    return {format: [*names[:2], "…"] if len(names) > 2 else names for format, names in inside.items()}


def open_source(
    path: str, format: str | None = None, step: int | None = None, item: str | None = None
) -> Source:
    """Open the checkpoint at `path` for listing and reading.

    Raises UsageError where there is nothing, `format` is unknown, or `step` or `item` does not apply, and
    SourceError where it is damaged or of no known format, StorageError where it may not be read.
    """
    # A TensorFlow checkpoint is named by the prefix of its files' names.
    if not exists(path) and not _claims(path):
        guess = "" if urls.is_url(path) else name_beside(path)
        raise UsageError(f"{shown(path)} does not exist{guess}", hint="Check the path.")
    chosen = format_named(format) if format else detect_format(path)
    check_published(path)
    selection = Selection(step, item)
    _check_options(f"{shown(path)}: ", chosen, selection, CHOICES)
    from ckpt_surgery.formats.plain_files import ListedSource

    try:
        content: Listing | Source = part(chosen, "read")(path, selection)
    except SourceError as error:
        other = _held_instead(path, chosen)
        if other is None:
            raise
        what = f"{shown(path)} cannot be read as {chosen.name}; it looks like {other.what}"
        raise SourceError(f"{what}: {in_one_line(error)}", hint=other.hint) from error
    return ListedSource(path, chosen.name, content) if isinstance(content, Listing) else content


def _held_instead(path: str, chosen: Format) -> "Mark | None":
    """The placeholder or the other format that a path holds, which could not be read as the one chosen."""
    from ckpt_surgery.formats.recognition import Mark, recognized, stand_in

    if (other := stand_in(path)) is not None:
        return other
    claiming = _claims(path)
    if chosen in claiming:
        return None
    names = " or ".join(offer.name for offer in claiming)
    return Mark(names, "Name that format, or none.") if claiming else recognized(path)


CHOICES = {"step": ("steps", "`step={}`"), "item": ("items", "`item={}`")}
OPTIONS = {
    "step": ("steps", "`dst_step={}`"),
    "item": ("items", "`dst_item={}`"),
    "shard_size": ("shards", "`shard_size=SIZE`"),
    "structure_file": ("structure file", "`structure_file` in the recipe's `output`"),
}
"""Purpose and spelling of the fields of `Selection`, and of some of `SinkOptions`."""


def encoder(format: str, options: SinkOptions) -> Encoder:
    """The encoder of a format. Touches no disk. Raises UsageError if none writes it with these options."""
    from ckpt_surgery.formats.plain_files import LimitedEncoder

    chosen = format_named(format)
    if not chosen.writable:
        raise UsageError(f"The format `{format}` can be read but not written", hint=formats_to_write())
    _check_options("", chosen, options, OPTIONS)
    make: Callable[[SinkOptions], Encoder] | None = part(chosen, "encoder")
    return LimitedEncoder(part(chosen, "LIMITS")) if make is None else make(options)


def _check_options(
    place: str, chosen: Format, options: Selection | SinkOptions, spelled: Mapping[str, tuple[str, str]]
) -> None:
    """Raise UsageError for choices and options that a format does not have. `place`: begins the message."""
    reading = isinstance(options, Selection)
    known = chosen.choices if reading else chosen.options
    values = {name: getattr(options, name) for name in spelled if name not in known}
    refused = {name: value for name, value in values.items() if value is not None and value is not False}
    if refused:
        nouns = " or ".join(spelled[name][0] for name in refused)
        given = " and ".join(spelled[name][1].format(shown(str(value))) for name, value in refused.items())
        offers = () if reading else formats().values()
        able = " or ".join(offer.name for offer in offers if set(refused) <= set(offer.options))
        hint = f"Leave out {given}{f', or write {able}' if able else ''}."
        raise UsageError(f"{place}{chosen.name} checkpoints have no {nouns}", hint=hint)


def check_destination(format: str, path: PathLike, options: SinkOptions) -> None:
    """Raises UsageError where a format cannot be written at a path, which need not exist."""
    check = part(format_named(format), "check_destination")
    if check is not None:
        check(path, options)


def open_sink(format: str, directory: PathLike, options: SinkOptions, outputs: Sequence[Output]) -> Sink:
    """A sink that writes these outputs into a directory that exists, or below a URL."""
    from ckpt_surgery.formats.plain_files import PlannedSink

    encoder(format, options)
    check_destination(format, directory, options)
    chosen = format_named(format)
    layout = part(chosen, "layout")
    if layout is None:
        place = directory if urls.is_url(os.fspath(directory)) else Path(directory)
        sink: Sink = part(chosen, "open_sink")(place, options, outputs)
        return sink
    return PlannedSink(Path(directory), layout([output.leaf for output in outputs], options), outputs)


def foreign_files(source: Source, directory: str, names: Sequence[str]) -> list[str]:
    """Those of `names`, relative paths in a checkpoint's directory (a real path), that are not its own."""
    find = part(format_named(source.format), "foreign_files")
    if find is not None:
        return list(find(directory, names))
    own = set(own_files(source))
    return [name for name in names if os.path.join(directory, name) not in own]


def own_files(source: Source) -> list[str]:
    """Paths of the files that a checkpoint consists of: real but for links that the last component is."""
    real = functools.cache(real_path)
    files = (os.path.split(urls.absolute(file)) for file in source.files())
    return [os.path.join(real(directory), name) for directory, name in files]
