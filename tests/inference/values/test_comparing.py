"""Proofs: whether arrays are equal, and whether drafts make what they should, on real and random values."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import DTYPES, computation, converted, kind
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, X
from ckpt_surgery.inference.values import comparing
from ckpt_surgery.inference.values.comparing import (
    equal,
    equal_elements,
    random_values,
    structure_problems,
    try_on_random_values,
    value_problems,
)
from ckpt_surgery.planner.cutting import side_by_side
from tests.inference.going_back import described, recipe
from tests.inference.two_sides import normal, side
from tests.support.leaves import leaf, listing
from tests.support.plans import plan_of

NAN = np.array([1.0, np.nan, -0.0], np.float32)


@pytest.mark.parametrize(
    ("computed", "wanted", "same"),
    [
        (NAN, NAN.copy(), True),
        (NAN, np.array([1.0, -np.nan, -0.0], np.float32), True),  # NaN is NaN, whatever its bits
        (NAN, np.array([1.0, np.nan, 0.0], np.float32), False),  # but zeros have a sign
        (NAN, np.array([np.nan, 1.0, -0.0], np.float32), False),
        (NAN.astype(ml_dtypes.bfloat16), NAN.astype(ml_dtypes.bfloat16), True),
        (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2).copy().reshape(2, 3), True),
        (
            np.arange(6).reshape(2, 3).T,
            np.arange(6).reshape(2, 3).T.copy(),
            True,
        ),  # in another order of memory
        (np.arange(6).reshape(2, 3), np.arange(6), False),
        (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.uint32), False),
        (np.zeros((0, 3)), np.zeros((0, 3)), True),
        (np.array(5), np.array(5), True),
    ],
)
def test_equal(computed: np.ndarray, wanted: np.ndarray, same: bool) -> None:
    assert equal(computed, wanted) is same


@pytest.mark.parametrize("at", [0, comparing.ELEMENTS - 1, comparing.ELEMENTS, 3 * comparing.ELEMENTS - 1])
def test_the_last_of_many_elements_counts_too(at: int) -> None:
    one = np.zeros(3 * comparing.ELEMENTS, np.int8)
    other = one.copy()
    assert equal(one, other)
    other[at] = 1
    assert not equal(one, other)


def test_a_leaf_is_compared_in_regions_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small budget; each element is read once, on both sides."""
    monkeypatch.setattr(comparing, "side_by_side", lambda values, budget: side_by_side(values, 1))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    source, target = side({"a": array}), side({"b": array})
    read = target.read
    assert read is not None
    regions: list[Region] = []

    def counted(leaf: Leaf, region: Region) -> np.ndarray:
        regions.append(region)
        return read(leaf, region)

    object.__setattr__(target, "read", counted)
    assert equal_elements(Formation("b", ("a",), X, Evidence.VALUES, ""), source, target)
    assert len(regions) > 1
    assert sum(region.size for region in regions) == 12


W = {"w": "float32[4,6]"}

F32, TURNED, BF16S = ({"v": described} for described in ("float32[4,6]", "float32[6,4]", "bfloat16[4,6]"))
UNKNOWN = "makes `u`, which the target does not have"
ROWS = [
    ("match: w, to: v", F32, "w", []),
    ("match: w, to: u", F32, "w", ["does not make `v`", UNKNOWN]),
    ("match: w, to: v", TURNED, "w", ["`v` would be float32[4,6], and is float32[6,4]"]),
    ("match: w, to: v", BF16S, "w", ["`v` would be float32[4,6], and is bfloat16[4,6]"]),
    ("match: w, to: v", F32, "u", ["would be made of `w`, and not of `u`"]),
]


@pytest.mark.parametrize(("rules", "target", "sources", "wanted"), ROWS)
def test_structure(rules: str, target: dict[str, str], sources: str, wanted: list[str]) -> None:
    known = [Formation("v", (sources,), X, Evidence.VALUES)]
    problems = structure_problems(plan_of(recipe(rules), W), listing(target), (), known)
    assert len(problems) == len(wanted)
    for one, text in zip(problems, wanted, strict=True):
        assert text in one


def test_what_is_undecided_need_not_be_made() -> None:
    wanted = listing({"v": "float32[4,6]", "u": "int8[1]"})
    assert structure_problems(plan_of(recipe("match: w, to: v"), W), wanted, {"u"}) == []


@pytest.mark.parametrize(
    ("evidence", "problems"),
    [(Evidence.ARITHMETIC, {"v": "not every element is equal"}), (Evidence.HINT, {})],
)
def test_values_are_compared_where_they_are_the_evidence(
    evidence: Evidence, problems: dict[str, str]
) -> None:
    source, target = {"w": normal(4, 6)}, {"v": normal(4, 6)}
    target["v"][3, 5] = 1
    progress: list[int] = []
    plan, known = plan_of(recipe("match: w, to: v"), W), [Formation("v", ("w",), X, evidence)]
    assert dict(value_problems(plan, known, side(source), side(target), progress.append)) == problems
    assert sum(progress) == (96 if problems else 0)


