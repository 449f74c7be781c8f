"""Zarr arrays as their chunks lie in files: found by their metadata, listed as manifests, read in regions.

Every format that stores zarr shares this: zarr groups, T5X, Orbax. Reading goes through TensorStore. A chunk
that is missing reads as the fill value only where the format wants that (`check_filled`); elsewhere it is an
error (`check_complete`).
"""

import itertools
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import add
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import (
    Region,
    Shape,
    chunk_regions,
    grid_counts,
)
from ckpt_surgery.core.errors import SourceError, StorageError, UsageError
from ckpt_surgery.core.leaves import (
    Leaf,
)
from ckpt_surgery.core.manifests import (
    Chunk,
    Manifest,
)
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.ocdbt_reader import STORE_ERRORS, store_message
from ckpt_surgery.formats.shared.raw_arrays import Opaque, StretchesSource, read_raw
from ckpt_surgery.formats.shared.zarr_layout import FILE_NAMES
from ckpt_surgery.formats.shared.zarr_metadata import (
    UNKNOWN,
    ZarrArray,
    parse_array,
    zarr2_metadata,
    zarr3_metadata,
)
from ckpt_surgery.storage.handles import Handles
from ckpt_surgery.storage.listing import DAMAGED, FileStat, check_link, walk
from ckpt_surgery.storage.reading import opened

CACHE_BYTES = 32 * 2**20
"""Decoded chunks kept, for regions that share one."""
INDEX_CACHE_BYTES = 100_000_000
"""B+tree nodes kept; Orbax writes nodes of up to this size."""
OPEN_ARRAYS = 256
"""Handles kept open."""
DRIVERS = {2: "zarr", 3: "zarr3"}
"""TensorStore's, by zarr version."""
CODECS = {
    2: ("blosc", "bz2", "gzip", "zlib", "zstd"),
    3: ("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"),
}
"""What TensorStore's drivers decode."""


# --- files ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """A directory with zarr arrays in it, walked once."""

    root: str
    """What the names are relative to."""
    stats: Mapping[str, FileStat]
    """By name, with `/`."""
    names: Sequence[str]
    """Sorted."""

    @staticmethod
    def of(root: str, directory: str = "") -> "Files":
        """Every file below a directory of the root.

        Raises SourceError where there is none, for links that leave the root, and for special files.
        """
        path, real = os.path.join(root, directory), os.path.realpath(root)
        if directory:
            check_link(path, real)
        stats = {within(directory, name): stat for name, stat in walk(path, real).items()}
        return Files(root, stats, sorted(stats))

    def path(self, name: str) -> str:
        """The path that opens a file."""
        return os.path.join(self.root, name)

    @property
    def by_path(self) -> dict[str, FileStat]:
        """The same as `stats`, by path."""
        return {self.path(name): stat for name, stat in self.stats.items()}

    def below(self, directory: str) -> Sequence[str]:
        """The names of the files in a directory, however deep; it has no `/` at its end."""
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
        """Of the zarr array whose metadata is in a directory; None without.

        Raises SourceError where it has that of two versions.
        """
        found = [version for version, name in FILE_NAMES.items() if within(directory, name) in self.stats]
        if len(found) > 1:
            raise SourceError(
                f"{shown(os.path.join(self.root, directory))} has both {' and '.join(FILE_NAMES.values())}",
                hint="Remove the one that does not belong to its chunks.",
            )
        return found[0] if found else None


def within(directory: str, name: str) -> str:
    """The path of a file in a directory that may be the root: ``."""
    return f"{directory}/{name}" if directory else name


# --- arrays -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredArray:
    """What reading an array through TensorStore takes."""

    definition: ZarrArray
    kvstore: Mapping[str, Any]
    """TensorStore's spec of the store that it is in."""
    path: str
    """Of the array in that store; ends with `/`."""
    filled: bool = False
    """Whether a chunk that is missing has the fill value, rather than being an error."""


def file_array(files: Files, directory: str) -> StoredArray:
    """The array in a directory. Raises SourceError where its metadata is missing or cannot be read."""
    version = files.version(directory)
    if version is None:
        raise SourceError(
            f"{shown(os.path.join(files.root, directory))} has no {' or '.join(FILE_NAMES.values())}: "
            "without the array's metadata its chunks cannot be read",
            hint=DAMAGED,
        )
    path = os.path.join(os.path.abspath(files.root), directory, "")
    check_reachable(path)
    definition = parse_array(files.read(within(directory, FILE_NAMES[version])), version)
    check_codecs(definition)
    return StoredArray(definition, {"driver": "file"}, path)


def check_reachable(path: str, error: type[SourceError] | type[UsageError] = SourceError) -> None:
    """Raises an error where TensorStore's file driver means another place by a path."""
    if "\\" in path:
        raise error(
            f"{shown(path)} has a backslash in it, which TensorStore takes for `/`",
            hint="Choose a name without one.",
        )


