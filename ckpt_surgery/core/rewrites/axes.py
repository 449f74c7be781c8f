"""The order of the axes of stored arrays: what a transpose, a new axis or a removed one does to a codec."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.manifests import Codec, Manifest, encoding_of

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

    codec = manifest.codec
    return Manifest(
        ArraySpec(moved(manifest.spec.shape), manifest.spec.dtype),
        moved(manifest.chunk_shape),
        replace(codec, permutation=tuple(axes.index(axis) for axis in codec.permutation)),
        {moved(index): chunk for index, chunk in manifest.chunks.items()},
    )


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
