"""Zarr arrays in directories: found by their metadata, listed as manifests of the chunks that have files.

Where a chunk is missing, `check_filled` accepts it if the array has a fill value, and `check_complete` does
not.
"""

import os
import posixpath
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import Shape, grid_counts
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES, RESERVED
from ckpt_surgery.formats.shared.zarr.metadata import UNKNOWN, ZarrArray, parse_array
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.listing import FileStat, check_link, real_path, walk
from ckpt_surgery.storage.reading import opened
from ckpt_surgery.storage.views import prefetch

CODECS = {
    2: ("blosc", "bz2", "gzip", "zlib", "zstd"),
    3: ("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"),
}
"""Codecs that TensorStore's drivers decode, by zarr version."""


@dataclass(frozen=True)
class Files:
    """A directory with zarr arrays in it, walked once."""

    root: str
    """Directory that the names are relative to."""
    stats: Mapping[str, FileStat]
    """Size and time of each file, by name with `/`."""
    names: Sequence[str]
    """The same names, sorted."""

    @staticmethod
    def of(root: str, directory: str = "") -> "Files":
        """Every file below a directory of the root.

        Raises SourceError where the directory cannot be listed, for links that leave the root, and for
        special files.
        """
        path, real = os.path.join(root, directory), real_path(root)
        if directory:
            check_link(path, real)
        stats = {within(directory, name): stat for name, stat in walk(path, real).items()}
        prefetch(root, (name for name in stats if posixpath.basename(name) in RESERVED))
        return Files(root, stats, sorted(stats))

    def path(self, name: str) -> str:
        """The path that opens a file."""
        return os.path.join(self.root, name)

    @property
    def by_path(self) -> dict[str, FileStat]:
        """Size and time of each file, by path."""
        return {self.path(name): stat for name, stat in self.stats.items()}

    def below(self, directory: str) -> Sequence[str]:
        """The names of all files below a directory, which is given without `/` at its end."""
        if not directory:
            return self.names
        after = chr(ord("/") + 1)
        low, high = bisect_left(self.names, f"{directory}/"), bisect_left(self.names, f"{directory}{after}")
        return self.names[low:high]

    def read(self, name: str) -> bytes:
        """All of a small file. Raises SourceError where it cannot be read or has changed."""
        with opened(self.path(name), self.stats[name]) as file:
            return file.read(0, file.stat.size)

    def version(self, directory: str) -> int | None:
        """The version of the zarr array in a directory; None where there is no array.

        Raises SourceError where the directory has metadata of two versions.
        """
        found = [version for version, name in FILE_NAMES.items() if within(directory, name) in self.stats]
        if len(found) > 1:
            raise SourceError(
                f"{shown(os.path.join(self.root, directory))} has both {' and '.join(FILE_NAMES.values())}",
                hint="Remove the one that does not belong to its chunks.",
            )
        return found[0] if found else None


def within(directory: str, name: str) -> str:
    """The path of a file in a directory; the root is the empty string."""
    return f"{directory}/{name}" if directory else name


def file_array(files: Files, directory: str) -> ZarrArray:
    """The array in a directory."""
    version = files.version(directory)
    if version is None:
        raise SourceError(
            f"{shown(os.path.join(files.root, directory))} has no {' or '.join(FILE_NAMES.values())}: "
            "without the array's metadata its chunks cannot be read",
            hint=DAMAGED,
        )
    array = parse_array(files.read(within(directory, FILE_NAMES[version])), version)
    check_codecs(array)
    return array


def check_reachable(path: str) -> None:
    """Raise UsageError for a destination that TensorStore, and so no stock reader, could open."""
    if "\\" in path:
        raise UsageError(
            f"{shown(path)} has a backslash in it, which TensorStore reads as `/`",
            hint="Choose a name without one.",
        )
    if not is_unicode(path):
        raise UsageError(
            f"{shown(path)} is not a name in UTF-8, and TensorStore opens no others",
            hint="Rename it, or the directory that is not.",
        )


def check_codecs(array: ZarrArray) -> None:
    """Raise SourceError for a codec that cannot be read."""
    definition = array.definition
    if array.version == 2:
        names = [definition["compressor"]["id"]] if definition["compressor"] else []
    else:
        names = list(_codec_names(definition["codecs"]))
    for name in names:
        if name not in CODECS[array.version]:
            raise SourceError(f"its codec `{shown(str(name))}` cannot be read", hint=UNKNOWN)


def _codec_names(codecs: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The names of the codecs of a chain, and of the chains within shards."""
    for codec in codecs:
        yield codec["name"]
        if codec["name"] == "sharding_indexed":
            yield from _codec_names(codec["configuration"]["codecs"])


def file_manifest(files: Files, directory: str, array: ZarrArray, filled: bool = False) -> Manifest:
    """The manifest of the chunks of an array that have files, which need not be all of them.

    `filled`: missing chunks have the fill value, where the metadata gives one.
    """
    counts = grid_counts(array.spec.shape, array.chunk_shape)
    start = len(within(directory, ""))
    chunks: dict[Shape, Chunk] = {}
    for name in files.below(directory):
        index = chunk_index(array, name[start:], counts)
        if index is not None:
            chunks[index] = Chunk(files.path(name), 0, files.stats[name].size)
            check_length(array, index, chunks[index])
    return array.manifest(dict(sorted(chunks.items())), filled)


def chunk_index(array: ZarrArray, name: str, counts: Shape) -> Shape | None:
    """Which chunk of the grid a file in an array's directory is; None for other files."""
    digits = name.split(array.separator)
    if array.prefix and digits.pop(0) != array.prefix:
        return None
    if not counts:
        return () if name == array.chunk_name(()) else None
    if len(digits) != len(counts) or not all(d.isascii() and d.isdecimal() and len(d) < 20 for d in digits):
        return None
    index = tuple(map(int, digits))
    inside = all(i < count for i, count in zip(index, counts, strict=True))
    return index if inside and array.chunk_name(index) == name else None


def check_length(array: ZarrArray, index: Shape, chunk: Chunk) -> None:
    """Raise SourceError where the stored bytes cannot be a chunk of the size that the metadata claims.

    Called before anything of that size is allocated.
    """
    wrong = chunk.length != array.chunk_nbytes if array.raw else chunk.length < array.least_bytes
    if wrong:
        raise SourceError(
            f"its chunk {array.chunk_name(index)} has {chunk.length} stored bytes, "
            f"but should decode to {array.chunk_nbytes}",
            hint=DAMAGED,
        )


def check_complete(array: ZarrArray, manifest: Manifest) -> None:
    """Raise SourceError where a chunk is missing, with the first one's name."""
    if not manifest.complete:
        # The metadata may claim a huge grid, but this ends at the latest one step after the stored chunks.
        indices = _indices(grid_counts(manifest.spec.shape, manifest.chunk_shape))
        missing = next(index for index in indices if index not in manifest.chunks)
        raise SourceError(f"its chunk {array.chunk_name(missing)} is missing", hint=DAMAGED)


def _indices(counts: Shape) -> Iterator[Shape]:
    """The indices of a grid in C order. Unlike itertools.product, holds no axis in memory."""
    if not counts:
        yield ()
        return
    for first in range(counts[0]):
        for rest in _indices(counts[1:]):
            yield (first, *rest)


def check_filled(array: ZarrArray, manifest: Manifest) -> None:
    """Raise SourceError where a chunk is missing and there is no fill value to take its place."""
    if array.definition.get("fill_value") is None:
        check_complete(array, manifest)
