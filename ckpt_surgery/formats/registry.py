"""Checkpoint formats: which one a path holds, how to list and read it, how to write one.

A format is one folder of this package that has a `FORMAT`. Other packages add theirs under the
entry point group `ckpt_surgery.formats`, whose entries name a module with one or a `Format` itself.
Every one of them is imported to find out what a path holds, so each imports no more than that takes
(`detect`); its source and its sink come with the first checkpoint that is opened.
"""

import functools
import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ckpt_surgery.formats as formats_package
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import LinkMode, Sink, Source
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.storage.listing import exists, is_directory, names_in


@dataclass(frozen=True)
class Selection:
    """Which checkpoint of a directory that holds several."""

    step: int | None = None
    """None: the latest committed one."""
    item: str | None = None
    """None: the only one that holds arrays."""


@dataclass(frozen=True)
class SinkOptions:
    """How a checkpoint is to be written. A format refuses what it cannot do: nothing asked for is ignored."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata; must be JSON."""
    step: int | None = None
    """Write into DIRECTORY/STEP/ITEM, a CheckpointManager's layout, instead of into DIRECTORY itself."""
    item: str | None = None
    """Name of the item. With a step the default is `default`; alone, DIRECTORY is the step's directory."""
    link_mode: LinkMode = LinkMode.AUTO
    """How files with stored bytes that are adopted come in."""
    zarr: int = 3
    """Version of the zarr specification: 2 or 3. Only version 3 stores checksums."""
    structure_file: bool = False
    """Whether the tree is also written as the MessagePack file that Orbax before 0.5.21 looks for."""
    shard_size: int | None = None
    """Bytes of arrays per file at most, where a format spreads them over several. None: one file."""
    file_name: str | None = None
    """The checkpoint is to be this one file inside the directory; None: it is the directory.
    Never None where the format's `is_file` says so of the destination's name."""


@dataclass(frozen=True)
class Format:
    """What a module of this package offers."""

    name: str
    """What `--format` and the reports call it."""
    detect: Callable[[Path], bool]
    """Whether a path looks like this format, damaged ones included. Reads names and a few bytes."""
    open_source: Callable[[str, Selection], Source]
    """Raises SourceError where the checkpoint is not whole, UsageError for a step it cannot have."""
    open_sink: Callable[[Path, SinkOptions], Sink] | None = None
    """Opens a sink on an empty directory that exists. None: this format is only read."""
    suffixes: tuple[str, ...] = ()
    """A destination whose name ends so is meant to be of this format if nobody says otherwise."""
    is_file: Callable[[str], bool] = lambda name: False
    """Whether a destination of that name is to be one file rather than a directory."""
    links: bool = False
    """Whether its checkpoints can refer to bytes inside the files of others; else those are copied."""
    shards: bool = False
    """Whether it can be written as several files of a limited size: `SinkOptions.shard_size`."""
    metadata_bytes: int | None = None
    """How much custom metadata there may be, as JSON; None: any amount."""
    metadata_entries: Mapping[str, str] = field(default_factory=dict)
    """What readers of the format want among the custom metadata, where there is any."""
    structure_file: bool = False
    """Whether it can be written with a file of the tree: `SinkOptions.structure_file`."""
    sparse: bool = False
    """Whether arrays may lack chunks that have nothing but the fill value, and nobody wonders."""
    restorable_by: Callable[[Iterable[Leaf], bool], Mapping[str, str]] = lambda leaves, structure_file: {}
    """The oldest version of each package that is known to restore these leaves, with or without a structure
    file; empty: none is told."""
    holds_metadata: bool = True
    """Whether it has a place for the user's custom metadata; else the plan says that it is left out."""
    flat: bool = False
    """Whether names have no levels, and dots in them are the convention."""
    holds_shardings: bool = False
    """Whether it has a place for the shardings of arrays."""
    holds_empty: bool = True
    """Whether it has a place for None and empty containers; else they are left out, and the plan says so."""
    holds_lists: bool = True
    """Whether lists are told from dicts with the keys `0`, `1`, …; else whatever is no list may be one."""


