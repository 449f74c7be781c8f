"""Description of a format, as plain data.

All descriptions are imported to find out what a path holds, so each imports only what detection takes. What
reads and writes is in modules that are imported when a checkpoint is opened.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.core.arguments import LinkMode, PathLike
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.protocols import NO_DETAILS, SourceDetails
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.chunk_reading import NO_CHECKS, Check, Decoder
from ckpt_surgery.storage import listing
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.linking import SafeToHardlink
from ckpt_surgery.storage.reading import OpenFile, opened
from ckpt_surgery.storage.regions import Pieces, PlacedArray


@dataclass(frozen=True)
class Selection:
    """Choice of one checkpoint in a directory that holds several."""

    step: int | None = None
    """Number of the step; None: the latest committed one."""
    item: str | None = None
    """Name of the item; None: the only one that holds arrays."""


@dataclass(frozen=True)
class SinkOptions:
    """Options of a new checkpoint. A format refuses what it cannot do, and ignores no option."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata; must be JSON."""
    step: int | None = None
    """Step of a CheckpointManager layout, in which the item is DIRECTORY/STEP/ITEM. None: no such layout."""
    item: str | None = None
    """Name of the item; with a step, None means `default`. Without one, DIRECTORY is the step's directory."""
    link_mode: LinkMode = LinkMode.AUTO
    """Way in which files with stored bytes get into the checkpoint."""
    replaced: SafeToHardlink = field(default_factory=SafeToHardlink)
    """The files that may be hard-linked where `link_mode` is `auto`."""
    zarr: int = 3
    """Version of the zarr specification: 2 or 3. Only version 3 stores checksums."""
    structure_file: bool = False
    """Whether the tree is also written as the MessagePack file that Orbax before 0.5.21 looks for."""
    shard_size: int | None = None
    """Bytes of arrays per file at most, for formats that can be spread over several. None: one file."""
    record_bytes: int = 0
    """Bytes of the record, as JSON text, for formats that reserve room for it. 0: there will be none."""
    file_name: str | None = None
    """Name of the one file that the checkpoint consists of; None where it is a whole directory.
    Never None where the format's `is_file` is true of the destination's name."""
    existing: str | None = None
    """Path or URL of the step that the item is written for. All other items of it are in the new one too."""
    model_files: Callable[[], Mapping[str, bytes]] = dict
    """Reads the files of the sources' model, for a format that holds them beside the arrays."""


@dataclass(frozen=True)
class Names:
    """File names of a format, where one file is a checkpoint, or several files are.

    It says which paths are the format's, and which file of a directory is meant.
    """

    kind: str
    """Name of such checkpoints in messages: `.npz files`."""
    begins: Callable[[OpenFile], bool | None]
    """Whether a file begins as this format's do; None where that does not tell, and its suffix does."""
    suffixes: tuple[str, ...] = ()
    """Ends of the names of files, in lower case."""
    index: str | None = None
    """End of the names of indexes, which name the files that a checkpoint consists of."""
    usual: tuple[str, ...] = ()
    """The names of files and indexes that stand for a directory whatever else is in it."""
    shard: re.Pattern[str] | None = None
    """Finds the number of a file and the number of all files in the name of one of several. Without an index,
    the first of them stands for all."""
    alone: bool = False
    """Whether a file stands for its directory only if nothing else is in it."""
    others: tuple[str, ...] = ()
    """Ends of the names of files of other formats, which stand for the directory instead."""

    def detect(self, path: str) -> bool:
        """Whether a path is such a file, an index, or a directory with some; damaged ones too.

        Raises SourceError where it cannot be read.
        """
        if not listing.is_directory(path):
            return self.is_one(path)
        names = listing.names_in(path)
        if any(name.endswith(self.others) for name in names) or (self.alone and len(names) != 1):
            return False
        return bool(self.whole(names)) or any(map(self._part, names))

    def is_one(self, path: str) -> bool:
        """Whether a file is such a file or an index. Raises SourceError where it cannot be read."""
        if self.index is not None and path.endswith(self.index):
            return listing.is_file(path)
        with opened(path) as file:
            known = self.begins(file)
        return path.lower().endswith(self.suffixes) if known is None else known

    def file_of(self, path: str) -> tuple[str, str]:
        """The directory and the name of the file that a path means: itself, or the one that stands for it.

        Raises SourceError where it is not clear which, and for a link that leaves the directory.
        """
        if not listing.is_directory(path):
            directory, name = os.path.split(path)
            return directory, name
        names = listing.names_in(path)
        whole = self.whole(names)
        if len(whole) == 1:
            # Without its index, one of several files does not stand for all.
            part = self._part(whole[0]) if self.index is not None else None
            if part is None or int(part[2]) == 1:
                listing.check_link(os.path.join(path, whole[0]), listing.real_path(path))
                return path, whole[0]
        shards = [name for name in whole or names if self._part(name)]
        if self.index is not None and shards and len(shards) >= len(whole):
            index = next(name for name in self.usual if name.endswith(self.index))
            raise damaged(f"{shown(path)} holds shards ({few(shards)}) without their index {index}")
        other = f" with a name such as {self.usual[0]}" if self.usual and not (whole or self.suffixes) else ""
        what = f"{shown(path)} holds {len(whole)} {self.kind}{other}{f': {few(whole)}' if whole else ''}"
        raise SourceError(what, hint="Name the file that is meant.")

    def whole(self, names: Sequence[str]) -> list[str]:
        """Names in a directory that can stand for all of it: usual ones, or indexes, or files."""
        usual = [name for name in self.usual if name in names]
        indexes = [name for name in names if self.index is not None and name.endswith(self.index)]
        files = [name for name in names if name.lower().endswith(self.suffixes)]
        for i, name in enumerate(files):
            match = self._part(name) if self.index is None else None
            if match is not None:  # the first of its set stands for it
                files[i] = name[: match.start(1)] + "1".zfill(len(match[1])) + name[match.end(1) :]
        return usual or indexes or list(dict.fromkeys(files))

    def _part(self, name: str) -> re.Match[str] | None:
        """The numbers in the name of one of several files."""
        return None if self.shard is None else self.shard.search(name)


