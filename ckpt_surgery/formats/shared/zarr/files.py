"""Zarr arrays in directories: found by their metadata, listed as manifests of the chunks that have files."""

import os
import posixpath
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES, RESERVED
from ckpt_surgery.formats.shared.zarr.metadata import UNKNOWN, ZarrArray, parse_array
from ckpt_surgery.storage.failures import damaged
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
        """List all files below a directory of the root.

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

    def chunk(self, name: str) -> Chunk:
        """A chunk that is a whole file."""
        return Chunk(self.path(name), 0, self.stats[name].size)


def within(directory: str, name: str) -> str:
    """The path of a file in a directory; the root is the empty string."""
    return f"{directory}/{name}" if directory else name


def file_array(files: Files, directory: str) -> ZarrArray:
    """The array in a directory, which must have metadata of one version."""
    found = [version for version, name in FILE_NAMES.items() if within(directory, name) in files.stats]
    if len(found) > 1:
        raise SourceError(
            f"{shown(os.path.join(files.root, directory))} has both {' and '.join(FILE_NAMES.values())}",
            hint="Remove the one that does not belong to its chunks.",
        )
    if not found:
        raise damaged(
            f"{shown(os.path.join(files.root, directory))} has no {' or '.join(FILE_NAMES.values())}: "
            "without the array's metadata its chunks cannot be read"
        )
    name = within(directory, FILE_NAMES[found[0]])
    with opened(files.path(name), files.stats[name]) as file:
        array = parse_array(file.read(0, file.stat.size), found[0])
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
    """The manifest of the chunks of an array that have files.

    `filled`: those that are missing have the fill value. Where it is false, or the metadata gives none, every
    chunk of the grid must be there.
    """
    prefix = within(directory, "")
    names = (name.removeprefix(prefix) for name in files.below(directory))
    manifest = sparse_manifest(array, names, lambda name: files.chunk(prefix + name), filled)
    if not filled or array.definition.get("fill_value") is None:
        _check_complete(array, manifest)
    return manifest


def sparse_manifest(
    array: ZarrArray, names: Iterable[str], chunk_of: Callable[[str], Chunk | None], filled: bool
) -> Manifest:
    """The manifest of the chunks of an array that exist. The grid is not iterated: it may claim to be huge.

    `names`: what is stored of the array, within it. `chunk_of`: where that lies.
    """
    chunks: dict[Shape, Chunk] = {}
    for name in names:
        index = chunk_index(array, name)
        chunk = None if index is None else chunk_of(name)
        if index is not None and chunk is not None:
            check_length(array, index, chunk)
            chunks[index] = chunk
    return array.manifest(dict(sorted(chunks.items())), filled)


def chunk_index(array: ZarrArray, name: str) -> Shape | None:
    """Index of the chunk that a file in an array's directory holds; None for other files."""
    counts = array.counts
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
        raise damaged(
            f"its chunk {array.chunk_name(index)} has {chunk.length} stored bytes, "
            f"but should decode to {array.chunk_nbytes}"
        )


def _check_complete(array: ZarrArray, manifest: Manifest) -> None:
    """Raise SourceError where a chunk is missing, with the first one's name."""
    if not manifest.complete:
        # The metadata may claim a huge grid, but this ends at the latest one step after the stored chunks.
        missing = next(index for index in _indices(array.counts) if index not in manifest.chunks)
        raise damaged(f"its chunk {array.chunk_name(missing)} is missing")


def _indices(counts: Shape) -> Iterator[Shape]:
    """The indices of a grid in C order. Unlike itertools.product, holds no axis in memory."""
    if not counts:
        yield ()
        return
    for first in range(counts[0]):
        for rest in _indices(counts[1:]):
            yield (first, *rest)
