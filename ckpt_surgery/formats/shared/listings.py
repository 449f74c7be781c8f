"""Opened checkpoints as plain data, and the one source that reads them, whatever their format."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import NO_DETAILS, SourceDetails
from ckpt_surgery.formats.shared.chunk_reading import NO_CHECKS, Check, Decoder, read_stored
from ckpt_surgery.storage.failures import named
from ckpt_surgery.storage.listing import FileStat, digest, real_path, relative, walk
from ckpt_surgery.storage.reading import stat_file
from ckpt_surgery.storage.record_files import RECORD_NAME


class Reader(Protocol):
    """Reads an array that no manifest describes: boxes of any sizes, views with gaps, deflated members."""

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region, in the dtype that the array is listed with.

        `files`: size and time of files when they were listed, by path. Raises SourceError without the key.
        """
        ...


@dataclass(frozen=True)
class Directory:
    """A directory that belongs to a checkpoint with all files below it, those added after opening too."""

    path: str
    root: str
    """Directory, real path, that symbolic links must not leave."""

    def walked(self) -> Mapping[str, FileStat]:
        """Size and time of every file, by its path relative to the directory. Raises SourceError."""
        return walk(self.path, self.root)


def directory_of(path: str) -> Directory:
    """A directory whose links stay inside it."""
    return Directory(path, real_path(path))


@dataclass(frozen=True)
class Listing:
    """All that a format says of an opened checkpoint, as plain data; nothing but leaves is required."""

    leaves: Mapping[str, Leaf]
    """Every leaf by the text of its key, in the checkpoint's own order."""
    files: Mapping[str, FileStat] = field(default_factory=dict)
    """Size and time of every file when it was listed, by path; of URLs, their versions."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user's custom metadata."""
    step: int | None = None
    item: str | None = None
    readers: Mapping[str, Reader] = field(default_factory=dict)
    """What reads arrays without a manifest, by the text of their keys."""
    decode: Decoder | None = None
    """Reads regions of arrays whose chunks are not plain bytes."""
    checks: Mapping[Chunk, Check] = field(default_factory=lambda: NO_CHECKS)
    """Checksums of chunks, compared where all bytes of a chunk of plain bytes were read."""
    expected_files: Sequence[str] = ()
    """Paths of further files of the checkpoint, there or not: data that listing does not need."""
    directory: Directory | None = None
    """The directory of a format whose files are all that lie in it. None: the files are those listed."""
    details: SourceDetails = NO_DETAILS
    """What only some formats know: steps and items, the record, a model, bfloat16 in disguise."""


class ListedSource:
    """The source of every checkpoint that is listed as plain data. Safe to use from several threads."""

    def __init__(
        self, path: str, format: str, listing: Listing, rest: Callable[[], Listing] | None = None
    ) -> None:
        """`rest`: what makes the listing of leaves, and of what reading them takes, when they are first asked
        for; `listing` is then without them.
        """
        self.path, self.format = path, format
        self.step, self.item, self.metadata = listing.step, listing.item, listing.metadata
        self.details = listing.details
        self._first, self._rest = listing, rest

    @cached_property
    def _listing(self) -> Listing:
        return self._first if self._rest is None else self._rest()

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's own order."""
        return self._listing.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        try:
            return self._read(leaf, region)
        except SourceError as error:
            raise named(leaf.key, error) from error

    def _read(self, leaf: Leaf, region: Region) -> np.ndarray:
        listing = self._listing
        if leaf.unreadable is not None:
            raise SourceError(f"it {leaf.unreadable.why}", hint=leaf.unreadable.hint)
        reader = listing.readers.get(leaf.key.text)
        if reader is not None:
            return reader.read(region, listing.files)
        assert leaf.manifest is not None
        return read_stored(leaf.manifest, region, listing.files, listing.decode, listing.checks)

    def files(self) -> Iterator[str]:
        """Paths of all files, of which those that listing does not need may be missing."""
        directory = self._first.directory
        if directory is not None:
            yield from (os.path.join(directory.path, name) for name in directory.walked())
        else:
            yield from dict.fromkeys((*self._listing.files, *self._listing.expected_files))

    def fingerprint(self) -> str:
        """Digest of the files' names, sizes and times. Raises SourceError where one is gone."""
        directory = self._first.directory
        if directory is not None:
            return digest({name: stat for name, stat in directory.walked().items() if name != RECORD_NAME})
        return digest(relative({path: stat_file(path) for path in self._listing.files}))