def test_a_value_that_cannot_be_computed_is_the_reason() -> None:
    source, target = {"w": np.array([1, 300])}, {"v": np.array([1, 2], np.int8)}
    plan = plan_of(recipe("match: w, to: v, value: \"cast(x, 'int8')\""), described(source))
    known = [Formation("v", ("w",), X, Evidence.VALUES)]
    [(_, problem)] = value_problems(plan, known, side(source), side(target), lambda count: None)
    assert "300" in problem


def outputs_of(text: str, source: Mapping[str, str]) -> dict[str, str]:
    return {step.leaf.key.text: str(step.leaf.spec) for step in plan_of(text, source).steps}


def flaws(there: str, back: str, source: Mapping[str, str]) -> list[str]:
    first = plan_of(there, source)
    return try_on_random_values(first, plan_of(back, outputs_of(there, source)))[0]


WRONG = [
    (
        "match: w, value: x.T",
        "match: w, value: 'flip(x.T, 0)'",
        "has other values at [0:4, 0:6], on random values",
    ),
    ("match: w, value: 'x * 4'", "match: w, value: 'x / 2'", "has other values at"),
    (
        "match: w, value: \"cast(x, 'bfloat16')\"",
        "match: w, value: \"cast(x, 'float32')\"",
        "has other values at",
    ),
    (
        "match: w, value: x.T",
        "match: w, value: \"cast(x.T * 1e10, 'float16')\"",
        "cannot be run on random",
    ),
]


def test_the_right_inverse_has_no_flaw() -> None:
    there = recipe("match: w, value: 'flip(x.T, 0)'")
    assert flaws(there, recipe("match: w, value: 'flip(x, 0).T'"), W) == []


@pytest.mark.parametrize(("there", "back", "flaw"), WRONG)
def test_a_wrong_inverse_is_found(there: str, back: str, flaw: str) -> None:
    [problem] = flaws(recipe(there), recipe(back), W)
    assert problem.startswith(f"`w` {flaw}")


def test_large_leaves_are_tried_in_regions() -> None:
    large = {"w": "int8[3000,1000]"}
    there, wrong = recipe("match: w, value: x.T"), recipe("match: w, value: 'flip(x.T, 0)'")
    first = plan_of(there, large)
    assert try_on_random_values(first, plan_of(there, outputs_of(there, large))) == ([], ["w"])
    assert len(flaws(there, wrong, large)) == 1


def test_leaves_that_are_no_arrays_are_those_that_they_were() -> None:
    source = {"a": "string", "b": "string"}
    there = plan_of(recipe("match: (.), to: 'n/\\1'"), source)
    listed = {"n/a": "string", "n/b": "string"}
    assert try_on_random_values(there, plan_of(recipe("match: n/(.), to: '\\1'"), listed)) == ([], [])
    swapped = plan_of(recipe("match: n/a, to: b", "match: n/b, to: a"), listed)
    flawed = ["`b` is not what it was", "`a` is not what it was"]
    assert try_on_random_values(there, swapped) == (flawed, [])


def test_the_structure_of_what_comes_back() -> None:
    back = plan_of(
        recipe("match: w, value: x.T", "match: v, to: new"), W | {"v": "int8[1]", "u": "scalar:int64"}
    )
    wanted = listing({**W, "gone": "int8[1]", "lost": "int8[1]", "u": "int64[]"})
    assert structure_problems(back, wanted, {"lost"}, back=True) == [
        "the draft does not make `gone`",
        "the draft makes `new`, which the source does not have",
        "`w` would be float32[6,4], and is float32[4,6] in the source",
        "`u` would be scalar, and is array in the source",
    ]
    back = plan_of(recipe("match: b, to: l/0"), {"b": "int8[1]"})
    [flaw] = structure_problems(back, listing({"l/[0]": "int8[1]"}), (), back=True)
    assert "list index" in flaw


@pytest.mark.parametrize("name", DTYPES)
def test_random_values_of_a_region_are_those_of_the_whole(name: str) -> None:
    key = leaf("k", f"{name}[5,7]")
    spec = key.spec
    assert spec is not None
    whole = random_values("", key, Region.whole(spec.shape))
    assert (whole.shape, whole.dtype) == (spec.shape, spec.dtype)
    region = Region((1, 2), (4, 7))
    assert random_values("", key, region).tobytes() == whole[region.slices].tobytes()
    assert len(np.unique(whole.view(np.uint8))) > 1
    if kind(spec.dtype) != "b":
        values = converted(whole, computation(spec.dtype))
        assert np.isfinite(values).all()
        assert (values != 0).all()
    if spec.dtype.itemsize > 1:
        other = leaf("other", f"{name}[5,7]")
        assert random_values("", other, region).tobytes() != random_values("", key, region).tobytes()
