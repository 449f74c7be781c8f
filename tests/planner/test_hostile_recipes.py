"""Recipes that nobody means well with are refused with their problems, or they work."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError, PlanError, RecipeError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.planner import limits
from ckpt_surgery.planner.identity import value_digests
from ckpt_surgery.planner.plan import Plan
from tests.support.hostile import LEAVES, hostile_recipe
from tests.support.plans import plan_of

SMALL = 1 << 20
"""Bytes of outputs that are evaluated."""


def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
    assert leaf.spec is not None
    return np.ones(region.shape, leaf.spec.dtype)


def evaluated(plan: Plan) -> None:
    for step in plan.steps:
        if step.leaf.spec is None or step.leaf.spec.nbytes > SMALL or step.cut is None:
            continue
        value_digests([step.value])
        if step.cut.working_set > 64 * SMALL:
            continue
        try:
            block = evaluate(step.value, Region.whole(step.leaf.spec.shape), read)
        except DataError:
            continue
        assert (block.shape, block.dtype) == (step.leaf.spec.shape, step.leaf.spec.dtype)


@settings(max_examples=60, deadline=None)
@given(number=st.integers(0, 2**60))
def test_any_recipe_is_refused_or_works(number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MOST_LEAVES", 2000)
        try:
            plan = plan_of(json.dumps(hostile_recipe(number)), LEAVES)
        except (PlanError, RecipeError) as error:
            assert all(problem.place or "there was none" in problem.message for problem in error.problems)
            return
        evaluated(plan)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(number=st.integers(0, 2**60))
def test_thousands_of_recipes(number: int) -> None:
    test_any_recipe_is_refused_or_works.hypothesis.inner_test(number)  # type: ignore[attr-defined]


NODES = {"a": "float32[4,4]", "b": "float32[4,4]"}


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("x + x", 1500),
        ("where(x > 0, x, -x)", 100),
        ("concat([x, x])[:4]", 100),
        ("x @ x.T", 100),
        ("stack([x, x])[0]", 100),
        ("concat([x[1:], x[:1]])", 100),
        ("x.T", 100),
        ("x + source['b']", 100),
    ],
)
def test_passes_take_what_each_of_them_takes(value: str, count: int) -> None:
    """Where each pass uses the one before twice, there are 2^count paths to the leaf."""
    plan = plan_of("version: 1\npasses:\n" + f'- rules: [{{match: a, value: "{value}"}}]\n' * count, NODES)
    step = plan.steps[0]
    assert step.cut is not None
    assert step.cut.read <= 4 * 4 * 4 * 4
    reads: list[str] = []

    def zeros(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        reads.append(leaf.key.text)
        return np.zeros(region.shape, np.float32)

    assert not evaluate(step.value, Region.whole((4, 4)), zeros).any()
    assert len(reads) <= 4


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("repeat(x, 10**12, 0)", "`repeat` would make float32[4000000000000,4], 58.2 TiB out of 64 B"),
        ("tile(x, (10**6, 10**6))", "`tile` would make float32[4000000,4000000], 58.2 TiB out of 64 B"),
        ("pad(x, 0, 10**15)", "`pad` would make float32[1000000000000000,4]"),
        ("stack([x], count=10**12, fill=0)", "`stack` would make float32[1000000000000,4,4]"),
        ("stack([x], count=10**12)", "no array has the index 1, 2, 3, 4, 5, …"),
        (
            "zeros((10**9, 10**9), 'float32')",
            "`zeros` would make float32[1000000000,1000000000]",
        ),
        ("zeros((0, 10**30), 'float32')", "`zeros` would make an axis of 1000000000000000000000000000000"),
        ("init('normal', (10**9, 10**9), 'float32')", "`init` would make float32[1000000000,1000000000]"),
        ("arange(10**18, dtype='int64')", "`arange` would make int64[1000000000000000000]"),
        ("expand_dims(x, range(10**6))", "`expand_dims`: 1,000,000 axes; the limit is 32"),
        ("zeros(range(10**6), 'int8')", "`zeros`: 1,000,000 axes; the limit is 32"),
        ("reshape(x, range(10**6))", "`reshape`: 1,000,000 axes; the limit is 32"),
    ],
)
def test_sizes_are_refused(value: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(f'version: 1\nrules: [{{match: a, value: "{value}"}}]', NODES)
    (problem,) = caught.value.problems
    assert says in problem.message
    assert problem.place is not None
    assert (problem.place.path, problem.place.width) == ("rules[0].value", len(value))


@pytest.mark.parametrize(
    "value",
    ["repeat(x, 10**9, 0)", "tile(x, (10**9, 1))", "tile(tile(x, (10**5, 1)), (10**4, 1))[1:10**8:3]",
     "pad(x, 0, 10**9)", "repeat(repeat(x, 10**4, 0), 10**5, 0)[::7]"],
)  # fmt: skip
def test_large_outputs_are_planned_without_listing_their_indices(value: str) -> None:
    plan = plan_of(f'version: 1\nrules: [{{match: a, value: "{value}"}}]', NODES)
    assert plan.steps[0].leaf.spec is not None
    assert plan.steps[0].leaf.spec.size > 10**8
