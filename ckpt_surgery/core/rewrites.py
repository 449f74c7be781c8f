"""Manifests rewritten: what layout functions do to a stored array whose bytes stay where they are.

Every function here gives the manifest of its result, or None where stored bytes, as they are, cannot be
chunks of it. What holds for each: the result decoded is the function of the input decoded. Chunks at
the edges of an array are as large as all others; what lies beyond the edge is never seen.
"""

import functools
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, encoding_of
from ckpt_surgery.core.selections import Positions

MOST_CHUNKS = 2**20
"""A rewrite that refers to the same chunks again and again makes no more than so many."""
MOST_PIECES = 256
"""A chunk is cut into no more pieces than that: each becomes a chunk of its own."""


def replaced(shape: Shape, axis: int, value: int) -> Shape:
    """`shape` with another value at `axis`."""
    return (*shape[:axis], value, *shape[axis + 1 :])


def inserted(shape: Shape, axis: int, value: int) -> Shape:
    """`shape` with one more axis, in front of what is at `axis`."""
    return (*shape[:axis], value, *shape[axis:])


# Order of axes.


def transposed(manifest: Manifest, axes: tuple[int, ...]) -> Manifest:
    """Axis `i` of the result is axis `axes[i]`: only their names change in what is stored."""

    def moved(shape: Shape) -> Shape:
        return tuple(shape[axis] for axis in axes)

    codec = manifest.codec
    return Manifest(
        ArraySpec(moved(manifest.spec.shape), manifest.spec.dtype),
        moved(manifest.chunk_shape),
        replace(codec, permutation=tuple(axes.index(axis) for axis in codec.permutation)),
        {moved(index): chunk for index, chunk in manifest.chunks.items()},
    )


def _settled(manifest: Manifest) -> Codec | None:
    """The codec with axes of chunk length 1 stored outermost, in order: where they are does not matter.

    What is stored alike has then the same codec. None where that is not known of the encoding.
    """
    codec, long = manifest.codec, manifest.long_axes
    permutation = (*(axis for axis in range(manifest.spec.ndim) if axis not in long), *long)
    return _restored(codec, permutation, tuple(map(codec.permutation.index, permutation)))


def _restored(codec: Codec, permutation: tuple[int, ...], places: tuple[int | None, ...]) -> Codec | None:
    """`codec` for chunks whose stored axis `k` is the stored axis `places[k]`, or, with None, a new one.

    New axes, those left out and those that change sides with another are of length 1 in a chunk.
    """
    if codec.bytewise or places == tuple(range(len(codec.permutation))):
        return replace(codec, permutation=permutation)
    encoding = _moved_encoding(codec.encoding, places)
    return None if encoding is None else replace(codec, permutation=permutation, encoding=encoding)


_OF_BYTES = ("bytes", "blosc", "crc32c", "gzip", "zstd")
"""Codecs that do not know the shape of what they encode."""

Places = tuple[int | None, ...]


@functools.lru_cache(maxsize=1024)
def _moved_encoding(encoding: str, places: Places) -> str | None:
    codecs = _moved_codecs(json.loads(encoding), places)
    return None if codecs is None else encoding_of(codecs)


def _moved_codecs(codecs: Sequence[dict[str, Any]], places: Places) -> list[dict[str, Any]] | None:
    moved: list[dict[str, Any]] = []
    for codec in codecs:
        if codec.get("name") == "transpose" and isinstance(codec["configuration"]["order"], list):
            codec, places = _moved_transpose(codec, places)
        elif codec.get("name") == "sharding_indexed":
            shards = _moved_shards(codec, places)
            if shards is None:
                return None
            codec = shards
        elif codec.get("name") not in _OF_BYTES:
            return None
        moved.append(codec)
    return moved


def _moved_transpose(codec: dict[str, Any], places: Places) -> tuple[dict[str, Any], Places]:
    """A transpose within shards: new axes in front; and the places of its result."""
    order = codec["configuration"]["order"]
    new = [k for k, place in enumerate(places) if place is None]
    now = {place: k for k, place in enumerate(places) if place is not None}
    kept = [place for place in order if place in now]
    after: Places = (*(None for _ in new), *(order.index(place) for place in kept))
    moved = [*new, *(now[place] for place in kept)]
    return codec | {"configuration": codec["configuration"] | {"order": moved}}, after


