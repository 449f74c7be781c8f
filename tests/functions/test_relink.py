"""Manifests rewritten by functions, against the functions themselves on the arrays."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import bits, dtype_named
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Codec, Manifest
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.dtypes import Bitcast
from ckpt_surgery.functions.indexing import Index, Item, expand_dims, flip, repeat, squeeze, take, tile
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Reshape, Transpose, rearrange
from ckpt_surgery.graph.walks import Spare, relinked
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import Changed, by, changed
from tests.support.stored_arrays import Files, codec_of, decoded, sharded_codec, store

ALL = (None, None, None)
F32 = dtype_named("float32")


class Checkpoint:
    """Leaves in memory, and what they hold."""

    def __init__(self) -> None:
        self.files: Files = {}
        self.arrays: list[np.ndarray] = []

    def leaf(self, dtype: str, shape: Shape, chunk_shape: Shape, codec: Codec) -> Read:
        number = len(self.arrays)
        size = int(np.prod(shape, dtype=int)) * dtype_named(dtype).itemsize
        # Bytes that differ from their neighbours and from those of other leaves.
        data = (np.arange(size) * 7 + number * 31).astype(np.uint8)
        self.arrays.append(data.view(dtype_named(dtype)).reshape(shape))
        manifest = store(self.arrays[-1], chunk_shape, codec, str(number), self.files)
        return Read("base", Leaf(Key.parse(str(number)), LeafKind.ARRAY, manifest.spec, manifest))

    def value(self, node: Node) -> np.ndarray:
        if isinstance(node, Read):
            return self.arrays[int(node.leaf.key.text)]
        return evaluate(node.function, [self.value(child) for child in node.inputs])

    def check(self, node: Node) -> Manifest | None:
        """The law: the node's manifest, if there is one, decodes to its value."""
        found = relinked(node, Spare())
        if found is not None:
            assert found.spec == node.spec
            assert same(decoded(found, self.files), self.value(node))
        return found


# What has to be possible.

Stored = tuple[str, Shape, Shape, str, tuple[int, ...]]
"""Dtype, shape, chunk shape, codec, permutation."""

MATRIX: Stored = ("bfloat16", (6, 4), (6, 4), "raw", (0, 1))
GRID: Stored = ("float32", (7, 10), (2, 4), "zlib", (0, 1))
SHARDS: Stored = ("bfloat16", (8, 6), (4, 6), "sharded", (0, 1))
ROWS: Stored = ("int8", (5, 4), (1, 3), "zlib", (1, 0))
COLUMNS: Stored = ("int8", (6, 3, 4), (4, 1, 4), "zlib", (0, 1, 2))
PARTS: Stored = ("int16", (12, 3), (4, 3), "raw", (0, 1))
EXPERTS: Stored = ("int8", (6, 8, 4), (1, 4, 4), "sharded", (0, 1, 2))


def along(start: int | None, stop: int | None, step: int | None = None) -> Index:
    """`x[start:stop:step]`"""
    return Index(((start, stop, step),))


def then(*functions: Changed) -> Callable[[list[Node]], Node]:
    """The first of all leaves, each further one of the result."""
    first, *rest = functions
    return lambda leaves: functools.reduce(lambda node, f: changed(f, node), rest, changed(first, *leaves))


