"""Stored arrays put together, stacked or one after another, where each chunk stays a chunk."""

import itertools
import math
from collections.abc import Sequence

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.manifests import Codec, Manifest
from ckpt_surgery.core.rewrites.axes import canonical_codec, inserted, replaced, restored
from ckpt_surgery.core.rewrites.taking import shortened


def stacked(manifests: Sequence[Manifest], axis: int, places: Sequence[int]) -> Manifest | None:
    """Arrays of one shape and type along a new axis, the i-th at `places[i]`; each chunk stays a chunk."""
    first, codec = manifests[0], canonical_codec(manifests[0])
    if codec is None or not all(_alike(first, codec, other) for other in manifests[1:]):
        return None
    axes = tuple(old + (old >= axis) for old in codec.permutation)
    codec = restored(codec, (axis, *axes), (None, *range(len(axes))))
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
    length = _common_length([(m.spec.shape[axis], m.chunk_shape[axis]) for m in parts])
    cut = [piece for part in parts if (piece := shortened(part, axis, length)) is not None]
    codec = canonical_codec(cut[0]) if cut else None
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
    """The longest chunk length that the chunks of every part, (length, chunk length), can be cut to."""
    lengths, chunks = [length for length, _ in parts[:-1]], {chunk for _, chunk in parts}
    if len(chunks) == 1 and not any(length % min(chunks) for length in lengths):
        return min(chunks)
    return math.gcd(*lengths, *chunks)