@functools.cache
def formats() -> Mapping[str, Format]:
    """Every known format by name: this package's, then those of entry points.

    Raises UsageError where two have the same name.
    """
    known: dict[str, Format] = {}
    origins: dict[str, str] = {}
    for origin, offer in _offers():
        if offer.name in known:
            raise UsageError(
                f"Two formats are called `{shown(offer.name)}`: "
                f"that of {origins[offer.name]}, and that of {origin}",
                hint="Rename one of them, or uninstall the package that it comes with.",
            )
        known[offer.name], origins[offer.name] = offer, origin
    return known


def _offers() -> Iterator[tuple[str, Format]]:
    """Every format and where it comes from: the folders beside this module that have a `FORMAT`."""
    for name in sorted(found.name for found in pkgutil.iter_modules(formats_package.__path__) if found.ispkg):
        module = importlib.import_module(f"{formats_package.__name__}.{name}")
        if hasattr(module, "FORMAT"):
            yield module.__name__, module.FORMAT
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.formats"):
        loaded = entry.load()
        yield f"the entry point {shown(f'{entry.name} = {entry.value}')}", getattr(loaded, "FORMAT", loaded)


def _named(name: str) -> Format:
    known = formats()
    if name not in known:
        raise UsageError(
            f"There is no format `{name}`{did_you_mean(name, known)}", hint=f"Known: {', '.join(known)}."
        )
    return known[name]


def detect_format(path: str) -> Format:
    """The format of what lies at `path`, by content.

    Raises SourceError where none fits, with what it looks like instead, and where several do.
    """
    found = _claims(Path(path))
    if len(found) > 1:
        raise _ambiguous(path, found)
    if not found:
        raise _unknown(path)
    return found[0]


def _claims(path: Path) -> list[Format]:
    """The formats that take a path for theirs, damaged or not."""
    return [known for known in formats().values() if known.detect(path)]


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
            f"{shown(path)} is no checkpoint itself, but holds some: {listed}", hint="Name one of them."
        )
    return SourceError(
        f"{shown(path)} is not a checkpoint of a known format",
        hint=f"Formats that can be read: {', '.join(formats())}. "
        "Name one if you are sure: `src_format=NAME` (of `inspect`: `format=NAME`).",
    )


MOST_ENTRIES = 1000
"""So many names of a directory are looked at for what they are; two of a kind are told."""


def _claimed_inside(path: str) -> dict[str, list[str]]:
    """What a directory holds, by the format that it is taken for: the first names, printable."""
    if not is_directory(path):
        return {}
    found: dict[str, list[str]] = {}
    for name in names_in(path)[:MOST_ENTRIES]:
        for offer in _claims(Path(path, name)):
            found.setdefault(offer.name, []).append(shown(name))
    return {format: [*names[:2], "…"] if len(names) > 2 else names for format, names in found.items()}


def open_source(
    path: str, format: str | None = None, step: int | None = None, item: str | None = None
) -> Source:
    """Open the checkpoint at `path` for listing and reading.

    Raises UsageError where there is nothing, `format` is unknown, or `step` or `item` does not apply, and
    SourceError where it is damaged or of no known format.
    """
    # TensorFlow's checkpoints go by the prefix of their files' names.
    if not exists(path) and not _claims(Path(path)):
        raise UsageError(f"{shown(path)} does not exist", hint="Check the path.")
    chosen = _named(format) if format else detect_format(path)
    try:
        return chosen.open_source(path, Selection(step, item))
    except SourceError as error:
        raise _explained(path, chosen, error) from error


def _explained(path: str, chosen: Format, error: SourceError) -> SourceError:
    """What could not be read may be something else: a placeholder for it, or another format."""
    from ckpt_surgery.formats.recognition import Recognized, recognized, stand_in

    told = "; ".join(problem.message for problem in error.problems)
    if other := stand_in(path):
        return SourceError(
            f"{shown(path)} cannot be read as {chosen.name}; it looks like {other.what}: {told}",
            hint=other.hint,
        )
    found = _claims(Path(path))
    if chosen in found:
        return error
    names = " or ".join(offer.name for offer in found)
    other = Recognized(names, "Name that format, or none.") if found else recognized(path)
    if other is None:
        return error
    return SourceError(
        f"{shown(path)} was to be read as {chosen.name}, but looks like {other.what}: {told}", hint=other.hint
    )


