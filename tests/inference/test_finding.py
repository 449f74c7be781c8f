"""Findings about every leaf: by values first, then by names, then among the rest."""

import numpy as np
import pytest

from ckpt_surgery.inference.expressions.formations import ConflictEntry, Evidence, Findings, Shared
from ckpt_surgery.inference.finding import infer_findings
from ckpt_surgery.inference.values.by_values import resemblance
from ckpt_surgery.inference.values.reading import Side
from tests.inference.two_sides import Arrays, normal, side, sides
from tests.support.leaves import listing

A, B, C = (normal(4, 6, seed=i) for i in range(3))


def known(source: Arrays, target: Arrays) -> Findings:
    return infer_findings(*sides(source, target))


def evidence(result: Findings) -> dict[str, tuple[str, Evidence]]:
    return {one.target: (" ".join(one.sources), one.evidence) for one in result.formations}


SHARES = [
    ({"a": A, "b": B}, Shared.SHARED),
    ({"a": A, "b": C}, Shared.SHARED),  # half of it
    ({"a": A, "b": C, "c": C[::-1]}, Shared.PARTLY),
    ({"a": C}, Shared.UNRELATED),
    ({"a": A, "b": np.ones((9, 9), "f4")}, Shared.SHARED),  # ones count for nothing
    ({"a": np.ones((4, 6), "f4")}, Shared.UNRELATED),
]


@pytest.mark.parametrize(("target", "shared"), SHARES, ids=range(len(SHARES)))
def test_how_much_is_shared(target: Arrays, shared: Shared) -> None:
    assert known({"a": A, "b": B}, target).shared == shared


def test_a_listing_has_no_values() -> None:
    result = infer_findings(side({"a/w": A}), Side(listing({"a/w": "float32[4,6]", "z": "int8[7]"})))
    assert result.shared == Shared.NONE
    assert evidence(result) == {"a/w": ("a/w", Evidence.ONLY_LAYOUT)}
    assert [one.targets for one in result.undecided] == [("z",)]
    assert result.from_target == ()


def test_values_are_stronger_than_names() -> None:
    result = known({"a": A, "b": B}, {"a": B, "b": A})
    assert evidence(result) == {"a": ("b", Evidence.VALUES), "b": ("a", Evidence.VALUES)}
    assert result.conflicts == (
        ConflictEntry("a", ("b",), ("a",)),
        ConflictEntry("b", ("a",), ("b",)),
    )


def test_a_leaf_of_its_own_key_is_no_conflict() -> None:
    assert known({"a": A, "b": B}, {"a": A, "c": B}).conflicts == ()


def test_equal_constants_of_equal_keys() -> None:
    ones = np.ones(4, np.float32)
    result = known({"a": A, "norm": ones}, {"a": A, "norm": ones})
    assert evidence(result)["norm"] == ("norm", Evidence.VALUES)


def test_what_nothing_fits_is_the_targets() -> None:
    result = known({"a": A, "b": B}, {"a": A, "b": B, "head": normal(5, 7)})
    assert result.from_target == ("head",)
    assert result.undecided == ()


def test_what_may_have_been_a_dropped_leaf_is_undecided() -> None:
    """`old` has the size of `new`, so an unknown operation may have made one from the other."""
    result = known({"a": A, "old": B}, {"a": A, "new": C})
    assert [one.targets for one in result.undecided] == [("new",)]
    assert [one.sources for one in result.undecided[0].candidates] == [("old",)]
    assert result.undecided[0].own_value == ("drop:old",)
    assert result.dropped == ()
    assert result.from_target == ()


def test_what_feeds_nothing_is_dropped() -> None:
    result = known({"a": A, "m": normal(9)}, {"a": A})
    assert result.dropped == ("m",)


def test_strings_and_empty_nodes_are_kept() -> None:
    others = {"name": "string", "none": "empty"}
    result = infer_findings(side({"a": A}, others), side({"a": A}, others))
    assert {one.target for one in result.formations} == {"a", "name", "none"}


def test_everything_is_in_the_order_of_the_target() -> None:
    result = known({"a": A, "b": B, "c": C}, {"c": C, "a": A, "b": B})
    assert [one.target for one in result.formations] == ["c", "a", "b"]
    assert (result.source_keys, result.target_keys) == (("a", "b", "c"), ("c", "a", "b"))


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [("a/b", "a/b", 1.0), ("a/b", "b/a", 0.99), ("a.b.c", "a/b", 0.66), ("a", "b", 0.0)],
)
def test_resemblance(one: str, other: str, wanted: float) -> None:
    assert resemblance(one, other) == pytest.approx(wanted)


def test_values_against_names_are_told_across_formats() -> None:
    source = {"layers.0.q_proj.weight": A, "layers.0.k_proj.weight": B}
    target = {"params/layers_0/query/kernel": B.T.copy(), "params/layers_0/key/kernel": A.T.copy()}
    conflicts = {(one.target, one.by_values, one.by_names) for one in known(source, target).conflicts}
    assert conflicts == {
        ("params/layers_0/query/kernel", ("layers.0.k_proj.weight",), ("layers.0.q_proj.weight",)),
        ("params/layers_0/key/kernel", ("layers.0.q_proj.weight",), ("layers.0.k_proj.weight",)),
    }


def test_candidates_of_one_shape_are_told_one_by_one() -> None:
    source = side({f"layers_{i}/attn/query/kernel": normal(9, 9, seed=i) for i in range(3)})
    result = infer_findings(source, Side(listing({"attn/query/kernel": "float32[9,9]"})))
    candidates = [candidate.sources for one in result.undecided for candidate in one.candidates]
    assert sorted(candidates) == [(key,) for key in source.leaves]