LINKED: list[tuple[str, Stored, int, Callable[[list[Node]], Node]]] = [
    ("concat", ("int8", (8, 6), (4, 4), "zlib", (0, 1)), 3, then(Concat())),
    ("concat of shards", SHARDS, 2, then(Concat(0))),
    ("concat of rows cut finer", MATRIX, 2, lambda x: then(Concat())([then(along(0, 4))(x[:1]), x[1]])),
    ("x[i] on a chunk boundary", ("int8", (3, 6, 4), (1, 4, 4), "zlib", (0, 1, 2)), 1, then(Index((1,)))),
    ("x[:, i] on a chunk boundary", COLUMNS, 1, then(Index((ALL, -1)))),
    ("x[i] of shards", EXPERTS, 1, then(Index((2,)))),
    ("x[i] within a raw chunk", MATRIX, 1, then(Index((4,)))),
    ("x[i] within raw chunks, padded", ("int16", (7, 5), (4, 3), "raw", (0, 1)), 1, then(Index((6,)))),
    ("x[:, i] within raw order F", ("int16", (7, 5), (7, 5), "raw", (1, 0)), 1, then(Index((ALL, 3)))),
    ("x[a:b] of whole chunks", GRID, 1, then(Index(((2, 6, None), (4, None, None))))),
    ("x[a:b] of bytes", MATRIX, 1, then(along(1, 4))),
    ("x[a:] of bytes of several chunks", PARTS, 1, then(along(2, None))),
    ("x[:n] with less waste than use", GRID, 1, then(along(None, 5))),
    ("x[::2] of chunks", ("int8", (6, 4), (1, 4), "zlib", (0, 1)), 1, then(along(1, None, 2))),
    ("a new axis", GRID, 1, then(Index((None, ...)))),
    ("expand_dims", GRID, 1, then(by(expand_dims, (0, -1)))),
    ("squeeze", ("int8", (1, 5, 1, 4), (1, 2, 1, 3), "zlib", (3, 2, 1, 0)), 1, then(by(squeeze))),
    ("flip of chunks", ROWS, 1, then(by(flip, 0))),
    ("take of chunks", ROWS, 1, then(by(take, (4, 0, -1, 0), 0))),
    ("take of long chunks", ("int8", (8, 4), (2, 3), "zlib", (1, 0)), 1, then(by(take, (6, 7, 0, 1, 2), 0))),
    ("repeat of chunks", ROWS, 1, then(by(repeat, 3, 0))),
    ("tile of chunks", ("int8", (6, 4), (2, 4), "zlib", (1, 0)), 1, then(by(tile, (2, 3)))),
    ("reshape of one raw chunk", MATRIX, 1, then(Reshape((2, 12)))),
    ("reshape of one compressed chunk", ("int8", (6, 4), (6, 4), "zlib", (0, 1)), 1, then(Reshape((3, 8)))),
    ("a stored axis split", ("int8", (6, 5), (6, 5), "raw", (1, 0)), 1, then(Reshape((2, 3, 5)))),
    ("chunk axes split", ("int8", (6, 5, 4), (1, 3, 4), "zlib", (0, 1, 2)), 1, then(Reshape((2, 3, 5, 4)))),
    ("chunk axes merged", ("int8", (2, 3, 5), (1, 1, 4), "zlib", (0, 1, 2)), 1, then(Reshape((6, 5)))),
    ("chunk axes of shards split", EXPERTS, 1, then(Reshape((2, 3, 8, 4)))),
    ("stacked rows merged", MATRIX, 3, then(Stack(), Reshape((18, 4)))),
    ("bitcast", MATRIX, 1, then(Bitcast(dtype_named("int16")))),
    ("bitcast to longer items", MATRIX, 1, then(Bitcast(F32))),
    ("layers and experts apart", MATRIX, 6, then(Stack(), by(rearrange, "(l e) o i -> l e i o", l=2))),
    ("layers in the middle", GRID, 3, then(Stack(), by(rearrange, "n o i -> n i o"))),
    ("heads apart", MATRIX, 3, then(Stack(), by(rearrange, "n (h d) m -> m n h d", h=2))),
    ("a rearranged layer", MATRIX, 3, then(Stack(), by(rearrange, "n o i -> i n o"), Index((ALL, 1)))),
]  # fmt: skip


def stored(checkpoint: Checkpoint, described: Stored, count: int) -> list[Node]:
    dtype, shape, chunk_shape, name, permutation = described
    if name == "sharded":
        inner = tuple(1 if n == 1 else 2 for n in chunk_shape)
        codec = sharded_codec(inner, tuple(range(len(shape)))[::-1], permutation)
    else:
        codec = codec_of(name, permutation)
    return [checkpoint.leaf(dtype, shape, chunk_shape, codec) for _ in range(count)]


