"""Values in listings."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.leaves import Unread
from ckpt_surgery.report.scalars import MOST_SCALARS, scalar_values, shared_texts
from tests.support.leaves import array_leaf
from tests.support.memory import MemorySource


@pytest.mark.parametrize(
    ("array", "value", "text"),
    [
        (np.array(7, np.int64), 7, "= 7"),
        (np.array(2**63 + 1, np.uint64), 2**63 + 1, "= 9223372036854775809"),
        (np.array(True), True, "= True"),
        (np.array(0.1, np.float32), float(np.float32(0.1)), "= 0.1"),
        (np.array(1.5, ml_dtypes.bfloat16), 1.5, "= 1.5"),
        (np.array(3, ml_dtypes.int4), 3, "= 3"),
        (np.array(np.nan), np.nan, "= nan"),
        (np.array(1 + 2j), 1 + 2j, "= 1+2j"),
    ],
)
def test_values_of_numbers(array, value, text):
    source = MemorySource({"x": array})
    leaves = list(source.leaves().values())
    found = scalar_values(source, leaves)
    np.testing.assert_equal(found, {"x": value})
    assert type(found["x"]) is type(value)
    assert shared_texts(leaves, found) == {"x": text}


def test_only_numbers_without_axes_are_read():
    source = MemorySource({"a": np.zeros(1), "b": np.array("text"), "c": np.array(2)})
    assert scalar_values(source, source.leaves().values()) == {"c": 2}
    assert len(source.regions) == 1


def test_no_more_than_a_few_are_read():
    source = MemorySource({f"x{i}": np.array(i) for i in range(MOST_SCALARS + 5)})
    assert list(scalar_values(source, source.leaves().values()).values()) == list(range(MOST_SCALARS))
    assert len(source.regions) == MOST_SCALARS


class Damaged(MemorySource):
    def read(self, leaf, region):
        raise SourceError(f"`{leaf.key.text}`: its chunk is\x1b missing")


def test_what_cannot_be_read_is_told():
    source = Damaged({"x": np.array(2)})
    leaves = list(source.leaves().values())
    found = scalar_values(source, leaves)
    assert found == {"x": Unread("its chunk is\x1b missing", damaged=True)}
    assert shared_texts(leaves, found) == {"x": "not read: its chunk is\\x1b missing"}


def test_texts_of_strings():
    def string(text):
        return Leaf(Key.parse("name"), LeafKind.STRING, string=text)

    assert shared_texts([string("a{b}\n")], {}) == {"name": '"a\\{b\\}\\n"'}
    assert shared_texts([string("x" * 41)], {}) == {"name": f'"{"x" * 40}…"'}


def test_leaves_that_differ_in_indices_have_one_value_or_none():
    leaves = [array_leaf(key, ()) for key in ("a/0", "a/1", "b/0", "b/1", "c/0", "c/1")]
    values = {"a/0": 1, "a/1": 1, "b/0": 1, "b/1": 2, "c/0": 1}
    assert shared_texts(leaves, values) == {"a/0": "= 1", "a/1": "= 1"}
