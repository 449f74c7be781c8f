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
"""Maximum number of rules of a draft, relative to a recipe written by hand."""


def inferred(source: Arrays, target: Arrays, **options: Any) -> Inferred:
    """Infer a recipe between two trees, given by key path."""
    return infer(nested(source), nested(target), **options)


def rules_of(inference: Inferred) -> list[dict[str, Any]]:
    """The rules of a draft, in the types of YAML."""
    return yaml.safe_load(inference.recipe)["rules"]


def carried_out(inference: Inferred, source: Arrays, target: Arrays | None) -> dict[str, np.ndarray]:
    """Run a draft on a source; results by key path. `target`: gives the values that the source lacks."""
    plans: list[Plan] = []  # keeps warnings about dots in names out of the log
    wanted = None if target is None else nested(target)
    with jax.enable_x64(True):
        restored = restore(inference.recipe, nested(source), target=wanted, on_plan=plans.append)
    return {key: np.asarray(value) for key, value in flattened(restored).items()}


def assert_found(source: Arrays, target: Arrays, by_hand: int, **options: Any) -> Inferred:
    """Assert that a draft makes all of the target, bit for bit, with about as few rules as `by_hand`."""
    inference = inferred(source, target, **options)
    questions = [(one.targets[:3], one.why) for one in inference.findings.undecided]
    assert inference.decided, (questions, inference.problems)
    assert_same(carried_out(inference, source, target if inference.needs_target else None), target)
    assert len(rules_of(inference)) <= MARGIN * by_hand, inference.recipe
    return inference


def undecided(inference: Inferred) -> set[str]:
    """The keys of the target that evidence does not decide."""
    return {key for one in inference.findings.undecided for key in one.targets}