def claims(detect: Callable[[str], bool], path: str) -> bool:
    """Whether a path is recognized; one that cannot be read is not. Raises StorageError."""
    try:
        return detect(path)
    except SourceError:
        return False


@dataclass(frozen=True)
class Limits:
    """Limits of a format whose files have plain arrays in one piece each; makes its encoder."""

    words: tuple[str, str]
    """Its content, and the reason for refusing a dtype: `an .npz file holds arrays`, `NumPy cannot store`."""
    dtypes: Collection[Any]
    """Dtypes of arrays."""
    kinds: Collection[LeafKind] = (LeafKind.ARRAY, LeafKind.SCALAR)
    """Kinds of leaves. Empty nodes are left out beforehand where a format has no place for them."""
    more: Sequence[Callable[[Sequence[Leaf]], Iterable[str]]] | None = None
    """Further checks: functions that return a sentence for each problem. None: that keys are Unicode,
    and each is there once."""
    adopts: Callable[[Leaf, Manifest], bool] | None = None
    """Whether stored bytes can become an array without being decoded. None: where they are its elements, one
    chunk after another."""


class Reader(Protocol):
    """Reads an array that no manifest describes: boxes of any sizes, views with gaps, deflated members."""

    def read(self, region: Region, files: Mapping[str, listing.FileStat]) -> np.ndarray:
        """The elements of a region, in the dtype that the array is listed with.

        `files`: size and time of files when they were listed, by path. Raises SourceError without the key.
        """


@dataclass(frozen=True)
class Directory:
    """A directory that belongs to a checkpoint with all files below it, those added after opening too."""

    path: str
    """Path as the user gave it."""
    root: str
    """Directory, real path, that symbolic links must not leave."""

    def walked(self) -> Mapping[str, listing.FileStat]:
        """Size and time of every file, by its path relative to the directory. Raises SourceError."""
        return listing.walk(self.path, self.root)


@dataclass(frozen=True)
class Listing:
    """All that a format says of an opened checkpoint, as plain data; nothing but leaves is required."""

    leaves: Mapping[str, Leaf]
    """Leaves by the text of their keys, in the checkpoint's own order."""
    files: Mapping[str, listing.FileStat] = field(default_factory=dict)
    """Size and time of every file when it was listed, by path; of URLs, their versions."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata."""
    step: int | None = None
    """Step that was chosen in a directory of steps; None elsewhere."""
    item: str | None = None
    """Item that was chosen in a composite checkpoint; None elsewhere."""
    readers: Mapping[str, Reader] = field(default_factory=dict)
    """Readers of the arrays without a manifest, by the text of their keys."""
    decode: Decoder | None = None
    """Reads regions of arrays whose chunks are not plain bytes."""
    checks: Mapping[Chunk, Check] = field(default_factory=lambda: NO_CHECKS)
    """Checksums of chunks, compared where all bytes of a chunk of plain bytes were read."""
    expected_files: Sequence[str] = ()
    """Paths of further files of the checkpoint, there or not: data that listing does not need."""
    directory: Directory | None = None
    """The directory of a format whose files are all that lie in it. None: the files are those listed."""
    details: SourceDetails = NO_DETAILS
    """Details that only some formats have: steps and items, the record, a model, bfloat16 in disguise."""


