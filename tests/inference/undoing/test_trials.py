"""Recipes and inverses on random values: what is wrong is found, by region too."""

from collections.abc import Mapping

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DTYPES, computation, converted, kind
from ckpt_surgery.inference.undoing.trials import structure_problems, tried
from ckpt_surgery.inference.values.random_values import random_region
from tests.inference.going_back import recipe
from tests.support.leaves import listing
from tests.support.plans import plan_of

W = {"w": "float32[4,6]"}


def outputs_of(text: str, source: Mapping[str, str]) -> dict[str, str]:
    return {step.leaf.key.text: str(step.leaf.spec) for step in plan_of(text, source).steps}


def flaws(there: str, back: str, source: Mapping[str, str]) -> tuple[str, ...]:
    first = plan_of(there, source)
    return tried(first, plan_of(back, outputs_of(there, source))).problems


def test_the_right_inverse_has_no_flaw() -> None:
    there = recipe("match: w, value: 'flip(x.T, 0)'")
    assert flaws(there, recipe("match: w, value: 'flip(x, 0).T'"), W) == ()


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


@pytest.mark.parametrize(("there", "back", "flaw"), WRONG)
def test_a_wrong_inverse_is_found(there: str, back: str, flaw: str) -> None:
    [found] = flaws(recipe(there), recipe(back), W)
    assert found.startswith(f"`w` {flaw}")


def test_large_leaves_are_tried_in_regions() -> None:
    large = {"w": "int8[3000,1000]"}
    there, wrong = recipe("match: w, value: x.T"), recipe("match: w, value: 'flip(x.T, 0)'")
    first = plan_of(there, large)
    assert tried(first, plan_of(there, outputs_of(there, large))).sampled == ("w",)
    assert tried(first, plan_of(there, outputs_of(there, large))).problems == ()
    assert len(flaws(there, wrong, large)) == 1


def test_leaves_that_are_no_arrays_are_those_that_they_were() -> None:
    source = {"a": "string", "b": "string"}
    there = plan_of(recipe("match: (.), to: 'n/\\1'"), source)
    made = {"n/a": "string", "n/b": "string"}
    assert tried(there, plan_of(recipe("match: n/(.), to: '\\1'"), made)).problems == ()
    swapped = plan_of(recipe("match: n/a, to: b", "match: n/b, to: a"), made)
    assert tried(there, swapped).problems == ("`b` is not what it was", "`a` is not what it was")


def test_structure_is_compared() -> None:
    back = plan_of(
        recipe("match: w, value: x.T", "match: v, to: new"), W | {"v": "int8[1]", "u": "scalar:int64"}
    )
    wanted = listing({**W, "gone": "int8[1]", "lost": "int8[1]", "u": "int64[]"})
    assert structure_problems(back, wanted, frozenset({"lost"})) == (
        "`gone` does not come back",
        "`w` comes back as float32[6,4], and is float32[4,6] in the source",
        "`new` is made, which the source does not have",
        "`u` comes back as scalar, and is array in the source",
    )


def test_lists_are_compared() -> None:
    back = plan_of(recipe("match: b, to: l/0"), {"b": "int8[1]"})
    assert structure_problems(back, listing({"l/[0]": "int8[1]"}), frozenset()) == (
        "`l/0` has a list index in the source where it comes back with a key of a dict, or the reverse",
    )


@pytest.mark.parametrize("name", DTYPES)
def test_random_values_of_a_region_are_those_of_the_whole(name: str) -> None:
    spec = ArraySpec((5, 7), DTYPES[name])
    whole = random_region("k", spec, Region.whole(spec.shape))
    assert (whole.shape, whole.dtype) == (spec.shape, spec.dtype)
    region = Region((1, 2), (4, 7))
    assert random_region("k", spec, region).tobytes() == whole[region.slices].tobytes()
    assert len(np.unique(whole.view(np.uint8))) > 1
    if kind(spec.dtype) != "b":
        values = converted(whole, computation(spec.dtype))
        assert np.isfinite(values).all()
        assert (values != 0).all()
    if spec.dtype.itemsize > 1:
        assert random_region("other", spec, region).tobytes() != random_region("k", spec, region).tobytes()


def test_a_random_number() -> None:
    spec = ArraySpec((), np.dtype(np.float32))
    assert random_region("k", spec, Region((), ())).shape == ()
