"""Entries between passes: what results of expressions become, and which components are list indices."""

from dataclasses import replace
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.functions.arrays import Apply, Array, Read, Series
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.planner.entries import RuleRef, SourceLeaves, computed, under
from tests.support.leaves import key, leaf

RULE = RuleRef("rules[3]", 7)
W = Key.parse("w")


class Layers(IntEnum):
    """Numbers as a hook may return them."""

    SOME = 3


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (3, "int64"), (Layers.SOME, "int64"), (0.5, "float64"), (np.float64(2), "float64")],
)
def test_numbers_become_scalars(value: float, dtype: str) -> None:
    entry = computed(value, None, W)
    assert (entry.key, entry.leaf.kind, entry.rule) == (W, LeafKind.SCALAR, None)
    assert (entry.value.spec.shape, entry.value.spec.dtype.name) == ((), dtype)
    assert entry.leaf.spec == entry.value.spec


@pytest.mark.parametrize(
    ("value", "described", "hint"),
    [
        (None, "None", None),
        ("text", "the text 'text'", None),
        ([], "a list of 0 values", None),
        ([1, 2], "a list of 2 values", "Take one of them: write `[0]` behind the list, say."),
        (Series((), None), "a list of 0 arrays", "Make one array of them: `stack(xs)`, say."),
        (SourceLeaves("base", {}), "a source", "Take one of its leaves: `base['a/b']`."),
    ],
)
def test_what_is_neither_array_nor_number(value: object, described: str, hint: str | None) -> None:
    with pytest.raises(SurgeryError) as caught:
        computed(value, None, W)
    (problem,) = caught.value.problems
    assert problem.message == f"`value` gives {described}, not an array or a number"
    assert problem.hint == hint


def test_a_leaf_as_it_is_keeps_its_metadata() -> None:
    one = replace(leaf("a"), sharding="{}")
    node = Read("source", one)
    entry = computed(Array(node, node.spec.dtype), None, W)
    assert (entry.key, entry.leaf, entry.value) == (W, one, node)


def test_what_is_computed_wider_is_rounded_to_its_dtype() -> None:
    wide = Apply(Cast(np.dtype(np.float32)), (Read("source", leaf("a", "float16[2]")),))
    entry = computed(Array(wide, np.dtype(np.float16)), None, W)
    assert entry.value.spec.dtype == np.float16
    assert entry.leaf.spec == entry.value.spec


@pytest.mark.parametrize(
    ("described", "kind"), [("scalar:int64", LeafKind.SCALAR), ("int64[]", LeafKind.ARRAY)]
)
def test_what_is_made_of_scalars_is_a_scalar(described: str, kind: LeafKind) -> None:
    node = Apply(Cast(np.dtype(np.float64)), (Read("source", leaf("a", described)),))
    assert computed(Array(node, node.spec.dtype), None, W).leaf.kind is kind


SINGLE = '{"sharding_type": "SingleDeviceSharding"}'
NAMED = '{"sharding_type": "NamedSharding"}'


@pytest.mark.parametrize(
    ("shape", "sharding", "inherited"),
    [("2,2", NAMED, True), ("2,3", NAMED, False), ("2,3", SINGLE, True)],
)
def test_a_sharding_stays_with_its_shape(shape: str, sharding: str, inherited: bool) -> None:
    model = replace(leaf("a", f"float32[{shape}]"), sharding=sharding)
    node = Apply(Transpose(), (Read("source", model),))
    made = computed(Array(node, node.spec.dtype), model, W)
    assert made.leaf.sharding == (sharding if inherited else None)
    assert computed(Array(node, node.spec.dtype), None, W).leaf.sharding is None


@pytest.mark.parametrize(
    ("text", "old", "new", "wanted"),
    [
        ("params/a/[0]", "params", "opt/0/mu", "opt/[0]/mu/a/[0]"),
        ("params", "params", "mu", "mu"),
        ("paramsx/a", "params", "mu", None),
        ("a/params", "params", "mu", None),
    ],
)
def test_a_subtree_moves(text: str, old: str, new: str, wanted: str | None) -> None:
    moved = under(key(text), old.split("/"), new.split("/"), frozenset([("opt",)]))
    assert moved == (None if wanted is None else key(wanted))


@given(st.lists(st.sampled_from(["a", "b", "[0]", "[1]", "2"]), min_size=1, max_size=5))
def test_a_key_moved_there_and_back_is_the_same(parts: list[str]) -> None:
    there = under(key("/".join(["p", *parts])), ["p"], ["q", "0"], frozenset([("q",)]))
    assert there == key("/".join(["q", "[0]", *parts]))
    assert there is not None
    assert under(there, ["q", "0"], ["p"], frozenset()) == key("/".join(["p", *parts]))
