"""Parts of stored arrays taken out, as whole chunks or ranges of the bytes of raw ones, and arrays joined."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, grid_counts
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest
from ckpt_surgery.core.rewrites.axes import canonical_codec, inserted, replaced, restored
from ckpt_surgery.core.selections import Positions

MOST_CHUNKS = 2**20
"""Largest number of chunks in the result of a rewrite that refers to the same chunks repeatedly."""
MOST_PIECES = 256
"""Largest number of pieces that a chunk is cut into, each of which becomes a chunk."""


def take_along(manifest: Manifest, axis: int, positions: Positions) -> Manifest | None:
    """The elements at these positions along an axis: whole chunks, or an interval of raw ones."""
    if len(positions) == 0:
        return manifest if manifest.spec.shape[axis] == 0 else None
    first, stop = int(positions[0]), int(positions[0]) + len(positions)
    if isinstance(positions, range):
        consecutive = positions == range(first, stop)
    else:
        consecutive = np.array_equal(positions, np.arange(first, stop))
    if consecutive:
        return sliced(manifest, axis, first, stop)
    numbers = _whole_chunks(positions, manifest.chunk_shape[axis])
    if numbers is None:
        return None
    spec = ArraySpec(replaced(manifest.spec.shape, axis, len(positions)), manifest.spec.dtype)
    if math.prod(grid_counts(spec.shape, manifest.chunk_shape)) > max(MOST_CHUNKS, len(manifest.chunks)):
        return None
    targets: dict[int, list[int]] = {}
    for target, number in enumerate(numbers):
        targets.setdefault(number, []).append(target)
    held = ((index, chunk, targets.get(index[axis], ())) for index, chunk in manifest.chunks.items())
    chunks = {replaced(index, axis, target): chunk for index, chunk, many in held for target in many}
    return replace(manifest, spec=spec, chunks=chunks)


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
    held = ((index, chunk) for index, chunk in manifest.chunks.items() if first <= index[axis] < end)
    chunks = {replaced(index, axis, index[axis] - first): chunk for index, chunk in held}
    return replace(manifest, spec=spec, chunks=chunks)


def _within_chunk(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest:
    """A slice that starts and ends within one divisible chunk: ranges of the chunks' bytes."""
    length, size = manifest.chunk_shape[axis], stop - start
    number, first = divmod(start, length)
    step = manifest.chunk_nbytes // length
    held = ((index, chunk) for index, chunk in manifest.chunks.items() if index[axis] == number)
    chunks = {replaced(index, axis, 0): _part(chunk, first * step, size * step) for index, chunk in held}
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
    if not manifest.codec.raw or manifest.long_axes[:1] != (axis,):
        return False
    whole = manifest.chunk_nbytes
    return all(chunk.length == whole for chunk in manifest.chunks.values())


def _part(chunk: Chunk, start: int, length: int) -> Chunk:
    inline = None if chunk.inline is None else chunk.inline[start : start + length]
    return replace(chunk, offset=chunk.offset + start, length=length, inline=inline)


def stacked(manifests: Sequence[Manifest], axis: int, places: Sequence[int]) -> Manifest | None:
    """Arrays of one shape and type along a new axis, the i-th at `places[i]`; each chunk stays a chunk."""
    first, codec = manifests[0], canonical_codec(manifests[0])
    if codec is None or not all(_alike(first, codec, other) for other in manifests[1:]):
        return None
    axes = tuple(old + (old >= axis) for old in codec.permutation)
    codec = restored(codec, (axis, *axes), (None, *range(len(axes))))
    if codec is None:
        return None
    spec = ArraySpec(inserted(first.spec.shape, axis, len(manifests)), first.spec.dtype)
    held = ((p, *item) for p, m in zip(places, manifests, strict=True) for item in m.chunks.items())
    chunks = {inserted(index, axis, place): chunk for place, index, chunk in held}
    return Manifest(spec, inserted(first.chunk_shape, axis, 1), codec, chunks)


def _alike(first: Manifest, codec: Codec, other: Manifest) -> bool:
    """Whether chunks of `other` are stored like those of `first`, whose canonical codec is `codec`."""
    return (other.spec.dtype, other.chunk_shape) == (first.spec.dtype, first.chunk_shape) and (
        other.codec == first.codec or canonical_codec(other) == codec
    )


def concatenated(manifests: Sequence[Manifest], axis: int) -> Manifest | None:
    """Arrays one after another along an axis, each but the last ending with a chunk.

    Raw chunks of different lengths are cut into the longest pieces that make one grid.
    """
    parts = [manifest for manifest in manifests if manifest.spec.shape[axis]]
    if not parts:
        return None
    # The longest chunks that those of every part can be cut to.
    lengths, chunks = [m.spec.shape[axis] for m in parts[:-1]], {m.chunk_shape[axis] for m in parts}
    length = math.gcd(*chunks)
    if len(chunks) > 1 or any(end % length for end in lengths):
        length = math.gcd(length, *lengths)
    cut = [piece for part in parts if (piece := shortened(part, axis, length)) is not None]
    codec = canonical_codec(cut[0]) if cut else None
    if codec is None or len(cut) < len(parts) or not all(_alike(cut[0], codec, other) for other in cut):
        return None
    begins = itertools.accumulate((part.spec.shape[axis] for part in cut), initial=0)
    pairs = zip(cut, begins, strict=False)
    held = ((begin // length, *item) for part, begin in pairs for item in part.chunks.items())
    moved = {replaced(index, axis, index[axis] + begin): chunk for begin, index, chunk in held}
    total = sum(part.spec.shape[axis] for part in cut)
    spec = ArraySpec(replaced(cut[0].spec.shape, axis, total), cut[0].spec.dtype)
    return Manifest(spec, cut[0].chunk_shape, codec, moved)