@pytest.mark.parametrize(
    ("described", "count", "built"), [case[1:] for case in LINKED], ids=[c[0] for c in LINKED]
)
def test_bytes_that_need_not_move(described: Stored, count: int, built: Callable[[list[Node]], Node]) -> None:
    checkpoint = Checkpoint()
    node = built(stored(checkpoint, described, count))
    assert checkpoint.check(node) is not None


COMPUTED: list[tuple[str, Stored, int, Callable[[list[Node]], Node]]] = [
    ("a stack with filled places", MATRIX, 2, then(Stack(fill=0, count=3))),
    ("concat within chunks", GRID, 2, then(Concat())),
    ("x[i] of compressed chunks", GRID, 1, then(Index((0,)))),
    ("x[:, i] across raw rows", MATRIX, 1, then(Index((ALL, 0)))),
    ("x[a:] within compressed chunks", GRID, 1, then(along(1, None))),
    ("x[:n] with more waste than use", ("int8", (9,), (9,), "zlib", (0,)), 1, then(along(None, 4))),
    ("x[::-1] within chunks", MATRIX, 1, then(along(None, None, -1))),
    ("flip within chunks", MATRIX, 1, then(by(flip, 1))),
    ("take across chunks", PARTS, 1, then(by(take, (1, 2, 3, 4, 9, 10, 11, 8), 0))),
    ("take of rows across chunks", ("int8", (8,), (2,), "zlib", (0,)), 1, then(by(take, (1, 2, 5, 6), 0))),
    ("repeat within chunks", MATRIX, 1, then(by(repeat, 2, 0))),
    ("tile with a part of a chunk inside", GRID, 1, then(by(tile, (2, 1)))),
    ("tile with too many chunks", ("int8", (1,), (1,), "raw", (0,)), 1, then(by(tile, 2**40))),
    ("repeat with too many chunks", ("int8", (3, 1), (1, 1), "raw", (0, 1)), 1, then(by(repeat, 2**38, 1))),
    ("reshape against the stored order", ("int8", (6, 4), (6, 4), "raw", (1, 0)), 1, then(Reshape((24,)))),
    ("reshape of rows with edges", ("int8", (2, 6), (1, 4), "zlib", (0, 1)), 1, then(Reshape((3, 4)))),
    ("reshape of axes apart", ("int8", (2, 3, 5), (2, 3, 5), "raw", (0, 2, 1)), 1, then(Reshape((6, 5)))),
    ("reshape through edges", GRID, 1, then(Reshape((70,)))),
    ("reshape of shards", SHARDS, 1, then(Reshape((48,)))),
    ("bitcast, big endian", ("int16", (4,), (4,), "big", (0,)), 1, then(Bitcast(dtype_named("uint16")))),
    ("bitcast of shards", SHARDS, 1, then(Bitcast(dtype_named("int16")))),
    ("longer items across columns", ("int16", (4, 6), (4, 6), "raw", (1, 0)), 1, then(Bitcast(F32))),
    ("longer items across chunks", ("int16", (4, 6), (4, 3), "raw", (0, 1)), 1, then(Bitcast(F32))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("described", "count", "built"), [c[1:] for c in COMPUTED], ids=[c[0] for c in COMPUTED]
)
def test_what_takes_new_bytes(described: Stored, count: int, built: Callable[[list[Node]], Node]) -> None:
    assert relinked(built(stored(Checkpoint(), described, count)), Spare()) is None


@pytest.mark.parametrize(
    "other", [((2, 4), "zlib", (1, 0)), ((2, 4), "gzip", (0, 1)), ((2, 5), "zlib", (0, 1))]
)
def test_leaves_that_are_stored_otherwise_do_not_stack(other: tuple[Shape, str, tuple[int, ...]]) -> None:
    checkpoint = Checkpoint()
    leaves = [*stored(checkpoint, GRID, 1), *stored(checkpoint, (*GRID[:2], *other), 1)]
    assert relinked(then(Stack())(leaves), Spare()) is None


def test_orders_that_store_the_same_stack() -> None:
    checkpoint = Checkpoint()
    rows = [("int8", (3, 5), (1, 4), "zlib", order) for order in ((0, 1), (1, 0))]
    assert checkpoint.check(then(Stack())([leaf for row in rows for leaf in stored(checkpoint, row, 1)]))


def test_raw_parts_of_different_lengths_make_one_grid() -> None:
    """Query, key and value of grouped attention, each one raw chunk."""
    checkpoint = Checkpoint()
    shapes = [(rows, 3) for rows in (8, 2, 4)]
    parts = [stored(checkpoint, ("bfloat16", shape, shape, "raw", (0, 1)), 1)[0] for shape in shapes]
    found = checkpoint.check(then(Concat())(parts))
    assert found is not None
    assert (found.spec.shape, found.chunk_shape, len(found.chunks)) == ((14, 3), (2, 3), 7)


def test_raw_chunks_that_are_not_whole_are_not_cut() -> None:
    [leaf] = stored(Checkpoint(), ("int8", (4, 2), (4, 2), "raw", (0, 1)), 1)
    assert isinstance(leaf, Read)
    manifest = leaf.leaf.manifest
    assert manifest is not None
    short = {index: replace(chunk, length=6) for index, chunk in manifest.chunks.items()}
    assert Index((1,)).relink([manifest]) is not None
    assert Index((1,)).relink([replace(manifest, chunks=short)]) is None


def test_what_is_read_as_it_is_keeps_its_manifest() -> None:
    """The very object: nothing is made anew for the many leaves that only move."""
    [leaf] = stored(Checkpoint(), GRID, 1)
    assert isinstance(leaf, Read)
    assert relinked(leaf, Spare()) is leaf.leaf.manifest


def test_chunks_of_several_sources_keep_their_files() -> None:
    checkpoint = Checkpoint()
    one, other = (leaf for leaf in stored(checkpoint, MATRIX, 2) if isinstance(leaf, Read))
    found = relinked(Apply(Stack(), (one, replace(other, source="adapter"))), Spare())
    assert found is not None
    assert {index: c.file for index, c in found.chunks.items()} == {(0, 0, 0): "0", (1, 0, 0): "1"}


# Anything at all.

DTYPES = ("int8", "uint16", "bfloat16", "float32", "int4")


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, Shape, Shape, Codec]:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 0]), max_size=4)))
    chunks = [st.sampled_from([1, max(1, n), max(1, n), 2, 3, 4, n + 1]) for n in shape]
    chunk_shape = tuple(map(draw, chunks))
    dtype = draw(st.sampled_from(DTYPES))
    axes = range(len(shape))
    permutation = draw(st.one_of(st.just(tuple(axes)), st.permutations(axes).map(tuple)))
    name = draw(st.sampled_from(["raw", "raw", "zlib", "big", "sharded"]))
    if name != "sharded":
        return dtype, shape, chunk_shape, codec_of(name, permutation)
    inner = tuple(
        draw(st.sampled_from([d for d in (1, 2, 3, n) if n % d == 0]))
        for n in (chunk_shape[axis] for axis in permutation)
    )
    order = tuple(draw(st.permutations(axes)))
    return dtype, shape, chunk_shape, sharded_codec(inner, order, permutation)