def format_for(name: str) -> str | None:
    """The format whose files are named so, by the longest suffix; None: no name says anything.

    It may be one that is only read.
    """
    endings = {suffix.lower(): known.name for known in formats().values() for suffix in known.suffixes}
    fitting = [suffix for suffix in endings if name.lower().endswith(suffix)]
    return endings[max(fitting, key=len)] if fitting else None


def promised(name: str) -> str | None:
    """What a name says of a file: one of the formats, or what other programs write; None: nothing."""
    from ckpt_surgery.formats.foreign_names import foreign

    return format_for(name) or foreign(name)


def check_name(path: str) -> None:
    """Refuse a destination that is named like what is not written here: whoever opens it expects that.

    For where nobody says which format is meant. Raises UsageError.
    """
    name = os.path.basename(os.path.abspath(path))
    format = format_for(name)
    if format in _writable() or (what := promised(name)) is None:
        return
    raise UsageError(
        f"{shown(path)}: its name says {what}, which cannot be written",
        hint=f"{_formats_to_write()} Name the destination for one of them, or say which: `format=NAME`.",
    )


def _writable() -> list[str]:
    return [name for name, known in formats().items() if known.open_sink is not None]


def _formats_to_write() -> str:
    return f"Formats to write: {', '.join(_writable())}."


def is_file(format: str, name: str) -> bool:
    """Whether a destination of that format and name is one file. Raises UsageError."""
    return _named(format).is_file(name)


def holds_metadata(format: str) -> bool:
    """Whether checkpoints of a format have a place for custom metadata. Raises UsageError."""
    return _named(format).holds_metadata


def metadata_entries(format: str) -> Mapping[str, str]:
    """What readers of a format want among the custom metadata, where there is any. Raises UsageError."""
    return _named(format).metadata_entries


def most_metadata(format: str) -> int | None:
    """How many bytes of custom metadata, as JSON, a format holds; None: any number. Raises UsageError."""
    return _named(format).metadata_bytes


def is_sparse(format: str) -> bool:
    """Whether arrays of a format lack chunks of the fill value as a matter of course. Raises UsageError."""
    return _named(format).sparse


def restorable_by(format: str, leaves: Iterable[Leaf], structure_file: bool) -> Mapping[str, str]:
    """The oldest version of each package that restores these leaves; empty: none is told.

    Raises UsageError.
    """
    return _named(format).restorable_by(leaves, structure_file)


def is_flat(format: str) -> bool:
    """Whether names of a format have no levels, and dots in them are the convention. Raises UsageError."""
    return _named(format).flat


def holds_shardings(format: str) -> bool:
    """Whether checkpoints of a format have a place for shardings. Raises UsageError."""
    return _named(format).holds_shardings


def holds_empty(format: str) -> bool:
    """Whether checkpoints of a format have a place for None and empty containers. Raises UsageError."""
    return _named(format).holds_empty


def can_link(format: str) -> bool:
    """Whether checkpoints of a format can share the data files of others. Raises UsageError."""
    return _named(format).links


def open_sink(format: str, directory: Path, options: SinkOptions) -> Sink:
    """A sink that writes `format` into `directory`, which exists and is empty. Raises UsageError."""
    chosen = _named(format)
    if chosen.open_sink is None:
        raise UsageError(f"The format `{format}` can be read but not written", hint=_formats_to_write())
    if options.shard_size is not None and not chosen.shards:
        several = ", ".join(name for name, known in formats().items() if known.open_sink and known.shards)
        raise UsageError(
            f"{format} checkpoints have no shards",
            hint=f"Leave out `shard_size=SIZE`; formats with it: {several}.",
        )
    if options.structure_file and not chosen.structure_file:
        raise UsageError(
            f"{format} checkpoints have no structure file",
            hint="Leave `structure_file` out of the recipe's `output`, or write orbax.",
        )
    return chosen.open_sink(directory, options)
