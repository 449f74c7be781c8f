"""From two layouts of one model to a recipe, and from the recipe to every element of the other layout."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import yaml

from ckpt_surgery import Inferred, Plan, infer, restore
from tests.support.comparing import assert_same
from tests.support.trees import flattened, nested

Arrays = Mapping[str, np.ndarray]
MARGIN = 1.5
"""How many times as many rules as a person would write a draft may have."""


def inferred(source: Arrays, target: Arrays, **options: Any) -> Inferred:
    """What is found between two trees, given by key path."""
    return infer(nested(source), nested(target), **options)


def rules_of(found: Inferred) -> list[dict[str, Any]]:
    """The rules of a draft, in the types of YAML."""
    return yaml.safe_load(found.recipe)["rules"]


def carried_out(found: Inferred, source: Arrays, target: Arrays | None) -> dict[str, np.ndarray]:
    """What a draft makes of a source, by key path. `target`: where values come from that the source lacks."""
    plans: list[Plan] = []  # warnings, of dots in names, are not logged
    with jax.enable_x64(True):
        made = restore(
            found.recipe,
            nested(source),
            target=None if target is None else nested(target),
            on_plan=plans.append,
        )
    return {key: np.asarray(value) for key, value in flattened(made).items()}


def assert_found(source: Arrays, target: Arrays, by_hand: int, **options: Any) -> Inferred:
    """Assert that a draft makes all of the target, bit for bit, with about as few rules as `by_hand`."""
    found = inferred(source, target, **options)
    assert found.decided, [(one.targets[:3], one.why) for one in found.findings.undecided] + [found.problems]
    assert_same(carried_out(found, source, target if found.needs_target else None), target)
    assert len(rules_of(found)) <= MARGIN * by_hand, found.recipe
    return found


def undecided(found: Inferred) -> set[str]:
    """The keys of the target that evidence does not decide."""
    return {key for one in found.findings.undecided for key in one.targets}