def _moved_shards(codec: dict[str, Any], places: Places) -> dict[str, Any] | None:
    """Shards of the same inner chunks in the same order: their index has other axes of length 1."""
    configuration = codec["configuration"]
    inner = _moved_codecs(configuration["codecs"], places)
    plain = all(step["name"] in _OF_BYTES for step in configuration["index_codecs"])
    if inner is None or not plain:
        return None
    shape = [1 if place is None else configuration["chunk_shape"][place] for place in places]
    return codec | {"configuration": configuration | {"chunk_shape": shape, "codecs": inner}}


# Putting together.


def stacked(manifests: Sequence[Manifest], axis: int, places: Sequence[int]) -> Manifest | None:
    """Equal arrays along a new axis, the i-th at `places[i]`; each chunk stays a chunk."""
    first, codec = manifests[0], _settled(manifests[0])
    if codec is None or not all(_alike(first, codec, other) for other in manifests[1:]):
        return None
    axes = tuple(old + (old >= axis) for old in codec.permutation)
    codec = _restored(codec, (axis, *axes), (None, *range(len(axes))))
    if codec is None:
        return None
    return Manifest(
        ArraySpec(inserted(first.spec.shape, axis, len(manifests)), first.spec.dtype),
        inserted(first.chunk_shape, axis, 1),
        codec,
        {
            inserted(index, axis, place): chunk
            for place, manifest in zip(places, manifests, strict=True)
            for index, chunk in manifest.chunks.items()
        },
    )


def _alike(first: Manifest, codec: Codec, other: Manifest) -> bool:
    """Whether chunks of `other` are stored as those of `first`, whose settled codec is `codec`."""
    return (other.spec.dtype, other.chunk_shape) == (first.spec.dtype, first.chunk_shape) and (
        other.codec == first.codec or _settled(other) == codec
    )


