"""Arrays whose place in a file is known before they are written.

They are written in regions, in any order, from several threads and processes.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.protocols import NONE_KNOWN, Output, TaskResult
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import opened, read_region, write_region


@dataclass(frozen=True)
class PreallocatedArray:
    """Room for an array in a file that has its full size: little endian, in C order, not compressed."""

    path: Path
    offset: int
    """Offset of the first element in the file, in bytes."""
    spec: ArraySpec

    def write(self, region: Region, block: np.ndarray) -> None:
        """Write the elements of a region of any form. Raises StorageError."""
        assert (block.dtype, block.shape) == (self.spec.dtype, region.shape)
        with storage_errors(self.path):
            # Opened for each block: many files do not exhaust the descriptors, and failures leave none open.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                write_region(descriptor, self.offset, self.spec, region, block)
            finally:
                os.close(descriptor)

    def copy(self, manifest: Manifest, known: Mapping[Shape, int]) -> dict[Shape, int]:
        """Copy the stored bytes of an array whose chunks `are_contiguous`; returns their checksums.

        `known`: those of chunks that an earlier process copied. Raises StorageError, and SourceError where
        the stored bytes cannot be read.
        """
        at, crcs = self.offset, {}
        for index, chunk in in_order(manifest):
            crcs[index] = copy_chunk(chunk, self.path, ((at, chunk.length),), known.get(index))
            at += chunk.length
        return crcs

    def read(self, region: Region) -> np.ndarray:
        """The elements of a region. Raises SourceError where the file has ended before."""
        with opened(os.fspath(self.path)) as file:
            return read_region(file, self.offset, self.spec, region)


class PreallocatedWriter:
    """A `Writer` of preallocated arrays. It buffers nothing. Safe to use from several threads."""

    def __init__(self, arrays: Mapping[str, PreallocatedArray]):
        self._arrays = arrays
        """Every preallocated array by the text of its leaf's key."""

    def adopt(self, output: Output, known: Mapping[Shape, int] = NONE_KNOWN) -> TaskResult:
        """Copy stored bytes. Raises StorageError, SourceError."""
        assert output.stored is not None
        return TaskResult(self._arrays[output.leaf.key.text].copy(output.stored, known))

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form. Raises StorageError."""
        self._arrays[output.leaf.key.text].write(region, block)

    def read(self, output: Output, region: Region) -> np.ndarray:
        """The elements of a region, as they are in the file. Raises SourceError."""
        return self._arrays[output.leaf.key.text].read(region)

    def flush(self) -> None:
        """Return at once: everything is in the files already."""

    def files(self, output: Output, region: Region) -> Iterable[str]:
        """The file that has the array."""
        return [str(self._arrays[output.leaf.key.text].path)]


def are_contiguous(manifest: Manifest) -> bool:
    """Whether the chunks, one after another, are the array's elements in C order, not compressed.

    This is so only if the array is cut along at most one axis, and all axes before that one have length 1.
    """
    if not manifest.stores_values:
        return False
    shape = manifest.spec.shape
    cut = [axis for axis, (n, c) in enumerate(zip(shape, manifest.chunk_shape, strict=True)) if c < n]
    return not cut or (len(cut) == 1 and all(n == 1 for n in shape[: cut[0]]))


def in_order(manifest: Manifest) -> Sequence[tuple[Shape, Chunk]]:
    """The chunks of an array with their indices, in C order."""
    return sorted(manifest.chunks.items(), key=itemgetter(0))
