"""Other axes, shapes and types of the same stored elements, and what they do to a codec."""

import functools
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec, Shape, grid_counts, ravelled, unravelled
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, encoding_of

StoredAxes = tuple[int | None, ...]
"""For each stored axis of the new chunks, the stored axis of the old ones that it comes from, or None."""


def replaced(shape: Shape, axis: int, value: int) -> Shape:
    """`shape` with another value at `axis`."""
    return (*shape[:axis], value, *shape[axis + 1 :])


def inserted(shape: Shape, axis: int, value: int) -> Shape:
    """`shape` with one more axis, before the one at `axis`."""
    return (*shape[:axis], value, *shape[axis:])


def transposed(manifest: Manifest, axes: tuple[int, ...]) -> Manifest:
    """The same chunks with axis `axes[i]` as axis `i`: only the numbering of the stored axes changes."""

    def moved(shape: Shape) -> Shape:
        return tuple(shape[axis] for axis in axes)

    codec = replace(manifest.codec, permutation=tuple(map(axes.index, manifest.codec.permutation)))
    spec = ArraySpec(moved(manifest.spec.shape), manifest.spec.dtype)
    chunks = {moved(index): chunk for index, chunk in manifest.chunks.items()}
    return Manifest(spec, moved(manifest.chunk_shape), codec, chunks)


def canonical_codec(manifest: Manifest) -> Codec | None:
    """The codec with axes of chunk length 1 stored outermost, in order: their place makes no difference.

    Chunks with the same bytes then have the same codec. None where the encoding is not known well enough.
    """
    codec, long = manifest.codec, manifest.long_axes
    permutation = (*(axis for axis in range(manifest.spec.ndim) if axis not in long), *long)
    return restored(codec, permutation, tuple(map(codec.permutation.index, permutation)))


def restored(codec: Codec, permutation: tuple[int, ...], places: StoredAxes) -> Codec | None:
    """`codec` for chunks whose stored axis `k` was the stored axis `places[k]`, or is new where that is None.

    Axes that are new, left out or moved past others must have the length 1 in a chunk. None where the
    encoding cannot be rewritten.
    """
    if codec.bytewise or places == tuple(range(len(codec.permutation))):
        return replace(codec, permutation=permutation)
    encoding = _moved_encoding(codec.encoding, places)
    return None if encoding is None else replace(codec, permutation=permutation, encoding=encoding)


BYTE_CODECS = ("bytes", "blosc", "crc32c", "gzip", "zstd")
"""Codecs of plain bytes, to which the shape of the chunk does not matter."""


@functools.lru_cache(maxsize=1024)
def _moved_encoding(encoding: str, places: StoredAxes) -> str | None:
    codecs = _moved_codecs(json.loads(encoding), places)
    return None if codecs is None else encoding_of(codecs)


def _moved_codecs(codecs: Sequence[dict[str, Any]], places: StoredAxes) -> list[dict[str, Any]] | None:
    moved: list[dict[str, Any]] = []
    for codec in codecs:
        if codec.get("name") == "transpose" and isinstance(codec["configuration"]["order"], list):
            codec, places = _moved_transpose(codec, places)
        elif codec.get("name") == "sharding_indexed":
            shards = _moved_shards(codec, places)
            if shards is None:
                return None
            codec = shards
        elif codec.get("name") not in BYTE_CODECS:
            return None
        moved.append(codec)
    return moved


def _moved_transpose(codec: dict[str, Any], places: StoredAxes) -> tuple[dict[str, Any], StoredAxes]:
    """A transpose within shards with the new axes in front, and the stored axes of its result."""
    order = codec["configuration"]["order"]
    new = [k for k, place in enumerate(places) if place is None]
    now = {place: k for k, place in enumerate(places) if place is not None}
    kept = [place for place in order if place in now]
    after: StoredAxes = (*(None for _ in new), *(order.index(place) for place in kept))
    moved = [*new, *(now[place] for place in kept)]
    return codec | {"configuration": codec["configuration"] | {"order": moved}}, after


def _moved_shards(codec: dict[str, Any], places: StoredAxes) -> dict[str, Any] | None:
    """Shards with the same inner chunks in the same order; only axes of length 1 of their index differ."""
    configuration = codec["configuration"]
    inner = _moved_codecs(configuration["codecs"], places)
    plain = all(step["name"] in BYTE_CODECS for step in configuration["index_codecs"])
    if inner is None or not plain:
        return None
    shape = [1 if place is None else configuration["chunk_shape"][place] for place in places]
    return codec | {"configuration": configuration | {"chunk_shape": shape, "codecs": inner}}


# --- reshaping ----------------------------------------------------------------------------------------------


