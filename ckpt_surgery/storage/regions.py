"""Arrays whose place in a file is known before they are written.

They are written in regions, in any order, from several threads and processes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.failures import storage_errors
from ckpt_surgery.storage.reading import write_region


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

    def copy(self, manifest: Manifest) -> None:
        """Copy the stored bytes of an array whose chunks `are_contiguous`, inside the kernel where it can.

        Raises StorageError, and SourceError where the stored bytes cannot be read.
        """
        at = self.offset
        for chunk in in_order(manifest):
            copy_chunk(chunk, self.path, at)
            at += chunk.length


class PreallocatedWriter:
    """A `Writer` of preallocated arrays. It buffers nothing. Safe to use from several threads."""

    def __init__(self, arrays: Mapping[str, PreallocatedArray]):
        self._arrays = arrays
        """Every preallocated array by the text of its leaf's key."""

    def adopt(self, output: Output) -> None:
        """Copy stored bytes, inside the kernel where it can. Raises StorageError, SourceError."""
        assert output.stored is not None
        self._arrays[output.leaf.key.text].copy(output.stored)

    def write(self, output: Output, region: Region, block: np.ndarray) -> None:
        """Write one region, which may have any form. Raises StorageError."""
        self._arrays[output.leaf.key.text].write(region, block)

    def flush(self) -> None:
        """Return at once: everything is in the files already."""


def are_contiguous(manifest: Manifest) -> bool:
    """Whether the chunks, one after another, are the array's elements in C order, not compressed.

    This is so only if the array is cut along at most one axis, and all axes before that one have length 1.
    """
    shape, chunks = manifest.spec.shape, manifest.chunk_shape
    axes = manifest.long_axes
    if (
        not manifest.codec.raw
        or list(axes) != sorted(axes)
        or any(n % c for n, c in zip(shape, chunks, strict=True))
    ):
        return False
    cut = [axis for axis, (n, c) in enumerate(zip(shape, chunks, strict=True)) if c < n]
    whole = all(c.length == manifest.chunk_nbytes for c in manifest.chunks.values())
    return whole and (not cut or (len(cut) == 1 and all(n == 1 for n in shape[: cut[0]])))


def in_order(manifest: Manifest) -> Sequence[Chunk]:
    """The chunks of an array in C order."""
    return [manifest.chunks[index] for index in sorted(manifest.chunks)]
