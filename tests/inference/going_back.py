"""Recipes and their inverses, run on small arrays in memory."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.inference.drafts.drafting import draft_recipe
from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.undoing.inverting import Inversion, invert_plan
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.plan import Plan
from tests.support.leaves import listing
from tests.support.plans import plan_of

Arrays = Mapping[str, np.ndarray]
_X = re.compile(r"\bxs\[(\d+)\]|\bxs\b|\bx\b")


def recipe(*rules: str) -> str:
    """The text of a recipe with these rules in flow style, without their braces."""
    return "version: 1\nrules:\n" + "".join(f"- {{{rule}}}\n" for rule in rules)


def backwards(text: str, source: Mapping[str, str], **options: Any) -> Inversion:
    """Invert a recipe on leaves that are described as in `tests.support.leaves.leaf`."""
    return invert_plan(plan_of(text, source, **options), "source", listing(source))


def values(inversion: Inversion) -> dict[str, str]:
    """The expression of each leaf that comes back."""
    return {one.target: str(one.value) for one in inversion.findings.formations}


def reasons(inversion: Inversion) -> dict[str, str]:
    """The reason for each leaf that does not come back."""
    return {one.key: one.why for one in inversion.irreversible}


def random_arrays(source: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Arrays of this description, with random values of moderate size."""
    random = np.random.default_rng(7)
    arrays = {}
    for key, one in source.items():
        dtype, _, shape = one.rstrip("]").partition("[")
        lengths = [int(n) for n in shape.split(",") if n]
        drawn = random.normal(size=lengths) * 8
        arrays[key] = drawn.astype(np.float32).astype(DTYPES[dtype])
    return arrays


def computed(plan: Plan, arrays: Arrays) -> dict[str, np.ndarray]:
    """Run a plan on arrays."""
    return {
        step.leaf.key.text: evaluate(
            step.value,
            Region.whole(step.value.spec.shape),
            lambda source, leaf, region: arrays[leaf.key.text][region.slices],
        )
        for step in plan.steps
    }


def applied(formations: tuple[Formation, ...], arrays: Arrays) -> dict[str, np.ndarray]:
    """Run formations on arrays, each by a rule of its own."""
    if not formations:
        return {}
    rules = [f"add: {one.target!r}, value: {_looked_up(one)!r}" for one in formations]
    text = recipe(*rules).replace("version: 1", "version: 1\nunmatched: drop")
    return computed(plan_of(text, described(arrays)), arrays)


def _looked_up(formation: Formation) -> str:
    """The value with each leaf looked up by its key."""

    def leaf(match: re.Match[str]) -> str:
        if match[0] == "xs":
            return "[" + ", ".join(f'source["{key}"]' for key in formation.sources) + "]"
        return f'source["{formation.sources[int(match[1] or 0)]}"]'

    return _X.sub(leaf, str(formation.value)).replace("'", '"')


def described(arrays: Arrays) -> dict[str, str]:
    """The listing of arrays."""
    return {key: f"{a.dtype.name}[{','.join(map(str, a.shape))}]" for key, a in arrays.items()}


def there_and_back(text: str, arrays: Arrays, **options: Any) -> tuple[dict[str, np.ndarray], Inversion]:
    """Arrays after a recipe and the draft of its inverse, and the inversion behind that draft."""
    plan = plan_of(text, described(arrays), **options)
    inversion = invert_plan(plan, plan_sources(text)[0], listing(described(arrays)))
    there = computed(plan, arrays)
    draft = draft_recipe(inversion.findings)
    return computed(plan_of(draft.text, described(there)), there), inversion


def plan_sources(text: str) -> tuple[str, ...]:
    """Names of the sources of a recipe for one of them."""
    return parse_recipe(text, "recipe.yaml").recipe.source_names(1)
