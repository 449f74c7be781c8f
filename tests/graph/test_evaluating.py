"""Evaluation of regions: only what is needed is read, and the elements are those of the whole."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.joining import Concat
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.graph.nodes import Apply, Read

VALUES = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.arange(8, dtype=np.float32).reshape(2, 4) + 100,
}


def leaf(name: str) -> Read:
    spec = ArraySpec(VALUES[name].shape, VALUES[name].dtype)
    return Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, spec))


class Reader:
    """Reads from `VALUES`, and notes what."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str, Region]] = []

    def __call__(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        self.read.append((source, leaf.key.text, region))
        return VALUES[leaf.key.text][region.slices]


def test_a_leaf_is_read_where_it_is_asked_for() -> None:
    reader, region = Reader(), Region((1, 0), (3, 2))
    assert np.array_equal(evaluate(leaf("a"), region, reader), VALUES["a"][1:3, :2])
    assert reader.read == [("source", "a", region)]


def test_only_what_a_region_needs_is_read() -> None:
    reader = Reader()
    joined = Apply(Concat(0), (leaf("a"), leaf("b")))
    assert np.array_equal(evaluate(joined, Region((3, 1), (5, 3)), reader), VALUES["b"][:, 1:3])
    assert [(name, region.shape) for _, name, region in reader.read] == [("b", (2, 2))]


@pytest.mark.parametrize("region", [Region((0, 0), (4, 3)), Region((1, 1), (3, 2)), Region((0, 0), (0, 3))])
def test_regions_are_those_of_the_whole(region: Region) -> None:
    node = Apply(Binary("*", None, 2), (Apply(Transpose(), (leaf("a"),)),))
    block = evaluate(node, region, Reader())
    assert np.array_equal(block, (VALUES["a"].T * 2)[region.slices])


def test_in_tiles_the_error_names_the_value_of_the_whole() -> None:
    large = np.full((1 << 16,), 1.0, np.float32)
    large[0], large[-1] = 300, 40000
    VALUES["large"] = large
    node = Apply(Cast(np.dtype(np.int8)), (Apply(Binary("*", None, 1), (leaf("large"),)),))
    with pytest.raises(DataError, match="40000"):
        evaluate(node, Region.whole(large.shape), Reader())