def concatenated(manifests: Sequence[Manifest], axis: int) -> Manifest | None:
    """Arrays one after another along an axis, each but the last ending with a chunk.

    Raw chunks of different lengths are cut into the longest pieces that make one grid.
    """
    parts = [manifest for manifest in manifests if manifest.spec.shape[axis]]
    if not parts:
        return None
    length = _common_length([(m.spec.shape[axis], m.chunk_shape[axis]) for m in parts])
    cut = [piece for part in parts if (piece := _cut(part, axis, length)) is not None]
    codec = _settled(cut[0]) if cut else None
    if codec is None or len(cut) < len(parts) or not all(_alike(cut[0], codec, other) for other in cut):
        return None
    begins = itertools.accumulate((part.spec.shape[axis] for part in cut), initial=0)
    chunks = {
        replaced(index, axis, index[axis] + begin // length): chunk
        for part, begin in zip(cut, begins, strict=False)
        for index, chunk in part.chunks.items()
    }
    total = sum(part.spec.shape[axis] for part in cut)
    spec = ArraySpec(replaced(cut[0].spec.shape, axis, total), cut[0].spec.dtype)
    return Manifest(spec, cut[0].chunk_shape, codec, chunks)


def _common_length(parts: Sequence[tuple[int, int]]) -> int:
    """A chunk length that (length, chunk length) of every part can be cut to; theirs where it will do."""
    lengths, chunks = [length for length, _ in parts[:-1]], {chunk for _, chunk in parts}
    if len(chunks) == 1 and not any(length % min(chunks) for length in lengths):
        return min(chunks)
    return math.gcd(*lengths, *chunks)


# Taking parts.


def gathered(manifest: Manifest, axis: int, positions: Positions) -> Manifest | None:
    """The elements at these positions along an axis: whole chunks, or a stretch of raw ones."""
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
    """First and one past the last, where each position is one more than that before it."""
    if len(positions) == 0:
        return None
    first, length = int(positions[0]), len(positions)
    if isinstance(positions, range):
        return (first, first + length) if length == 1 or positions.step == 1 else None
    return (first, first + length) if np.array_equal(positions, np.arange(first, first + length)) else None


def _whole_chunks(positions: Positions, length: int) -> list[int] | None:
    """The numbers of the chunks that make up the positions one after another; the last may be a part."""
    if isinstance(positions, range) and length > 1:
        return None
    array = np.asarray(positions)
    starts = array[::length]
    covered = (starts[:, None] + np.arange(min(length, len(array)))).ravel()[: len(array)]
    whole = not (starts % length).any() and np.array_equal(array, covered)
    return [int(start) // length for start in starts] if whole else None


def sliced(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest | None:
    """`start <= position < stop` of an axis, at least one.

    From the beginning of a chunk on, or any stretch of raw chunks that follow each other along the axis.
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
        cut = _cut(manifest, axis, math.gcd(chunk, start))
        return cut and _from_chunk(cut, axis, start, stop)
    # What is stored beyond the end is dead weight: not more than what is alive.
    stored = -(-(stop - start) // chunk) * chunk
    return _from_chunk(manifest, axis, start, stop) if stored <= 2 * (stop - start) else None


def _from_chunk(manifest: Manifest, axis: int, start: int, stop: int) -> Manifest:
    """A slice that starts with a chunk; its last chunk may hold more than is wanted."""
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
    """A slice of divisible chunks that ends in the chunk that it starts in: ranges of their bytes."""
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


def _cut(manifest: Manifest, axis: int, length: int) -> Manifest | None:
    """The same array in shorter chunks: `length`, which divides theirs."""
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


# Other shapes and types of the same elements.


def matching_axes(old: Shape, new: Shape) -> list[tuple[int, int]]:
    """Where both shapes, without lengths of 0, can be cut so that the parts have as many elements each.

    (axis of `old`, axis of `new`) of every cut, from (0, 0) to the ends: the finest such split.
    """
    cuts = [(0, 0)]
    i = j = 0
    while i < len(old) or j < len(new):
        first = i
        size_old, size_new = 1, 1
        while i == first or size_old != size_new:
            if i < len(old) and (size_old <= size_new or j == len(new)):
                size_old, i = size_old * old[i], i + 1
            elif j < len(new):
                size_new, j = size_new * new[j], j + 1
            else:
                break
        cuts.append((i, j))
    return cuts


@dataclass(frozen=True)
class _Part:
    """Neighbouring axes, and those of as many elements that a reshape makes of them."""

    old: range
    new: range
    chunks: Shape
    """Chunk lengths of the new axes: chunk by chunk the same elements in the same order."""
    kept: bool
    """Chunks have the old axes, but for those of chunk length 1."""


def reshaped(manifest: Manifest, shape: Shape) -> Manifest | None:
    """The same elements in C order under another shape, where each chunk is one in the new shape too."""
    if shape == manifest.spec.shape:
        return manifest
    parts = _parts(manifest, shape)
    if parts is None:
        return None
    chunk_shape = tuple(length for part in parts for length in part.chunks)
    codec = _reshaped_codec(manifest, parts, chunk_shape)
    if codec is None:
        return None
    chunks = _reshaped_chunks(manifest, parts, shape, chunk_shape)
    return Manifest(ArraySpec(shape, manifest.spec.dtype), chunk_shape, codec, chunks)


def _parts(manifest: Manifest, shape: Shape) -> list[_Part] | None:
    if 0 in shape:
        return None
    cuts = itertools.pairwise(matching_axes(manifest.spec.shape, shape))
    parts = [_part_of(range(i, end), range(j, new_end), manifest, shape) for (i, j), (end, new_end) in cuts]
    found = [part for part in parts if part is not None]
    return found if len(found) == len(parts) else None


def _part_of(old: range, new: range, manifest: Manifest, shape: Shape) -> _Part | None:
    """One part of a reshape. None where the chunks of the old axes are none of the new ones."""
    axes = [(manifest.spec.shape[axis], manifest.chunk_shape[axis]) for axis in old]
    lengths = shape[new.start : new.stop]
    if any(length == 1 < chunk for length, chunk in axes):
        return None
    axes = [(length, chunk) for length, chunk in axes if length > 1]
    if [length for length, _ in axes] == [length for length in lengths if length > 1]:
        chunks = iter(chunk for _, chunk in axes)
        return _Part(old, new, tuple(next(chunks) if length > 1 else 1 for length in lengths), kept=True)
    run = _run(axes)
    box = None if run is None else _box(run, lengths)
    return None if box is None else _Part(old, new, box, kept=run == 1)


def _run(axes: Sequence[tuple[int, int]]) -> int | None:
    """How many elements, one after another, each chunk of (length, chunk length) has.

    None where the chunks are not such runs, all of one length.
    """
    long = list(itertools.dropwhile(lambda axis: axis[1] == 1, axes))
    if long and (long[0][0] % long[0][1] or any(length != chunk for length, chunk in long[1:])):
        return None
    return math.prod(chunk for _, chunk in long)


def _box(run: int, lengths: Shape) -> Shape | None:
    """Chunk lengths that make chunks of so many elements one after another; None: there are none."""
    chunks: list[int] = []
    for length in reversed(lengths):
        chunk = math.gcd(run, length)
        if chunk != run and chunk != length:
            return None
        chunks.append(chunk)
        run //= chunk
    return tuple(reversed(chunks)) if run == 1 else None


def _reshaped_codec(manifest: Manifest, parts: Sequence[_Part], chunk_shape: Shape) -> Codec | None:
    """The codec after a reshape. None where axes of a part are not stored next to each other, in order."""
    codec = _settled(manifest)
    number = {axis: i for i, part in enumerate(parts) for axis in part.old}
    runs = [(i, list(axes)) for i, axes in itertools.groupby(manifest.long_axes, number.__getitem__)]
    if len({i for i, _ in runs}) < len(runs) or any(axes != sorted(axes) for _, axes in runs):
        return None
    if codec is None or not (codec.bytewise or all(part.kept for part in parts)):
        return None
    long = [axis for i, _ in runs for axis in parts[i].new if chunk_shape[axis] > 1]
    short = [axis for axis in range(len(chunk_shape)) if axis not in long]
    old_ndim = manifest.spec.ndim
    places = (*(None for _ in short), *range(old_ndim - len(manifest.long_axes), old_ndim))
    return _restored(codec, (*short, *long), places)


def _reshaped_chunks(
    manifest: Manifest, parts: Sequence[_Part], shape: Shape, chunk_shape: Shape
) -> dict[Shape, Chunk]:
    """Chunks are numbered alike in C order within each part."""
    old = grid_counts(manifest.spec.shape, manifest.chunk_shape)
    new = grid_counts(shape, chunk_shape)

    def moved(index: Shape) -> Shape:
        found: list[int] = []
        for part in parts:
            number = 0
            for axis in part.old:
                number = number * old[axis] + index[axis]
            within: list[int] = []
            for axis in reversed(part.new):
                number, i = divmod(number, new[axis])
                within.append(i)
            found += reversed(within)
        return tuple(found)

    return {moved(index): chunk for index, chunk in manifest.chunks.items()}


def reinterpreted(manifest: Manifest, spec: ArraySpec) -> Manifest | None:
    """The same bytes as another type; where item sizes differ, the last axis of `spec` has another length."""
    old, new = manifest.spec.dtype.itemsize, spec.dtype.itemsize
    if not manifest.codec.little:
        return None
    if old == new:
        return replace(manifest, spec=spec)
    last, others = spec.ndim - 1, tuple(axis for axis in manifest.long_axes if axis != spec.ndim - 1)
    in_place = manifest.long_axes in (others, (*others, last))
    if not in_place or manifest.chunk_shape[last] * old % new:
        return None
    short = (axis for axis in range(last) if axis not in others)
    return Manifest(
        spec,
        replaced(manifest.chunk_shape, last, manifest.chunk_shape[last] * old // new),
        replace(manifest.codec, permutation=(*short, *others, last)),
        manifest.chunks,
    )