def matching_axes(old: Shape, new: Shape) -> list[tuple[int, int]]:
    """Axes at which both shapes, which have no lengths of 0, can be cut into matching parts of equal sizes.

    Returns (axis of `old`, axis of `new`) for every cut of the finest such split, from (0, 0) to the ends.
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
class _ChunkGroup:
    """Neighbouring axes, and the axes with the same number of elements that a reshape makes of them."""

    old: range
    new: range
    chunks: Shape
    """Chunk lengths of the new axes, with which each chunk has the same elements in the same order."""
    kept: bool
    """Whether chunks keep the old axes, apart from those of chunk length 1."""


def reshaped(manifest: Manifest, shape: Shape) -> Manifest | None:
    """The same elements in C order in another shape. None where chunks would not be chunks of that shape."""
    if shape == manifest.spec.shape:
        return manifest
    if 0 in shape:
        return None
    cuts = itertools.pairwise(matching_axes(manifest.spec.shape, shape))
    found = [_part_of(range(i, end), range(j, new_end), manifest, shape) for (i, j), (end, new_end) in cuts]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    chunk_shape = tuple(length for part in parts for length in part.chunks)
    codec = _reshaped_codec(manifest, parts, chunk_shape)
    if codec is None:
        return None
    chunks = _reshaped_chunks(manifest, parts, shape, chunk_shape)
    return Manifest(ArraySpec(shape, manifest.spec.dtype), chunk_shape, codec, chunks)


def _part_of(old: range, new: range, manifest: Manifest, shape: Shape) -> _ChunkGroup | None:
    """One group of axes of a reshape. None where chunks of the old axes are not chunks of the new ones."""
    axes = [(manifest.spec.shape[axis], manifest.chunk_shape[axis]) for axis in old]
    lengths = shape[new.start : new.stop]
    if any(length == 1 < chunk for length, chunk in axes):
        return None
    axes = [(length, chunk) for length, chunk in axes if length > 1]
    if [length for length, _ in axes] == [length for length in lengths if length > 1]:
        chunks = iter(chunk for _, chunk in axes)
        same = tuple(next(chunks) if length > 1 else 1 for length in lengths)
        return _ChunkGroup(old, new, same, kept=True)
    long = list(itertools.dropwhile(lambda axis: axis[1] == 1, axes))
    if long and (long[0][0] % long[0][1] or any(length != chunk for length, chunk in long[1:])):
        return None  # elements of a chunk are not consecutive in C order, or the last chunk is shorter
    run = math.prod(chunk for _, chunk in long)
    box = _box(run, lengths)
    return None if box is None else _ChunkGroup(old, new, box, kept=run == 1)


def _box(run: int, lengths: Shape) -> Shape | None:
    """Chunk lengths that give chunks of `run` consecutive elements; None where there are none."""
    chunks: list[int] = []
    for length in reversed(lengths):
        chunk = math.gcd(run, length)
        if chunk != run and chunk != length:
            return None
        chunks.append(chunk)
        run //= chunk
    return tuple(reversed(chunks)) if run == 1 else None


def _reshaped_codec(manifest: Manifest, parts: Sequence[_ChunkGroup], chunk_shape: Shape) -> Codec | None:
    """The codec after a reshape. None where axes of a group are not stored next to each other, in order."""
    codec = canonical_codec(manifest)
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
    return restored(codec, (*short, *long), places)


def _reshaped_chunks(
    manifest: Manifest, parts: Sequence[_ChunkGroup], shape: Shape, chunk_shape: Shape
) -> dict[Shape, Chunk]:
    """The chunks under their new indices: within each group their numbers in C order stay the same."""
    old = grid_counts(manifest.spec.shape, manifest.chunk_shape)
    new = grid_counts(shape, chunk_shape)

    def moved(index: Shape) -> Shape:
        stored: list[int] = []
        for part in parts:
            inner = slice(part.old.start, part.old.stop)
            number = ravelled(index[inner], old[inner])
            stored += unravelled(number, new[part.new.start : part.new.stop])
        return tuple(stored)

    return {moved(index): chunk for index, chunk in manifest.chunks.items()}


def reinterpreted(manifest: Manifest, spec: ArraySpec) -> Manifest | None:
    """The same bytes as another type; where item sizes differ, the last axis of `spec` differs in length.

    None where the bytes are not little-endian elements with that axis innermost.
    """
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
    codec = replace(manifest.codec, permutation=(*short, *others, last))
    chunk_shape = replaced(manifest.chunk_shape, last, manifest.chunk_shape[last] * old // new)
    return Manifest(spec, chunk_shape, codec, manifest.chunks)