@st.composite
def functions(draw: st.DrawFn, spec: ArraySpec) -> Changed:
    """Any layout function that fits."""
    axes = range(spec.ndim)
    makers: list[Callable[[], Changed]] = [
        lambda: Transpose(tuple(draw(st.permutations(axes)))),
        lambda: by(expand_dims, draw(st.integers(0, spec.ndim))),
        lambda: by(squeeze),
        lambda: Reshape(draw(shapes(spec))),
        lambda: Index(tuple(draw(items(length)) for length in spec.shape)),
    ]
    if spec.ndim:
        axis = draw(st.sampled_from(axes))
        length = spec.shape[axis]
        makers += [
            lambda: by(flip, axis),
            lambda: by(repeat, 2, axis),
            lambda: by(tile, draw(st.integers(1, 2))),
            lambda: by(
                take, tuple(draw(st.lists(st.integers(0, length - 1), max_size=3))) if length else (), axis
            ),
            lambda: Bitcast(dtype_named(draw(st.sampled_from(["uint8", "int16", "float32"])))),
        ]
    function = draw(st.sampled_from(makers))()
    if isinstance(function, Bitcast) and not castable(spec, function):
        return Transpose()
    return function


def castable(spec: ArraySpec, function: Bitcast) -> bool:
    whole = bits(spec.dtype) == 8 * spec.dtype.itemsize
    return whole and spec.shape[-1] * spec.dtype.itemsize % function.dtype.itemsize == 0


