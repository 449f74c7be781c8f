"""Elementwise functions in tiles: the same bits as one function after the other on whole blocks."""

import tracemalloc
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core import tiles
from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Array, Node, Read
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary, Where
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.graph import fusion
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.graph.fusion import Fused, fused
from ckpt_surgery.graph.walks import parts_of, task_bytes
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.primitives import primitives
from tests.support.strategies import chunk_shapes

BF16, F16, F32, F64 = (np.dtype(t) for t in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
I8, I32 = np.dtype(np.int8), np.dtype(np.int32)
SHAPE = (13, 9)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few elements are many tiles, and always worth it."""
    monkeypatch.setattr(tiles, "EDGE", 3)
    monkeypatch.setattr(tiles, "ROWS", 10)
    monkeypatch.setattr(tiles, "CACHE", 0)
    monkeypatch.setattr(fusion, "ROWS", 0)
    monkeypatch.setattr(fusion, "SMALLEST", 2)


def leaf(shape: tuple[int, ...], dtype: np.dtype, name: str = "a") -> Read:
    return Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(shape, dtype)))


def values(leaf: Leaf) -> np.ndarray:
    """Random ones of a leaf, told by its name; NaN, infinities and values near zero among the floats."""
    assert leaf.spec is not None
    random = np.random.default_rng(len(leaf.key.text))
    made = random.normal(0, 3, leaf.spec.shape)
    if leaf.spec.dtype.kind != "i" and made.size > 20:
        made.flat[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40]
    return np.asarray(made).astype(leaf.spec.dtype)


def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    block: np.ndarray = values(leaf)[(..., *region.slices)]
    block.flags.writeable = False
    return block


def tiled(node: Node, region: Region) -> Fused | None:
    """What is evaluated in tiles to give the region; None if it is evaluated whole."""
    parts = parts_of(node, region)
    return fused(parts).get(len(parts) - 1)


Reader = Callable[[str, Leaf, Region], np.ndarray]


def whole(node: Node, region: Region, reader: Reader = read) -> np.ndarray:
    """One function after the other."""
    if isinstance(node, Read):
        return reader(node.source, node.leaf, region)
    specs = [n.spec for n in node.inputs]
    needs = node.function.needs(region, specs)
    return node.function.apply(region, specs, [whole(node.inputs[i], part, reader) for i, part in needs])


FLOATS = st.sampled_from([BF16, F16, F32, F64])
ONE = [
    *map(Unary, ("abs", "sqrt", "exp", "log", "sin", "cos", "arccos", "sign", "neg")),
    *(Binary("maximum", None, -1), Binary("minimum", None, 2.5), Binary("*", None, 0.1), Cast(F32)),
]
TWO = [*map(Binary, "+-*/%"), Binary("**"), Binary("maximum"), Binary("//")]
LISTS = [ListReduction("mean"), ListReduction("sum"), ListReduction("max")]


@st.composite
def arrays(draw: st.DrawFn) -> Node:
    """A leaf of the shape, or one that broadcasts to it; as it is stored, or transposed."""
    name = draw(st.sampled_from(["a", "bb", "ccc"]))
    shape = draw(st.sampled_from([SHAPE, SHAPE, SHAPE, (13, 1), (9,), ()]))
    if draw(st.booleans()):
        return leaf(shape, draw(FLOATS), name)
    return Apply(Transpose(), (leaf(shape[::-1], draw(FLOATS), name),))


def grown(draw: Callable[..., Node], depth: int) -> Node:
    """An expression of this depth at most; what the law refuses becomes a leaf."""
    node = draw(arrays())
    if depth == 0:
        return node
    below = [grown(draw, depth - 1) for _ in range(2)]
    kind = draw(st.integers(0, 3))
    made = {
        0: lambda: Apply(draw(st.sampled_from(ONE)), (below[0],)),
        1: lambda: Apply(draw(st.sampled_from(TWO)), tuple(below)),
        2: lambda: Apply(Where(), (Apply(Binary("<"), (below[0], node)), below[0], below[1])),
        3: lambda: Apply(draw(st.sampled_from(LISTS)), (below[0], below[0], below[0])),
    }[kind]()
    try:
        assert made.spec.shape is not None
    except FunctionError:
        return node
    return made


@st.composite
def expressions(draw: st.DrawFn) -> Node:
    node = grown(draw, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        return Apply(Cast(draw(FLOATS), "inf"), (node,))
    return node


@pytest.mark.usefixtures("small_tiles")
@examples(150)
@given(node=expressions(), data=st.data())
def test_tiles_and_chunks_give_the_bits_that_whole_blocks_give(node: Node, data: st.DataObject) -> None:
    shape = node.spec.shape
    together = evaluate(node, Region.whole(shape), read)
    assert same(together, whole(node, Region.whole(shape)))
    chunks = data.draw(chunk_shapes(shape))
    for region in chunk_regions(shape, chunks):
        assert same(evaluate(node, region, read), together[region.slices])


def average(shape: tuple[int, ...] = SHAPE, dtype: np.dtype = BF16) -> Apply:
    """`0.5 * a + 0.5 * b`, rounded at the end."""
    halves = tuple(Apply(Binary("*", None, 0.5), (leaf(shape, dtype, name),)) for name in ("a", "bb"))
    total = Array(Apply(Binary("+"), halves), dtype).rounded_to_declared()
    assert isinstance(total, Apply)
    return total


@pytest.mark.usefixtures("small_tiles")
def test_what_is_fused_is_all_that_is_elementwise() -> None:
    node = average()
    found = tiled(node, Region((2, 1), (13, 9)))
    assert isinstance(found, Fused)
    assert [(p.node.leaf.key.text, p.region) for p in found.parts if isinstance(p.node, Read)] == [
        ("a", Region((2, 1), (13, 9))),
        ("bb", Region((2, 1), (13, 9))),
    ]
    turned = Apply(Transpose(), (node,))
    outer = Apply(Binary("+"), (turned, Apply(Index((None,)), (leaf((13,), F32),))))
    found = tiled(outer, Region((0, 4), (9, 6)))
    assert found is not None
    assert [part.node for part in found.parts] == list(outer.inputs)
    assert [part.region for part in found.parts] == [Region((0, 4), (9, 6)), Region((0, 4), (1, 6))]


@pytest.mark.usefixtures("small_tiles")
def test_what_an_expression_has_twice_is_read_once() -> None:
    reads: list[str] = []

    def counted(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        reads.append(leaf.key.text)
        return read(source, leaf, region)

    x = leaf(SHAPE, BF16, "x")
    node = Apply(Binary("*"), (x, Apply(Unary("exp"), (x,))))
    found = evaluate(node, Region.whole(SHAPE), counted)
    assert reads == ["x"]
    assert same(found, whole(node, Region.whole(SHAPE)))


def test_one_function_of_one_array_and_small_regions_are_left_whole() -> None:
    large = (1024, 1024)
    assert tiled(average(large), Region.whole(large)) is not None
    assert tiled(average(large), Region((0, 0), (100, 1024))) is None
    assert tiled(average((512, 1024)), Region.whole((512, 1024))) is not None
    three = Apply(Binary("maximum"), (average((512, 512)), leaf((512, 512), F32, "ccc")))
    assert tiled(three, Region.whole((512, 512))) is None  # tiles would hold more
    assert tiled(Apply(Cast(BF16), (leaf(large, F32),)), Region.whole(large)) is None
    assert tiled(average(large, F32), Region.whole(large)) is None  # of one width: nothing is converted
    assert tiled(Apply(Transpose(), (average(large),)), Region.whole(large)) is None
    assert tiled(leaf(large, F32), Region.whole(large)) is None


def test_many_arrays_that_would_be_held_at_once_are_added_one_by_one() -> None:
    """Tiles need all of them; one after the other needs two."""
    shape = (2048, 1024)
    node: Node = leaf(shape, F32)
    for i in range(2, 16):
        node = Apply(Binary("+"), (node, leaf(shape, BF16, "x" * i)))
    assert tiled(node, Region.whole(shape)) is None


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", [F16, I8])
def test_an_overflow_is_told_of_the_whole_block(dtype: np.dtype) -> None:
    """The largest value is in the last tile, one that is too large in the first as well."""
    block = np.zeros(SHAPE, np.float32)
    block[0, 0], block[12, 8] = 70_000, -90_000
    node = Apply(Cast(dtype), (Apply(Binary("*", None, 2), (leaf(SHAPE, F32),)),))
    assert tiled(node, Region.whole(SHAPE)) is not None
    with pytest.raises(
        DataError, match=r"-180000\.0 is out of range, .* \(2 of 117 values here, at \[12, 8\]\)"
    ):
        evaluate(node, Region.whole(SHAPE), lambda source, leaf, region: block[region.slices])


@pytest.mark.usefixtures("small_tiles")
def test_integers_keep_their_width_and_their_errors() -> None:
    big = leaf(SHAPE, np.dtype(np.int64))
    block = np.full(SHAPE, 2**62 + 1, np.int64)
    node = Apply(Binary("+"), (Apply(Binary("*", None, 1), (big,)), leaf(SHAPE, I8, "one")))
    assert tiled(node, Region.whole(SHAPE)) is not None
    given = {"a": block, "one": np.ones(SHAPE, np.int8)}
    found = evaluate(node, Region.whole(SHAPE), lambda s, leaf, region: given[leaf.key.text][region.slices])
    assert same(found, np.full(SHAPE, 2**62 + 2, np.int64))
    zero = Apply(Binary("//"), (node, leaf(SHAPE, I32, "zz")))
    with pytest.raises(DataError, match="an integer is divided by zero"):
        evaluate(zero, Region.whole(SHAPE), lambda s, leaf, r: np.zeros(SHAPE, leaf.spec.dtype))


@pytest.mark.parametrize(
    "node",
    [
        average((1024, 1024)),
        average((512, 1024)),
        Apply(
            Cast(BF16),
            (Apply(ListReduction("mean"), tuple(leaf((1024, 1024), BF16, "x" * n) for n in range(1, 5))),),
        ),
        Apply(Cast(BF16), (Apply(Transpose(), (leaf((1024, 1024), F32),)),)),
        Apply(Binary("+"), (Apply(Transpose(), (leaf((1024, 1024), F32),)), leaf((1024, 1024), F32, "bb"))),
        Apply(Transpose(), (leaf((1024, 1024), BF16),)),
    ],
    ids=["average", "small average", "mean", "transposed and cast", "transposed and added", "transposed"],
)
def test_memory_stays_within_what_the_plan_says(node: Apply) -> None:
    """Blocks of megabytes, as they are: what is held beside them is a few tiles."""
    region = Region.whole(node.spec.shape)

    def ones(source: str, leaf: Leaf, part: Region) -> np.ndarray:
        assert leaf.spec is not None
        return np.ones(part.shape, leaf.spec.dtype)

    evaluate(node, region, ones)
    tracemalloc.start()
    result = evaluate(node, region, ones)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.flags.c_contiguous
    assert peak <= task_bytes(node, region)
    assert same(result, whole(node, region, ones))


def test_every_arithmetic_primitive_is_fused() -> None:
    assert {cls.name for cls in primitives() if cls.elementwise} == {
        *("binary", "unary", "where", "cast", "rounded", "allow_nonfinite", "require_equal"),
        "list_reduction",
    }
