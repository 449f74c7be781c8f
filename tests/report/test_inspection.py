"""What is unusual about values."""

import ml_dtypes
import numpy as np

from ckpt_surgery.report.inspection import unusual
from ckpt_surgery.report.leaves import Statistics, Unread
from tests.support.leaves import array_leaf, leaf

SOUND = Statistics(-1.0, 1.0, 0.0, 0.5, 0, 0)
ZEROS = Statistics(0.0, 0.0, 0.0, 0.0, 0, 0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def found(leaves, statistics):
    return [(one.what, [leaf.key.text for leaf in one.leaves]) for one in unusual(leaves, statistics)]


def test_nothing():
    leaves = [array_leaf("a"), leaf("name", "string"), array_leaf("bad")]
    assert found(leaves, {"a": SOUND, "bad": Unread("it is gone", damaged=True)}) == []


def test_what_is_not_finite():
    leaves = [array_leaf(name) for name in "abc"]
    statistics = {
        "a": Statistics(None, None, None, None, 6, 0),
        "b": SOUND,
        "c": Statistics(1.0, 1.0, 1.0, 0.0, 1, 2),
    }
    assert found(leaves, statistics) == [("nan", ["a", "c"]), ("inf", ["c"])]


def test_arrays_of_zeros_but_no_counters():
    leaves = [
        array_leaf("a"),
        array_leaf("count", ()),
        leaf("step", "scalar:int64"),
        array_leaf("empty", (0,)),
    ]
    nothing = Statistics(None, None, None, None, 0, 0)
    statistics = {"a": ZEROS, "count": ZEROS, "step": ZEROS, "empty": nothing}
    assert found(leaves, statistics) == [("zeros", ["a"])]
    partly = Statistics(0.0, 0.0, 0.0, 0.0, 1, 0)
    assert found(leaves[:1], {"a": partly}) == [("nan", ["a"])]


def test_mixed_dtypes_where_only_indices_differ():
    leaves = [
        array_leaf("l_0/w"),
        array_leaf("l_1/w", (5,), BF16),
        array_leaf("l_0/b"),
        array_leaf("l_1/b", (9,)),
        array_leaf("m/w", dtype=BF16),
        leaf("l_2/w", "string"),
    ]
    assert found(leaves, {}) == [("mixed dtypes", ["l_0/w", "l_1/w"])]
