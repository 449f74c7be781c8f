"""The text that `diff` shows, to the character."""

from dataclasses import replace

import numpy as np

from ckpt_surgery.cli.render.difference import difference_lines
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.differences import ComparedLeaf, Holds, NotCompared, diff_trees
from ckpt_surgery.report.distances import Tolerance


def far(key: str, equal: bool, max_abs: float, max_rel: float, cosine: float | None) -> ComparedLeaf:
    return ComparedLeaf(key, (key,), equal, max_abs, max_rel, cosine)


def shown(lines) -> str:
    return "\n".join(line.plain for line in lines)


def compared(a, b, **values) -> str:
    found = replace(diff_trees({x.key.text: x for x in a}, {x.key.text: x for x in b}), **values)
    return shown(difference_lines(found, full=False, width=100))


def test_a_difference_and_none(leaves):
    other = [replace(leaf, kind=leaves[-1].kind) if leaf is leaves[-2] else leaf for leaf in leaves[6:-1]]
    assert compared(leaves, other) == (
        "only in A    params/layer_{0..5}/mlp/kernel  6 × bf16[2048,8192]\n"
        "only in A    name                                string\n"
        "changed      step                                scalar i64 → string\n"
        "different: 7 only in A, 1 changed; 20 leaves in both"
    )
    assert compared(leaves, leaves) == (
        "same keys, kinds, shapes, dtypes (27 leaves); --values compares the numbers too"
    )
    assert compared(leaves, leaves, values=()) == "same keys, kinds, shapes, dtypes and values (27 leaves)"


def test_values_that_cannot_be_compared(leaves):
    values = (far("b", False, 1e-3, float("inf"), None),)
    uncompared = tuple(NotCompared(f"k{i}", (), "it is a pickle") for i in range(22))
    lines = compared(leaves, leaves, values=values, uncompared=uncompared).split("\n")
    assert lines[:2] == [
        "values       b  max abs 0.001  max rel inf  cosine -",
        "not compared k0   it is a pickle",
    ]
    assert lines[-2:] == [
        "not compared and 2 more leaves (--full)",
        "different: 1 with other values, 22 not compared; 27 leaves in both",
    ]
    assert compared(leaves, leaves, values=(), uncompared=uncompared[:1]) == (
        "not compared k0  it is a pickle\nnot known to be the same: 1 not compared; 27 leaves in both"
    )


def test_empty_nodes_that_the_other_format_cannot_have(leaves):
    empty = [Leaf(Key.parse(f"m/{i}"), LeafKind.EMPTY, empty="None") for i in range(3)]
    found = diff_trees(
        {x.key.text: x for x in (*leaves, *empty)},
        {x.key.text: x for x in leaves},
        Holds(),
        Holds("npz", empty=False),
    )
    assert shown(difference_lines(found, full=False, width=120)) == (
        "only in A    m/{0..2}  3 × empty None  npz holds no empty nodes\n"
        "same shapes, dtypes (27 leaves); --values compares the numbers too; "
        "npz has no place for 3 empty nodes"
    )


def test_scalars_that_the_other_format_cannot_have():
    a, b = (
        {"step": Leaf(Key.parse("step"), kind, ArraySpec((), np.dtype(np.int64)))}
        for kind in (LeafKind.SCALAR, LeafKind.ARRAY)
    )
    found = diff_trees(a, b, Holds("orbax"), Holds("npz", empty=False))
    assert shown(difference_lines(found, full=False, width=100)) == (
        "same keys, shapes, dtypes (1 leaf); --values compares the numbers too; npz has no place for 1 scalar"
    )
    # Between formats that have scalars, and the other way round, it is a difference.
    assert not found.different
    assert diff_trees(a, b, Holds("orbax"), Holds("flax")).changed[0].what == ("kind",)
    assert diff_trees(a, b, Holds("npz", empty=False), Holds("orbax")).different


def test_layers_with_other_values_are_folded(leaves):
    layers = [far(f"l_{i}/w", False, 0.5 * i, 1.0, 1 - 0.1 * i) for i in (1, 2, 5)]
    one = far("e", False, 4.0, 1.0, 0.25)
    odd = [far(f"x_{i}/y_{j}", False, 0.1, 1.0, None) for i, j in ((0, 0), (1, 0), (1, 1))]
    assert compared(leaves, leaves, values=(*layers, one, *odd)).split("\n") == [
        "values       e                      max abs 4    max rel 1  cosine 0.25000000",
        "values       l_{1,2,5}/w  3 leaves  max abs 2.5  max rel 1  cosine 0.50000000",
        "values       x_0/y_0                max abs 0.1  max rel 1  cosine -",
        "values       x_1/y_0                max abs 0.1  max rel 1  cosine -",
        "values       x_1/y_1                max abs 0.1  max rel 1  cosine -",
        "different: 7 with other values; 27 leaves in both",
    ]


def test_the_largest_differences_come_first_and_only_they_without_full(leaves):
    distances = {"a": (1e-3, 5.0), "b": (2.0, 1e-4), "c": (1e-3, float("inf")), "d": (float("inf"), 0.1)}
    distances |= {f"{x}{y}": (0.0, 0.0) for x in "klmno" for y in "abcd"}
    values = tuple(far(key, False, *two, 1.0) for key, two in distances.items())
    lines = compared(leaves, leaves, values=values).split("\n")
    assert [line.split()[1] for line in lines[:4]] == ["d", "b", "c", "a"]
    assert lines[20] == "values       and 4 more leaves (--full)"


def test_tolerances_are_told(leaves):
    within = {"values": (), "tolerance": Tolerance(1e-5, 0.0)}
    assert compared(leaves, leaves, **within) == (
        "same keys, kinds, shapes, dtypes and values (27 leaves) (rtol 1e-05, atol 0)"
    )
    other = (far("step", False, 1.0, 1.0, 1.0),)
    assert compared(leaves, leaves, values=other, tolerance=Tolerance(0.0, 0.5)).endswith(
        "different: 1 with other values (rtol 0, atol 0.5); 27 leaves in both"
    )
