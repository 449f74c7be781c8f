"""Checkpoint formats: which one a path holds, how to list and read it, how to write one.

A format is a folder beside this module that has a `FORMAT`. Other packages add theirs under the
entry point group `ckpt_surgery.formats`, whose entries name a module with a `FORMAT`, or a `Format`
itself. All of them are imported to find out what a path holds, so each imports only what detection
takes. Its source, encoder and sink are named in its `FORMAT`, and imported when a checkpoint is opened.
"""

import contextlib
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
from ckpt_surgery.core import urls
from ckpt_surgery.core.access import name_beside
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.protocols import Encoder, LinkMode, Output, Sink, Source
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.storage.linking import ReplacedFiles
from ckpt_surgery.storage.listing import exists, is_directory, names_in, real_path
from ckpt_surgery.storage.publications import check_published


@dataclass(frozen=True)
class Selection:
    """Which checkpoint is meant in a directory that holds several."""

    step: int | None = None
    """Number of the step; None: the latest committed one."""
    item: str | None = None
    """Name of the item; None: the only one that holds arrays."""


@dataclass(frozen=True)
class SinkOptions:
    """How a checkpoint is to be written. A format refuses what it cannot do, and ignores no option."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata; must be JSON."""
    step: int | None = None
    """Step of a CheckpointManager layout, in which the item is DIRECTORY/STEP/ITEM. None: no such layout."""
    item: str | None = None
    """Name of the item; with a step, None means `default`. Without one, DIRECTORY is the step's directory."""
    link_mode: LinkMode = LinkMode.AUTO
    """How files with stored bytes get into the checkpoint."""
    replaced: ReplacedFiles = field(default_factory=ReplacedFiles)
    """The files that may be hard-linked where `link_mode` is `auto`."""
    zarr: int = 3
    """Version of the zarr specification: 2 or 3. Only version 3 stores checksums."""
    structure_file: bool = False
    """Whether the tree is also written as the MessagePack file that Orbax before 0.5.21 looks for."""
    shard_size: int | None = None
    """Bytes of arrays per file at most, for formats that can be spread over several. None: one file."""
    record_bytes: int = 0
    """Bytes of the record, as JSON text, for formats with `Format.reserves_record`. 0: there will be none."""
    file_name: str | None = None
    """Name of the one file that the checkpoint consists of; None where it is a whole directory.
    Never None where the format's `is_file` is true of the destination's name."""
    existing: str | None = None
    """Path or URL of the step that the item is written for. All other items of it are in the new one too."""
    model_files: Callable[[], Mapping[str, bytes]] = dict
    """Reads the files of the sources' model, for a format that holds them beside the arrays."""


@dataclass(frozen=True)
class Format:
    """A checkpoint format. Its parts are named `package.module:attribute`, and imported when needed."""

    name: str
    """What `--format` and the reports call it."""
    detect: Callable[[str], bool]
    """Whether a path, or the URL of a store, looks like this format, even if damaged.
    Reads names and a few bytes."""
    source: str
    """Name of a function of a path and a `Selection` that opens a `Source`.
    It raises SourceError for a damaged checkpoint, UsageError for a step or item that it cannot have."""
    encoder: str | None = None
    """Name of a function of `SinkOptions` that makes an `Encoder`, without touching the disk.
    It raises UsageError for options that the format cannot follow. None: the format is only read."""
    sink: str | None = None
    """Name of a function of a directory, `SinkOptions` and the outputs that opens a `Sink`.
    The options have been accepted by `encoder`. The directory is a `Path`, or with `stores` perhaps the text
    of a URL. None: the format is only read."""
    stores: bool = False
    """Whether it is written to an object store directly. Otherwise it is written to a local directory, from
    where it is uploaded."""
    check: str | None = None
    """Name of a function of a destination's path and `SinkOptions` that raises UsageError where the format
    cannot be written there. The path need not exist. None: it can be written anywhere."""
    other_files: str | None = None
    """Name of a function of a checkpoint's directory and the relative paths of all files in it, which returns
    the paths of those that are none of the checkpoint's. None: those that its source does not name."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of names. A destination with such a name gets this format unless another one is chosen."""
    is_file: Callable[[str], bool] = lambda name: False
    """Whether a destination of that name is to be one file rather than a directory."""
    shards_in_stores: bool = False
    """Whether several machines can write one checkpoint to an object store."""
    links: bool = False
    """Whether a checkpoint can use whole data files of another one. Otherwise stored bytes are copied."""
    replaces_files: bool = False
    """Whether its writers replace data files and never rewrite them in place. Otherwise a file that shares
    its bytes by a hard link can change with the source."""
    separate_files: bool = False
    """Whether each worker computes into files of its own, which no other worker writes to."""
    shards: bool = False
    """Whether it can be written as several files of a limited size: `SinkOptions.shard_size`."""
    metadata_bytes: int | None = None
    """Largest size of the custom metadata, as JSON; None: no limit."""
    metadata_entries: Mapping[str, str] = field(default_factory=dict)
    """Entries that readers of the format expect in the custom metadata, where there is any."""
    reserves_record: bool = False
    """Whether the record is in the checkpoint's only file, with room that is reserved for it beforehand."""
    holds_config: bool = False
    """Whether Hugging Face's libraries load a directory of it, with config files beside the weights."""
    structure_file: bool = False
    """Whether it can be written with a file of the tree: `SinkOptions.structure_file`."""
    sparse: bool = False
    """Whether arrays normally lack the chunks that hold nothing but the fill value."""
    restorable_by: str | None = None
    """Name of a function of the leaves and of whether there is a structure file, which returns the oldest
    version of each package that restores them. None: that is not known."""
    holds_metadata: bool = True
    """Whether it has a place for custom metadata. Otherwise the plan says that it is left out."""
    flat: bool = False
    """Whether names have no levels, so that dots in them are the convention."""
    holds_shardings: bool = False
    """Whether it has a place for the shardings of arrays."""
    holds_empty: bool = True
    """Whether it has a place for None and empty containers. Otherwise plans say that they are left out."""
    holds_lists: bool = True
    """Whether it tells lists from dicts with the keys `0`, `1`, …"""

    @property
    def writable(self) -> bool:
        """Whether checkpoints of this format can be written."""
        return self.sink is not None


def _imported(name: str) -> Any:
    """What the name `package.module:attribute` stands for."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def formats() -> Mapping[str, Format]:
    """Every known format by name: first this package's, then those of entry points.

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
    """Every format, with the module or entry point that it comes from."""
    for name in sorted(found.name for found in pkgutil.iter_modules(formats_package.__path__) if found.ispkg):
        module = importlib.import_module(f"{formats_package.__name__}.{name}")
        if hasattr(module, "FORMAT"):
            yield module.__name__, module.FORMAT
    for entry in importlib.metadata.entry_points(group="ckpt_surgery.formats"):
        loaded = entry.load()
        yield f"the entry point {shown(f'{entry.name} = {entry.value}')}", getattr(loaded, "FORMAT", loaded)


def named(name: str) -> Format:
    """The format of that name. Raises UsageError."""
    known = formats()
    if name not in known:
        raise UsageError(
            f"Not a format: `{name}`{did_you_mean(name, known)}", hint=f"Known: {', '.join(known)}."
        )
    return known[name]


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
            if known.detect(path):
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


def writable() -> list[str]:
    """Names of the formats that can be written."""
    return [name for name, known in formats().items() if known.writable]


def formats_to_write() -> str:
    """A sentence that lists them, for hints."""
    return f"Formats to write: {', '.join(writable())}."


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