@st.composite
def shapes(draw: st.DrawFn, spec: ArraySpec) -> Shape:
    """A shape of as many elements: axes merged, split and joined by axes of length 1."""
    shape = list(spec.shape)
    for _ in range(draw(st.integers(1, 2))):
        i = draw(st.integers(0, len(shape)))
        kind = draw(st.sampled_from(["merge", "split", "one"]))
        if kind == "merge" and i + 1 < len(shape):
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        elif kind == "split" and i < len(shape) and shape[i]:
            factor = draw(st.sampled_from([d for d in range(1, shape[i] + 1) if shape[i] % d == 0]))
            shape[i : i + 1] = [factor, shape[i] // factor]
        else:
            shape.insert(i, 1)
    return tuple(shape)


def items(length: int) -> st.SearchStrategy[Item]:
    bounds = st.tuples(st.integers(0, length), st.integers(0, length)).map(sorted)
    choices: list[st.SearchStrategy[Item]] = [
        st.just(ALL),
        st.just(ALL),
        bounds.map(lambda pair: (pair[0], pair[1], None)),
        st.sampled_from([(None, None, 2), (None, None, -1)]),
    ]
    return st.one_of([*choices, st.integers(0, length - 1)] if length else choices)


@st.composite
def trees(draw: st.DrawFn, checkpoint: Checkpoint) -> Node:
    """Functions of leaves, a few of each leaf, a few of all: alike leaves as a rule."""
    layout = draw(layouts())
    count = draw(st.integers(1, 3))
    before = [] if draw(st.booleans()) else [draw(functions(checkpoint.leaf(*layout).spec))]
    nodes: list[Node] = []
    for _ in range(count):
        node: Node = checkpoint.leaf(*layout)
        for function in before:
            node = changed(function, node)
        nodes.append(node)
    ndim = nodes[0].spec.ndim
    joins: list[Function] = [
        Stack(draw(st.integers(0, ndim)), places=draw(st.permutations(range(count)).map(tuple)))
    ]
    joins += [Concat(draw(st.integers(0, ndim - 1)))] if ndim else []
    node = Apply(draw(st.sampled_from(joins)), tuple(nodes)) if draw(st.booleans()) else nodes[0]
    for _ in range(draw(st.integers(0, 3))):
        if node.spec.size < 5000:
            node = changed(draw(functions(node.spec)), node)
    return node


@examples(200)
@given(data=st.data())
def test_what_is_rewritten_decodes_to_the_value(data: st.DataObject) -> None:
    checkpoint = Checkpoint()
    checkpoint.check(data.draw(trees(checkpoint)))


@examples(50)
@given(data=st.data())
def test_any_transpose_of_anything_is_rewritten(data: st.DataObject) -> None:
    checkpoint = Checkpoint()
    leaf = checkpoint.leaf(*data.draw(layouts()))
    axes = tuple(data.draw(st.permutations(range(leaf.spec.ndim))))
    assert checkpoint.check(Apply(Transpose(axes), (leaf,))) is not None


@examples(50)
@given(data=st.data())
def test_any_stack_of_alike_leaves_is_rewritten(data: st.DataObject) -> None:
    checkpoint = Checkpoint()
    layout = data.draw(layouts())
    leaves = tuple(checkpoint.leaf(*layout) for _ in range(3))
    function = Stack(data.draw(st.integers(0, leaves[0].spec.ndim)), places=(1, 2, 0))
    assert checkpoint.check(Apply(function, leaves)) is not None