@frozen()
class FilePlan:
    """A file that is to be written: everything but the elements of its arrays, and where those go."""

    name: str
    """Path relative to the checkpoint's directory."""
    size: int
    """Size of the whole file in bytes."""
    pieces: Pieces
    """All bytes that are not elements and not zero."""
    arrays: Mapping[str, PlacedArray] = field(default_factory=dict)
    """Places of the elements, by the text of the leaf's key."""
    seal: Callable[[OpenFile], Pieces] | None = None
    """Reads the file with all elements in it, and returns the bytes that depend on them: checksums.

    Raises SourceError.
    """
    record: Callable[[str], Pieces | None] | None = None
    """Returns the bytes that put the text of a record into the file; None where no room was reserved."""


@dataclass(frozen=True)
class Format:
    """A checkpoint format: how it is recognized, what it is like, and the module whose functions do the work.

    - `read(path, selection)` returns a `Listing`, or a `Source` of its own. It raises SourceError for a
      damaged checkpoint, UsageError for a step or item that is not there.
    - `LIMITS`, or `encoder(options)`, which makes an `Encoder` without touching the disk, and raises
      UsageError for options that it cannot follow. Formats that are only read have neither.
    - `layout(leaves, options)` returns a `FilePlan` for each file, or `open_sink(directory, options,
      outputs)` opens a `Sink`; the directory is a `Path`, or with `stores` perhaps the text of a URL.
    - `check_destination(path, options)`, if it is there, raises UsageError where a checkpoint cannot be
      written. The path need not exist.
    - `foreign_files(directory, names)`, if it is there, returns those of all files in the directory that are
      none of the checkpoint's. By default, they are those that its source does not name.
    """

    name: str
    """Name in `--format` and in reports."""
    detect: Callable[[str], bool]
    """Whether a path, or the URL of a store, looks like this format, even if damaged: often `Names.detect`.
    Reads names and a few bytes. It may raise SourceError for what cannot be read, which is then not this
    format's."""
    module: str
    """Name of the module with its functions, which is imported when they are needed. A package has them in
    modules of its own: see `known.READING`."""
    writable: bool = False
    """Whether checkpoints of this format can be written."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of names. A destination with such a name gets this format unless another one is chosen."""
    is_file: Callable[[str], bool] = lambda name: False
    """Whether a destination of that name is to be one file rather than a directory."""
    choices: Collection[str] = ()
    """Choices that a `Selection` can make in a directory of this format: `step`, `item`."""
    options: Collection[str] = ()
    """Fields of `SinkOptions` that it follows and most formats do not: `step`, `item`, `shard_size`,
    `structure_file`."""
    stores: bool = False
    """Whether it is written to an object store directly. Otherwise it is written to a local directory, from
    where it is uploaded."""
    replaces_files: bool = False
    """Whether its writers replace data files and never rewrite them in place. Otherwise a file that shares
    its bytes by a hard link can change with the source."""
    separate_files: bool = False
    """Whether each worker computes into files of its own, which no other worker writes to."""
    sparse: bool = False
    """Whether arrays normally lack the chunks that hold nothing but the fill value."""
    flat: bool = False
    """Whether names have no levels, so that dots in them are the convention."""
    holds_metadata: bool = True
    """Whether it has a place for custom metadata. Otherwise the plan says that it is left out."""
    holds_empty: bool = True
    """Whether it has a place for None and empty containers. Otherwise plans say that they are left out."""
    holds_lists: bool = True
    """Whether it tells lists from dicts with the keys `0`, `1`, …"""

    def recognizes(self, path: PathLike) -> bool:
        """Whether a path looks like this format. Raises StorageError where the system does not tell."""
        return claims(self.detect, os.fspath(path))
