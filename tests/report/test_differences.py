"""Two listings beside each other, made by hand: what differs, as rows and as JSON."""

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.documents import plain
from ckpt_surgery.report.diff_document import diff_document
from ckpt_surgery.report.differences import (
    EVERYTHING,
    ComparedLeaf,
    Difference,
    Holds,
    NotCompared,
    diff_trees,
    difference_rows,
)
from tests.support.leaves import array_leaf, by_key, leaf, listing

BF16 = np.dtype(ml_dtypes.bfloat16)


def as_json(found: Difference) -> Any:
    return plain(diff_document(found))


def test_the_document() -> None:
    found = diff_trees(by_key(array_leaf("w"), array_leaf("x")), by_key(array_leaf("w", dtype=BF16)))
    assert as_json(found) == {
        "schema": 1,
        "different": True,
        "common": 1,
        "only_a": [{"key": "x", "components": ["x"], "kind": "array", "shape": [2, 3], "dtype": "float32"}],
        "only_b": [],
        "changed": [
            {
                "key": "w",
                "components": ["w"],
                "what": ["dtype"],
                "a": {"kind": "array", "shape": [2, 3], "dtype": "float32"},
                "b": {"kind": "array", "shape": [2, 3], "dtype": "bfloat16"},
            }
        ],
        "renamed": [],
        "rtol": 0.0,
        "atol": 0.0,
        "values": None,
        "not_compared": None,
        "warnings": [],
    }
    with_values = replace(found, values=(ComparedLeaf("w", ("w",), False, 0.5, math.inf, None),))
    assert as_json(with_values)["values"] == [
        {
            "key": "w",
            "components": ["w"],
            "equal": False,
            "max_abs": 0.5,
            "max_rel": "Infinity",
            "cosine": None,
        }
    ]


def test_diff_trees() -> None:
    a = listing(["same", "gone", "w", "x", "y"])
    b = listing(
        {"w": "float32[3,2]", "same": "float32[2,3]", "x": "bfloat16[2,3]", "y": "string", "n": "empty"}
    )
    found = diff_trees(a, b)
    assert [leaf.key.text for leaf in found.only_a] == ["gone"]
    assert [leaf.key.text for leaf in found.only_b] == ["n"]
    changes = [("w", ("shape",)), ("x", ("dtype",)), ("y", ("kind",))]
    assert [(c.key, c.what) for c in found.changed] == changes
    assert (found.common, found.different) == (4, True)
    assert not diff_trees(b, dict(reversed(b.items()))).different


@pytest.mark.parametrize(
    ("kind", "name"), [("string", "string"), ("empty", "empty"), ("prng_key", "prng_impl")]
)
def test_diff_trees_compares_what_listings_say_of_values(kind, name):
    one = leaf("k", kind)
    found = diff_trees(by_key(one), by_key(replace(one, **{name: "other"})))
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
    a, b = (by_key(replace(leaf("s", "string"), string=text)) for text in ("x\n", "y"))
    assert [r.what for r in difference_rows(diff_trees(a, b))] == ['"x\\n" → "y"']


def test_values_make_a_difference_and_so_does_what_could_not_be_compared() -> None:
    same = diff_trees(by_key(array_leaf("w")), by_key(array_leaf("w")))
    for equal in (True, False):
        compared = ComparedLeaf("w", ("w",), equal, 0.0, 0.0, 1.0)
        assert replace(same, values=(compared,)).different is not equal
    found = replace(same, values=(), uncompared=(NotCompared("w", ("w",), "it is a pickle"),))
    assert (found.known, found.different) == (False, True)
    document = as_json(found)
    assert document["different"] is True
    assert document["not_compared"] == [{"key": "w", "components": ["w"], "why": "it is a pickle"}]


# --- containers -------------------------------------------------------------------------------------------

NO_LISTS = Holds("safetensors", lists=False)
CONTAINERS = [
    ("w/[0]", "w/0", EVERYTHING, EVERYTHING, True, "a list and a dict"),
    ("w/[0]", "w/[0]", EVERYTHING, EVERYTHING, False, "two lists"),
    ("w/[0]/a/0", "w/[0]/a/[0]", EVERYTHING, EVERYTHING, True, "the inner one of two"),
    ("w/[0]", "w/0", EVERYTHING, NO_LISTS, False, "what B calls a dict may have been a list"),
    ("w/0", "w/[0]", NO_LISTS, EVERYTHING, False, "the same the other way round"),
    ("w/[0]", "w/0", NO_LISTS, EVERYTHING, True, "A has a list, and B knows its dicts"),
    ("w/[0]/1", "w/0/[1]", NO_LISTS, EVERYTHING, True, "of the two one is known to differ"),
    ("w/0", "w/0", NO_LISTS, NO_LISTS, False, "dicts"),
]


@pytest.mark.parametrize(("a", "b", "holds_a", "holds_b", "told", "reason"), CONTAINERS)
def test_containers_are_part_of_the_structure(
    a: str, b: str, holds_a: Holds, holds_b: Holds, told: bool, reason: str
) -> None:
    found = diff_trees(listing([a]), listing([b]), holds_a, holds_b)
    assert [change.what for change in found.changed] == ([("container",)] if told else []), reason
    assert found.different == told


def test_containers_in_rows_and_in_json() -> None:
    found = diff_trees(listing(["w/[0]", "w/[1]"]), listing(["w/0", "w/1"]))
    (row,) = difference_rows(found)
    assert (row.key, row.count, row.what) == ("w/{0,1}", 2, "f32[2,3] in a list → f32[2,3] in a dict")
    assert as_json(found)["changed"][0] == {
        "key": "w/0",
        "components": ["w", "0"],
        "what": ["container"],
        "a": {"kind": "array", "shape": [2, 3], "dtype": "float32", "containers": ["dict", "list"]},
        "b": {"kind": "array", "shape": [2, 3], "dtype": "float32", "containers": ["dict", "dict"]},
    }
    nested = diff_trees(listing(["w/[0]/0"]), listing(["w/0/[0]"]))
    assert [r.what for r in difference_rows(nested)] == [
        "f32[2,3] in a list and a dict → f32[2,3] in a dict and a list"
    ]


# --- empty nodes ------------------------------------------------------------------------------------------


def test_empty_nodes_that_the_other_format_cannot_have() -> None:
    a = listing({"w": "float32[2,3]", "x": "float32[2,3]", "m/0": "empty", "m/1": "empty"})
    b, of_npz, why = listing(["w"]), Holds("npz", empty=False, lists=False), "npz holds no empty nodes"
    found = diff_trees(a, b, EVERYTHING, of_npz)
    assert found.different
    assert [(r.word, r.key, r.count, r.why) for r in difference_rows(found)] == [
        ("only in A", "x", 1, ""),
        ("only in A", "m/{0,1}", 2, why),
    ]
    assert [leaf.get("why") for leaf in as_json(found)["only_a"]] == [None, why, why]
    assert [r.why for r in difference_rows(diff_trees(b, a, of_npz, EVERYTHING))] == ["", why]
    assert [r.why for r in difference_rows(diff_trees(a, b))] == ["", ""]