def check_codecs(array: ZarrArray) -> None:
    """Raises SourceError for a codec that cannot be read."""
    definition = array.definition
    if array.version == 2:
        names = [definition["compressor"]["id"]] if definition["compressor"] else []
    else:
        names = list(_codec_names(definition["codecs"]))
    for name in names:
        if name not in CODECS[array.version]:
            raise SourceError(f"its codec `{shown(str(name))}` cannot be read", hint=UNKNOWN)


def _codec_names(codecs: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Those of a chain, and of the chains within shards."""
    for codec in codecs:
        yield codec["name"]
        if codec["name"] == "sharding_indexed":
            yield from _codec_names(codec["configuration"]["codecs"])


def file_manifest(files: Files, directory: str, array: ZarrArray) -> Manifest:
    """The chunks of an array that have files, each as long as it can be; not all chunks need have one.

    Raises SourceError where a file is too short to be a chunk.
    """
    counts = grid_counts(array.spec.shape, array.chunk_shape)
    start = len(within(directory, ""))
    chunks: dict[Shape, Chunk] = {}
    for name in files.below(directory):
        index = chunk_index(array, name[start:], counts)
        if index is not None:
            chunks[index] = Chunk(files.path(name), 0, files.stats[name].size)
            check_length(array, index, chunks[index])
    return Manifest(array.spec, array.chunk_shape, array.codec, dict(sorted(chunks.items())))


def chunk_index(array: ZarrArray, name: str, counts: Shape) -> Shape | None:
    """Which chunk of a grid a file within an array's directory is; None where it is none."""
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
    """Before anything is allocated: could the stored bytes be what the metadata claims?

    Raises SourceError where they could not.
    """
    wrong = chunk.length != array.chunk_nbytes if array.raw else chunk.length < array.least_bytes
    if wrong:
        raise SourceError(
            f"its chunk {array.chunk_name(index)} has {chunk.length} stored bytes, "
            f"but should decode to {array.chunk_nbytes}",
            hint=DAMAGED,
        )


def check_complete(array: ZarrArray, manifest: Manifest) -> None:
    """Raises SourceError where a chunk is missing, with the first one's name."""
    if not manifest.complete:
        # The grid may be said to be huge, but this ends after one step more than there are chunks.
        indices = _indices(grid_counts(manifest.spec.shape, manifest.chunk_shape))
        missing = next(index for index in indices if index not in manifest.chunks)
        raise SourceError(f"its chunk {array.chunk_name(missing)} is missing", hint=DAMAGED)


def _indices(counts: Shape) -> Iterator[Shape]:
    """The indices of a grid in C order; itertools.product would hold every axis in memory."""
    if not counts:
        yield ()
        return
    for first in range(counts[0]):
        for rest in _indices(counts[1:]):
            yield (first, *rest)


def check_filled(array: ZarrArray, manifest: Manifest) -> None:
    """Raises SourceError where a chunk is missing and there is no fill value to take its place."""
    if array.definition.get("fill_value") is None:
        check_complete(array, manifest)


# --- reading ----------------------------------------------------------------------------------------------


class ArrayReader:
    """Reads regions of zarr arrays. Thread-safe.

    A chunk that its manifest lists must be there, and be the same, also when it is read.
    """

    def __init__(
        self,
        root: str,
        arrays: Callable[[str], StoredArray],
        listed: Mapping[str, FileStat] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ):
        self._root = root
        """The checkpoint's directory, for messages about chunks without a file of their own."""
        self._arrays = arrays
        """By key text."""
        self._listed = listed or {}
        """What files were like when they were listed, by their paths."""
        self._cache_bytes = cache_bytes
        self._handles = Handles(self._opened, OPEN_ARRAYS)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        manifest = leaf.manifest
        assert manifest is not None
        if not region.size:
            return np.empty(region.shape, manifest.spec.dtype)
        if manifest.supports_partial_reads and _all_stored(manifest, region):
            return read_raw(manifest, region, self._listed)
        try:
            block = self._handles.get(leaf.key.text)[region.slices].read().result()
        except STORE_ERRORS as error:
            raise SourceError(
                f"`{shown(leaf.key.text)}` cannot be read from {self._files_of(manifest, region)}: "
                f"{store_message(error)}",
                hint=DAMAGED,
            ) from error
        self._check_unchanged(manifest, region)
        return np.asarray(block)

    def _check_unchanged(self, manifest: Manifest, region: Region) -> None:
        """A file that vanished since it was listed would read as the fill value."""
        for chunk in _stored_chunks(manifest, region) if self._listed else ():
            with opened(chunk.file, self._listed.get(chunk.file)):
                pass

    def _files_of(self, manifest: Manifest, region: Region) -> str:
        """For a message: the files that hold a region's chunks."""
        chunks = itertools.islice(_stored_chunks(manifest, region), 1000)
        files = sorted({chunk.file or self._root for chunk in chunks}) or [self._root]
        return ", ".join(map(shown, files[:3])) + (f" and {len(files) - 3} more files" if files[3:] else "")

    @cached_property
    def _context(self) -> Any:
        import tensorstore as ts

        return ts.Context(
            {
                "cache_pool": {"total_bytes_limit": self._cache_bytes},
                "cache_pool#index": {"total_bytes_limit": INDEX_CACHE_BYTES},
            }
        )

    def _opened(self, text: str) -> Any:
        import tensorstore as ts

        array = self._arrays(text)
        spec = {
            "driver": DRIVERS[array.definition.version],
            "kvstore": {**array.kvstore, "path": array.path},
            "metadata": array.definition.definition,
            "fill_missing_data_reads": array.filled,
            "recheck_cached_data": False,
            "recheck_cached_metadata": False,
        }
        return ts.open(spec, open=True, read=True, assume_metadata=True, context=self._context).result()


def _touched(manifest: Manifest, region: Region) -> Region:
    """The indices of the chunks that a region touches; it has elements."""
    grid = manifest.chunk_shape
    low = tuple(start // size for start, size in zip(region.starts, grid, strict=True))
    return Region(low, tuple(-(-stop // size) for stop, size in zip(region.stops, grid, strict=True)))


def _stored_chunks(manifest: Manifest, region: Region) -> Iterator[Chunk]:
    """The stored chunks that a region touches; it has elements."""
    touched = _touched(manifest, region)
    if touched.size <= len(manifest.chunks):
        cells = chunk_regions(touched.shape, (1,) * len(touched.shape))
        indices = (tuple(map(add, touched.starts, cell.starts)) for cell in cells)
        yield from (manifest.chunks[index] for index in indices if index in manifest.chunks)
    else:
        for index, chunk in manifest.chunks.items():
            if all(a <= i < b for a, i, b in zip(touched.starts, index, touched.stops, strict=True)):
                yield chunk


def _all_stored(manifest: Manifest, region: Region) -> bool:
    """Whether no chunk that a region touches is missing."""
    return manifest.complete or _touched(manifest, region).size == sum(
        1 for _ in _stored_chunks(manifest, region)
    )


class ArraysSource(StretchesSource):
    """A checkpoint of zarr arrays in files, and perhaps of stretches. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        format: str,
        directory: str,
        leaves: Mapping[str, Leaf],
        arrays: Mapping[str, StoredArray],
        files: Mapping[str, FileStat],
        metadata: Mapping[str, Any],
        step: int | None = None,
        opaque: Mapping[str, Opaque] | None = None,
    ):
        super().__init__(path, format, leaves, files, metadata, step, opaque)
        self._arrays = arrays
        """By key text; other leaves are stretches."""
        self._reader = ArrayReader(directory, arrays.__getitem__, files)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        if leaf.key.text in self._arrays:
            return self._reader.read(leaf, region)
        return super().read(leaf, region)


# --- writing ----------------------------------------------------------------------------------------------


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turns what TensorStore and the system raise while something is written into StorageError."""
    try:
        yield
    except STORE_ERRORS as error:
        raise StorageError(
            f"Writing {what} failed: {store_message(error)}",
            hint="Check the free space and the permissions of the destination.",
        ) from error


@lru_cache(maxsize=1 << 14)
def array_definition(zarr: int, dtype: str, shape: Shape, chunks: Shape) -> bytes:
    """The array's metadata as TensorStore writes it: zstd, and in version 3 a CRC-32C over each chunk."""
    import tensorstore as ts

    metadata: dict[str, Any] = {"shape": shape}
    if zarr == 2:
        metadata |= {"chunks": chunks, "compressor": {"id": "zstd", "level": 1}}
    else:
        zstd = {"name": "zstd", "configuration": {"level": 1}}
        metadata["codecs"] = [{"name": "bytes"}, zstd, {"name": "crc32c"}]
        metadata["chunk_grid"] = {"name": "regular", "configuration": {"chunk_shape": chunks}}
    spec = {"driver": DRIVERS[zarr], "kvstore": "memory://", "metadata": metadata}
    array = ts.open(spec, create=True, dtype=ts.dtype(dtype), context=ts.Context()).result()
    assert array.kvstore is not None
    return bytes(array.kvstore.read(FILE_NAMES[zarr]).result().value)


def adopted_metadata(manifest: Manifest, zarr: int) -> dict[str, Any] | None:
    """The metadata of an array of these stored bytes; None where a version of zarr cannot describe them."""
    return zarr2_metadata(manifest) if zarr == 2 else zarr3_metadata(manifest)


def chunk_name(index: Shape, zarr: int) -> str:
    """As the metadata of written arrays has them: `0.1` in version 2, `c/0/1` in version 3."""
    return ".".join(map(str, index)) or "0" if zarr == 2 else "/".join(("c", *map(str, index)))


def put(array: Any, region: Region, block: np.ndarray) -> Any:
    """TensorStore's futures of a block being written; it must not change meanwhile."""
    return array[region.slices].write(block, can_reference_source_data_indefinitely=True)
