"""Tensors whose chunks no regular grid describes: boxes of any sizes, or elements in any order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.formats.shared.chunk_reading import read_stored
from ckpt_surgery.formats.shared.torch.views import View, read_view
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import opened


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tensor, and where its elements are: a manifest where they are one block of bytes."""

    region: Region
    stored: Manifest | View


@dataclass(frozen=True)
class Pieces:
    """A tensor in boxes that hold each of its elements exactly once."""

    spec: ArraySpec
    pieces: Sequence[Piece]

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """First indices of the boxes, and those behind the last, as int64[boxes, axes]."""
        shape = (len(self.pieces), self.spec.ndim)
        starts = np.array([piece.region.starts for piece in self.pieces], np.int64).reshape(shape)
        return starts, np.array([piece.region.stops for piece in self.pieces], np.int64).reshape(shape)

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region, in C order.

        `files`: size and time of the files when they were listed, by path. Raises SourceError where bytes
        are missing, files have changed, or booleans are neither 0 nor 1.
        """
        block: np.ndarray = np.empty(region.shape, self.spec.dtype)
        starts, stops = self._bounds
        touched = ((starts < region.stops) & (stops > region.starts)).all(axis=1)
        for number in np.flatnonzero(touched).tolist() if block.size else ():
            piece = self.pieces[number]
            common = piece.region.common(region)
            assert common is not None
            inner = common.moved(tuple(-start for start in piece.region.starts))
            block[common.within(region)] = self._part(piece, inner, files)
        return block

    def _part(self, piece: Piece, inner: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        """The elements of a region of a piece; the region counts from the beginning of the piece."""
        if isinstance(piece.stored, Manifest):
            return read_stored(piece.stored, inner, files)
        with opened(piece.stored.file, files[piece.stored.file]) as file:
            return read_view(file, piece.stored, ArraySpec(piece.region.shape, self.spec.dtype), inner)


def on_grid(spec: ArraySpec, pieces: Sequence[Piece]) -> Manifest | None:
    """The manifest of a tensor; None where its chunks differ in shape or layout, or do not end where it does.

    The pieces hold each element exactly once, so boxes of one shape are a grid.
    """
    first = pieces[0].stored
    if not isinstance(first, Manifest):
        return None
    chunks = {}
    for piece in pieces:
        stored = piece.stored
        if not isinstance(stored, Manifest) or (stored.spec, stored.codec) != (first.spec, first.codec):
            return None
        (chunks[_cell(piece.region.starts, first.chunk_shape)],) = stored.chunks.values()
    return Manifest(spec, first.chunk_shape, first.codec, chunks)


def _cell(starts: Shape, lengths: Shape) -> Shape:
    return tuple(start // length for start, length in zip(starts, lengths, strict=True))
