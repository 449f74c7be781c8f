"""Parts of stored arrays taken out: whole chunks, or ranges of the bytes of raw ones.

See `ckpt_surgery.core.rewrites` for what holds for every rewrite.
"""

import math
from dataclasses import replace

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, grid_counts
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.rewrites.axes import replaced
from ckpt_surgery.core.selections import Positions

MOST_CHUNKS = 2**20
"""Largest number of chunks in the result of a rewrite that refers to the same chunks repeatedly."""


MOST_PIECES = 256
"""Largest number of pieces that a chunk is cut into, each of which becomes a chunk."""


def take_along(manifest: Manifest, axis: int, positions: Positions) -> Manifest | None:
    """The elements at these positions along an axis: whole chunks, or an interval of raw ones."""
    if (interval := _interval(positions)) is not None:
        return sliced(manifest, axis, *interval)
    if len(positions) == 0:
        return manifest if manifest.spec.shape[axis] == 0 else None
    numbers = _whole_chunks(positions, manifest.chunk_shape[axis])
    if numbers is None:
        return None
    spec = ArraySpec(replaced(manifest.spec.shape, axis, len(positions)), manifest.spec.dtype)
    if math.prod(grid_counts(spec.shape, manifest.chunk_shape)) > max(MOST_CHUNKS, len(manifest.chunks)):
        return None
    targets: dict[int, list[int]] = {}
    for target, number in enumerate(numbers):
        targets.setdefault(number, []).append(target)
    chunks = {
        replaced(index, axis, target): chunk
        for index, chunk in manifest.chunks.items()
        for target in targets.get(index[axis], ())
    }
    return replace(manifest, spec=spec, chunks=chunks)


def _interval(positions: Positions) -> tuple[int, int] | None:
    """The first position and the last plus one, where positions are consecutive; else None."""
    if len(positions) == 0:
        return None
    first, length = int(positions[0]), len(positions)
    if isinstance(positions, range):
        return (first, first + length) if length == 1 or positions.step == 1 else None
    return (first, first + length) if np.array_equal(positions, np.arange(first, first + length)) else None


def _whole_chunks(positions: Positions, length: int) -> list[int] | None:
    """Numbers of the chunks whose positions these are, chunk after chunk; the last one may end early."""
    if isinstance(positions, range) and length > 1:
        return None
    array = np.asarray(positions)
    starts = array[::length]
    covered = (starts[:, None] + np.arange(min(length, len(array)))).ravel()[: len(array)]
    whole = not (starts % length).any() and np.array_equal(array, covered)
    return [int(start) // length for start in starts] if whole else None


def sliced(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest | None:
    """`start <= position < stop` of an axis, at least one.

    Possible from the beginning of a chunk on, and anywhere in raw chunks that are divisible along the axis.
    """
    length, chunk = manifest.spec.shape[axis], manifest.chunk_shape[axis]
    if (start, stop) == (0, length):
        return manifest
    ends_whole = stop % chunk == 0 or stop == length
    if start % chunk == 0 and ends_whole:
        return _from_chunk(manifest, axis, start, stop)
    if start // chunk == (stop - 1) // chunk and _divisible(manifest, axis):
        return _within_chunk(manifest, axis, start, stop)
    if start % chunk:
        cut = shortened(manifest, axis, math.gcd(chunk, start))
        return cut and _from_chunk(cut, axis, start, stop)
    # Bytes beyond the end waste space: accept at most as many of them as there are bytes in use.
    stored = -(-(stop - start) // chunk) * chunk
    return _from_chunk(manifest, axis, start, stop) if stored <= 2 * (stop - start) else None


def _from_chunk(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest:
    """A slice that starts with a chunk; its last chunk may extend beyond the slice."""
    length = manifest.chunk_shape[axis]
    first, end = start // length, -(-stop // length)
    spec = ArraySpec(replaced(manifest.spec.shape, axis, stop - start), manifest.spec.dtype)
    chunks = {
        replaced(index, axis, index[axis] - first): chunk
        for index, chunk in manifest.chunks.items()
        if first <= index[axis] < end
    }
    return replace(manifest, spec=spec, chunks=chunks)


def _within_chunk(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest:
    """A slice that starts and ends within one divisible chunk: ranges of the chunks' bytes."""
    length, size = manifest.chunk_shape[axis], stop - start
    number, first = divmod(start, length)
    step = manifest.chunk_nbytes // length
    chunks = {
        replaced(index, axis, 0): _part(chunk, first * step, size * step)
        for index, chunk in manifest.chunks.items()
        if index[axis] == number
    }
    spec = ArraySpec(replaced(manifest.spec.shape, axis, size), manifest.spec.dtype)
    return Manifest(spec, replaced(manifest.chunk_shape, axis, size), manifest.codec, chunks)


def shortened(manifest: Manifest, axis: int, length: int) -> Manifest | None:
    """The same array in chunks of `length` along an axis, which divides their present length.

    None where the chunks cannot be divided, or into too many pieces.
    """
    pieces = manifest.chunk_shape[axis] // length
    if pieces == 1:
        return manifest
    if pieces > MOST_PIECES or not _divisible(manifest, axis):
        return None
    size, count = manifest.chunk_nbytes // pieces, -(-manifest.spec.shape[axis] // length)
    chunks = {
        replaced(index, axis, index[axis] * pieces + piece): _part(chunk, piece * size, size)
        for index, chunk in manifest.chunks.items()
        for piece in range(min(pieces, count - index[axis] * pieces))
    }
    return replace(manifest, chunk_shape=replaced(manifest.chunk_shape, axis, length), chunks=chunks)


def _divisible(manifest: Manifest, axis: int) -> bool:
    """Whether ranges of a chunk's bytes are ranges of its elements along this axis."""
    whole = manifest.chunk_nbytes
    return (
        manifest.codec.raw
        and manifest.long_axes[:1] == (axis,)
        and all(chunk.length == whole for chunk in manifest.chunks.values())
    )


def _part(chunk: Chunk, start: int, length: int) -> Chunk:
    inline = None if chunk.inline is None else chunk.inline[start : start + length]
    return replace(chunk, offset=chunk.offset + start, length=length, inline=inline)
