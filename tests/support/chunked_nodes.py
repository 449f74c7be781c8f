"""Stored arrays of known chunks without bytes, and trees of functions over them."""

import numpy as np
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Codec, Manifest, bytes_codec, encoding_of, raw_codec
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.layout import Transpose
from tests.support.strategies import chunk_shapes, shapes

F32 = np.dtype(np.float32)
MIB = 1 << 20


def leaf(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype = F32) -> Read:
    """A stored array without bytes, of chunks that are decoded as a whole."""
    spec = ArraySpec(shape, dtype)
    zstd = encoding_of([bytes_codec("little"), {"name": "zstd"}])
    manifest = Manifest(spec, chunks, Codec("zstd", tuple(range(len(shape))), zstd), {})
    return Read("source", Leaf(Key.parse("a"), LeafKind.ARRAY, spec, manifest))


def raw_leaf(shape: tuple[int, ...], order: str = "C") -> Read:
    """A stored array that is one raw chunk, without bytes."""
    spec, axes = ArraySpec(shape, F32), tuple(range(len(shape)))
    codec = Codec("raw", axes if order == "C" else axes[::-1], raw_codec(len(shape)).encoding)
    return Read("source", Leaf(Key.parse("a"), LeafKind.ARRAY, spec, Manifest(spec, shape, codec, {})))


SHAPES = shapes(40, 1, max_ndim=3)


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    shape = draw(SHAPES)
    node: Node = leaf(shape, draw(chunk_shapes(shape)))
    for function in draw(st.lists(st.sampled_from([Transpose(), Cast(np.dtype(np.float64))]), max_size=3)):
        node = Apply(function, (node,))
    return node
