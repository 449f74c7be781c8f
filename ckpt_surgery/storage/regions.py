"""Arrays that are written at known places of files: in regions, in any order, from several threads."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.adopting import copy_chunk
from ckpt_surgery.storage.reading import write_region


@dataclass(frozen=True)
class Place:
    """Where an array is written: raw, little endian, in C order."""

    path: Path
    offset: int
    """In the file, which has its full size already."""
    spec: ArraySpec


class Places:
    """The places of all arrays by their keys' text. Thread-safe."""

    def __init__(self, places: Mapping[str, Place]):
        self._places = places

    def __getitem__(self, text: str) -> Place:
        return self._places[text]

    def adopt(self, text: str, chunks: Mapping[Shape, Chunk]) -> None:
        """Copy stored bytes that are `in_one_piece`, inside the kernel where it can.

        Raises StorageError, SourceError.
        """
        place = self._places[text]
        at = place.offset
        for index in sorted(chunks):
            copy_chunk(chunks[index], place.path, at)
            at += chunks[index].length

    def write(self, text: str, region: Region, block: np.ndarray) -> None:
        """Write one region; regions may be of any form. Raises StorageError."""
        place = self._places[text]
        assert (block.dtype, block.shape) == (place.spec.dtype, region.shape)
        put(place, region, block)


def put(place: Place, region: Region, block: np.ndarray) -> None:
    """Write the elements of a region. Raises StorageError."""
    with storage_errors(place.path):
        # Opened for each block: no number of files exhausts the descriptors, and a failure leaves none open.
        descriptor = os.open(place.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_region(descriptor, place.offset, place.spec, region, block)
        finally:
            os.close(descriptor)


def in_one_piece(manifest: Manifest) -> bool:
    """Whether chunks, one after another, are the array: raw, in C order, cut along one axis at most.

    The axes before that one have length 1.
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


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns what the system refuses while a file is written into StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Writing {shown(os.fspath(path))} failed: {error.strerror}",
            hint="Check the free space and the permissions of the destination.",
        ) from error
