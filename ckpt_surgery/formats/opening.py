"""Finding out which format a path holds, opening a checkpoint for reading, and one for writing."""

import contextlib
import functools
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.access import name_beside
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Encoder, Output, Sink, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.known import formats, formats_to_write, named
from ckpt_surgery.formats.registry import Format, Selection, SinkOptions
from ckpt_surgery.storage.listing import exists, is_directory, names_in, real_path
from ckpt_surgery.storage.publications import check_published


def _imported(name: str) -> Any:
    """What the name `package.module:attribute` stands for."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def detect_format(path: str) -> Format:
    """The format of the checkpoint at `path`, by content.

    Raises SourceError where none fits, with what it looks like instead, and where several do; StorageError
    where none fits because the system does not let it be read.
    """
    found = _claims(path)
    if len(found) > 1:
        raise _ambiguous(path, found)
    if not found:
        raise _unknown(path)
    return found[0]


def _claims(path: str) -> list[Format]:
    """The formats whose detection recognizes a path, damaged or not.

    Raises StorageError where none does and there are files or directories that may not be read.
    """
    found, refused = [], None
    for known in formats().values():
        try:
            if known.recognizes(path):
                found.append(known)
        except StorageError as error:
            refused = refused or error
    if refused is not None and not found:
        raise refused
    return found


def _ambiguous(path: str, found: Sequence[Format]) -> SourceError:
    inside = _claimed_inside(path)
    listed = (
        f"{offer.name} ({', '.join(inside[offer.name])})" if offer.name in inside else offer.name
        for offer in found
    )
    return SourceError(
        f"{shown(path)} holds checkpoints of several formats: {'; '.join(listed)}",
        hint="Name the file that is meant, or the format: `src_format=NAME` (of `inspect`: `format=NAME`).",
    )


def _unknown(path: str) -> SourceError:
    from ckpt_surgery.formats.recognition import recognized, without_arrays

    inside = _claimed_inside(path)
    other = recognized(path) or (None if inside else without_arrays(path))
    if other is not None:
        return SourceError(f"{shown(path)} cannot be read: it looks like {other.what}", hint=other.hint)
    if inside:
        listed = "; ".join(f"{', '.join(names)} ({name})" for name, names in inside.items())
        return SourceError(
            f"{shown(path)} is not a checkpoint itself, but holds some: {listed}", hint="Name one of them."
        )
    return SourceError(
        f"{shown(path)} is not a checkpoint of a known format",
        hint=f"Formats that can be read: {', '.join(formats())}. "
        "Name one if you are sure: `src_format=NAME` (of `inspect`: `format=NAME`).",
    )


MOST_ENTRIES = 1000
"""Number of names of a directory that are looked at, in order to say which formats are inside it."""


def _claimed_inside(path: str) -> dict[str, list[str]]:
    """The first names in a directory that are checkpoints, printable, by their format."""
    if not is_directory(path):
        return {}
    found: dict[str, list[str]] = {}
    for name in names_in(path)[:MOST_ENTRIES]:
        with contextlib.suppress(StorageError):  # the others may be what is meant
            for offer in _claims(os.path.join(path, name)):
                found.setdefault(offer.name, []).append(shown(name))
    return {format: [*names[:2], "…"] if len(names) > 2 else names for format, names in found.items()}


def open_source(
    path: str, format: str | None = None, step: int | None = None, item: str | None = None
) -> Source:
    """Open the checkpoint at `path` for listing and reading.

    Raises UsageError where there is nothing, `format` is unknown, or `step` or `item` does not apply, and
    SourceError where it is damaged or of no known format, StorageError where the system does not let it be
    read.
    """
    # A TensorFlow checkpoint is named by the prefix of its files' names.
    if not exists(path) and not _claims(path):
        guess = "" if urls.is_url(path) else name_beside(path)
        raise UsageError(f"{shown(path)} does not exist{guess}", hint="Check the path.")
    chosen = named(format) if format else detect_format(path)
    check_published(path)
    try:
        source: Source = _imported(chosen.source)(path, Selection(step, item))
        return source
    except SourceError as error:
        raise _explained(path, chosen, error) from error


def _explained(path: str, chosen: Format, error: SourceError) -> SourceError:
    """The error to raise if reading failed: the path may hold a placeholder, or another format."""
    from ckpt_surgery.formats.recognition import Recognized, recognized, stand_in

    told = "; ".join(problem.message for problem in error.problems)
    if other := stand_in(path):
        return SourceError(
            f"{shown(path)} cannot be read as {chosen.name}; it looks like {other.what}: {told}",
            hint=other.hint,
        )
    found = _claims(path)
    if chosen in found:
        return error
    names = " or ".join(offer.name for offer in found)
    other = Recognized(names, "Name that format, or none.") if found else recognized(path)
    if other is None:
        return error
    return SourceError(
        f"{shown(path)} was to be read as {chosen.name}, but looks like {other.what}: {told}", hint=other.hint
    )


def restorable_by(format: str, leaves: Iterable[Leaf], structure_file: bool) -> Mapping[str, str]:
    """The oldest version of each package that is known to restore these leaves; empty: none is known.

    Raises UsageError.
    """
    chosen = named(format)
    if chosen.restorable_by is None:
        return {}
    found: Mapping[str, str] = _imported(chosen.restorable_by)(leaves, structure_file)
    return found


def encoder(format: str, options: SinkOptions) -> Encoder:
    """What a format can hold with these options. Touches no disk.

    Raises UsageError for a format that is only read, and for options that it cannot follow.
    """
    chosen = named(format)
    if chosen.encoder is None:
        raise UsageError(f"The format `{format}` can be read but not written", hint=formats_to_write())
    if options.shard_size is not None and not chosen.shards:
        several = ", ".join(name for name, known in formats().items() if known.writable and known.shards)
        raise UsageError(
            f"{format} checkpoints have no shards",
            hint=f"Leave out `shard_size=SIZE`; formats with it: {several}.",
        )
    if options.structure_file and not chosen.structure_file:
        raise UsageError(
            f"{format} checkpoints have no structure file",
            hint="Leave `structure_file` out of the recipe's `output`, or write orbax.",
        )
    made: Encoder = _imported(chosen.encoder)(options)
    return made


def check_destination(format: str, path: PathLike, options: SinkOptions) -> None:
    """Raises UsageError where a format cannot be written at a path, which need not exist."""
    check = named(format).check
    if check is not None:
        _imported(check)(path, options)


def other_files(source: Source, directory: str, names: Sequence[str]) -> list[str]:
    """Those of `names` that do not belong to a checkpoint: relative paths of all files in its directory.

    `directory`: real path of what the source was opened at. Raises SourceError.
    """
    told = named(source.format).other_files
    if told is not None:
        return list(_imported(told)(directory, names))
    own = set(own_files(source))
    return [name for name in names if os.path.join(directory, name) not in own]


def own_files(source: Source) -> list[str]:
    """Paths of the files that a checkpoint consists of: real but for links that the last component is."""
    real = functools.cache(real_path)
    files = (os.path.split(urls.absolute(file)) for file in source.files())
    return [os.path.join(real(directory), name) for directory, name in files]


def open_sink(format: str, directory: PathLike, options: SinkOptions, outputs: Sequence[Output]) -> Sink:
    """A sink that writes these outputs into a directory that exists, or below a URL.

    Raises UsageError where the format or the options make no sense.
    """
    encoder(format, options)
    check_destination(format, directory, options)
    chosen = named(format)
    assert chosen.sink is not None
    if not urls.is_url(os.fspath(directory)):
        directory = Path(directory)
    sink: Sink = _imported(chosen.sink)(directory, options, outputs)
    return sink
