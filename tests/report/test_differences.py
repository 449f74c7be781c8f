"""Two listings beside each other, made by hand: what differs, as rows and as JSON."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.differences import (
    ComparedLeaf,
    Holds,
    NotCompared,
    diff_trees,
    difference_rows,
)
from tests.report.test_diff_document import as_json
from tests.support.leaves import array_leaf, by_key, listing

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def test_diff_trees() -> None:
    a = by_key(
        array_leaf("same"),
        array_leaf("gone"),
        array_leaf("w", (2, 3)),
        array_leaf("x", dtype=F32),
        array_leaf("y"),
    )
    b = by_key(
        array_leaf("w", (3, 2)),
        array_leaf("same"),
        array_leaf("new"),
        array_leaf("x", dtype=BF16),
        Leaf(Key.parse("y"), LeafKind.STRING),
    )
    found = diff_trees(a, b)
    assert [leaf.key.text for leaf in found.only_a] == ["gone"]
    assert [leaf.key.text for leaf in found.only_b] == ["new"]
    assert [(c.key, c.what) for c in found.changed] == [
        ("w", ("shape",)),
        ("x", ("dtype",)),
        ("y", ("kind",)),
    ]
    assert found.common == 4
    assert found.different


def test_diff_trees_of_equal_listings():
    a = by_key(array_leaf("w"), Leaf(Key.parse("s"), LeafKind.STRING, string="x"))
    assert not diff_trees(a, dict(reversed(a.items()))).different


@pytest.mark.parametrize(
    "change",
    [
        (
            Leaf(Key.parse("k"), LeafKind.STRING, string="x"),
            Leaf(Key.parse("k"), LeafKind.STRING, string="y"),
        ),
        (
            Leaf(Key.parse("k"), LeafKind.EMPTY, empty="Dict"),
            Leaf(Key.parse("k"), LeafKind.EMPTY, empty="List"),
        ),
        (
            Leaf(Key.parse("k"), LeafKind.PRNG_KEY, ArraySpec((2,), F32), prng_impl="a"),
            Leaf(Key.parse("k"), LeafKind.PRNG_KEY, ArraySpec((2,), F32), prng_impl="b"),
        ),
    ],
    ids=["string", "empty", "prng"],
)
def test_diff_trees_compares_what_listings_say_of_values(change):
    found = diff_trees(*map(by_key, change))
    assert [c.what for c in found.changed] == [("value",)]


def test_difference_rows_fold():
    a = by_key(*(array_leaf(f"l_{i}") for i in range(3)), *(array_leaf(f"m_{i}") for i in range(3)))
    b = by_key(*(array_leaf(f"l_{i}", dtype=BF16) for i in range(3)), array_leaf("n"))
    assert [(r.word, r.key, r.count, r.what) for r in difference_rows(diff_trees(a, b))] == [
        ("only in A", "m_{0..2}", 3, "f32[2,3]"),
        ("only in B", "n", 1, "f32[2,3]"),
        ("changed", "l_{0..2}", 3, "f32[2,3] → bf16[2,3]"),
    ]
    assert len(difference_rows(diff_trees(a, b), full=True)) == 7


def test_difference_rows_show_strings():
    a, b = (by_key(Leaf(Key.parse("s"), LeafKind.STRING, string=text)) for text in ("x\n", "y"))
    assert [r.what for r in difference_rows(diff_trees(a, b))] == ['"x\\n" → "y"']


@pytest.mark.parametrize(("equal", "different"), [(True, False), (False, True)])
def test_values_make_a_difference(equal: bool, different: bool) -> None:
    same = diff_trees(by_key(array_leaf("w")), by_key(array_leaf("w")))
    assert replace(same, values=(ComparedLeaf("w", ("w",), equal, 0.0, 0.0, 1.0),)).different is different


def test_what_could_not_be_compared_is_not_the_same() -> None:
    same = diff_trees(by_key(array_leaf("w")), by_key(array_leaf("w")))
    found = replace(same, values=(), uncompared=(NotCompared("w", ("w",), "it is a pickle"),))
    assert (found.known, found.different) == (False, True)
    document = as_json(found)
    assert document["different"] is True
    assert document["not_compared"] == [{"key": "w", "components": ["w"], "why": "it is a pickle"}]


# --- containers -------------------------------------------------------------------------------------------

NO_LISTS = Holds("safetensors", lists=False)


def tree(*keys: str) -> dict[str, Leaf]:
    """`w/[0]` is in a list."""
    return listing(keys)


CONTAINERS = [
    ("w/[0]", "w/0", None, None, True, "a list and a dict"),
    ("w/[0]", "w/[0]", None, None, False, "two lists"),
    ("w/[0]/a/0", "w/[0]/a/[0]", None, None, True, "the inner one of two"),
    ("w/[0]", "w/0", None, NO_LISTS, False, "what B calls a dict may have been a list"),
    ("w/0", "w/[0]", NO_LISTS, None, False, "the same the other way round"),
    ("w/[0]", "w/0", NO_LISTS, None, True, "A has a list, and B knows its dicts"),
    ("w/[0]/1", "w/0/[1]", NO_LISTS, None, True, "of the two one is known to differ"),
    ("w/0", "w/0", NO_LISTS, NO_LISTS, False, "dicts"),
]


@pytest.mark.parametrize(("a", "b", "holds_a", "holds_b", "told", "reason"), CONTAINERS)
def test_containers_are_part_of_the_structure(
    a: str, b: str, holds_a: Holds | None, holds_b: Holds | None, told: bool, reason: str
) -> None:
    found = diff_trees(tree(a), tree(b), holds_a, holds_b)
    assert [change.what for change in found.changed] == ([("container",)] if told else []), reason
    assert found.different == told


def test_containers_in_rows_and_in_json() -> None:
    found = diff_trees(tree("w/[0]", "w/[1]"), tree("w/0", "w/1"))
    (row,) = difference_rows(found)
    assert (row.key, row.count, row.what) == ("w/{0,1}", 2, "f32[2,3] in a list → f32[2,3] in a dict")
    assert as_json(found)["changed"][0] == {
        "key": "w/0",
        "components": ["w", "0"],
        "what": ["container"],
        "a": {"kind": "array", "shape": [2, 3], "dtype": "float32", "containers": ["dict", "list"]},
        "b": {"kind": "array", "shape": [2, 3], "dtype": "float32", "containers": ["dict", "dict"]},
    }
    nested = diff_trees(tree("w/[0]/0"), tree("w/0/[0]"))
    assert [r.what for r in difference_rows(nested)] == [
        "f32[2,3] in a list and a dict → f32[2,3] in a dict and a list"
    ]


# --- empty nodes ------------------------------------------------------------------------------------------


def test_empty_nodes_that_the_other_format_cannot_have() -> None:
    a = listing({"w": "float32[2,3]", "x": "float32[2,3]", "m/0": "empty", "m/1": "empty"})
    found = diff_trees(a, tree("w"), None, Holds("npz", empty=False, lists=False))
    assert found.different
    assert [(r.word, r.key, r.count, r.why) for r in difference_rows(found)] == [
        ("only in A", "x", 1, ""),
        ("only in A", "m/{0,1}", 2, "npz holds no empty nodes"),
    ]
    assert [leaf.get("why") for leaf in as_json(found)["only_a"]] == [
        None,
        "npz holds no empty nodes",
        "npz holds no empty nodes",
    ]
    turned = diff_trees(tree("w"), a, Holds("npz", empty=False, lists=False), None)
    assert [r.why for r in difference_rows(turned)] == ["", "npz holds no empty nodes"]
    bare = diff_trees(a, tree("w"))
    assert [r.why for r in difference_rows(bare)] == ["", ""]
