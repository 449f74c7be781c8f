"""Walks over graphs: streams, shared parts, manifests without computation, and the parts of a region."""

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.functions.arrays import Apply, Node
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.graph.walks import (
    MOST_REGIONS,
    parts_of,
    streams_of,
    with_shared_parts,
    working_set,
)
from tests.support.chunked_nodes import leaf
from tests.support.lazy_arrays import lazy


def read(name: str) -> Node:
    return lazy((2, 3), key=name).node


def test_streams_come_after_those_that_they_need() -> None:
    norm = Apply(Norm(), (read("a"),))
    total = Apply(Sum(), (Apply(Binary("/"), (read("a"), norm)),))
    value = Apply(Binary("*"), (total, Apply(Sum(0), (read("a"),))))  # a sum over one axis is no stream
    assert streams_of(value) == (norm, total)


def test_what_an_expression_names_twice_becomes_one_part() -> None:
    def half(number: float) -> Apply:
        return Apply(Binary("*", None, number), (Apply(Norm(), (read("a"),)),))

    value = with_shared_parts(Apply(Stack(), (half(2), half(2), half(2.0), Apply(Norm(), (read("b"),)))))
    assert isinstance(value, Apply)
    one, two, other, _ = value.inputs
    assert one is two
    assert one is not other  # 2 is not 2.0: an integer keeps its dtype
    assert [node.inputs[0].leaf.key.text for node in streams_of(value)] == ["a", "b"]  # type: ignore[union-attr]
    plain = Apply(Stack(), (read("a"), read("a")))
    assert with_shared_parts(plain) is plain


def test_a_stream_that_several_outputs_have_stays_one() -> None:
    norm = Apply(Norm(), (read("a"),))
    first, second = (with_shared_parts(Apply(Binary("*", None, number), (norm,))) for number in (2, 3))
    assert streams_of(first) == streams_of(second) == (norm,)


def doubled(levels: int, shape: tuple[int, ...] = (4,)) -> Node:
    node: Node = leaf(shape, shape)
    for _ in range(levels):
        node = Apply(Binary("+"), (node, node))
    return node


def test_a_node_that_is_used_twice_is_one_part() -> None:
    parts = parts_of(doubled(200), Region((1,), (3,)))
    assert len(parts) == 201
    assert [part.region for part in parts] == [Region((1,), (3,))] * 201
    assert parts[1].inputs == ((0, Region((1,), (3,))),) * 2


def test_depth_has_no_limit() -> None:
    node = doubled(5000)
    assert node.height == 5000
    assert evaluate(node, Region((0,), (4,)), lambda s, le, r: np.zeros(4, np.float32)).tolist() == [0] * 4


def windows(levels: int, length: int) -> Node:
    """Sums of neighbours of sums of neighbours: each level needs one region more of the one below."""
    node: Node = leaf((length,), (length,))
    for level in range(levels):
        size = length - level
        later, earlier = Index(((1, size, None),)), Index(((0, size - 1, None),))
        node = Apply(Binary("+"), (Apply(later, (node,)), Apply(earlier, (node,))))
    return node


def test_regions_of_a_node_are_put_together_where_there_are_many() -> None:
    levels = MOST_REGIONS + 16
    node = windows(levels, 1000)
    parts = parts_of(node, Region((0,), (1,)))
    regions: dict[int, int] = {}
    for part in parts:
        regions[id(part.node)] = regions.get(id(part.node), 0) + 1
    assert max(count for one, count in regions.items() if one != id(parts[0].node)) <= MOST_REGIONS

    def ones(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        return np.ones(region.shape, np.float32)

    assert evaluate(node, Region((5,), (7,)), ones).tolist() == [2.0**levels] * 2


def test_what_is_held_for_later_counts() -> None:
    """`x * (x + 1)`: the leaf is held while the sum is computed from it, and is read once."""
    x = leaf((1 << 20,), (1 << 20,))
    node = Apply(Binary("*"), (x, Apply(Binary("+", None, 1), (x,))))
    region = Region.whole((1 << 20,))
    assert working_set(node, region) == 4 * (4 << 20)
