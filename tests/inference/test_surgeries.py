"""`infer` on random surgeries: what it calls decided is the target, bit for bit."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api.inferring import Inferred
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.graph.evaluating import evaluate
from tests.inference.going_back import described
from tests.inference.surgeries import Tree, surgery
from tests.support.comparing import assert_same
from tests.support.plans import plan_of
from tests.support.trees import nested

PARTS = 10
"""Tests that the seeds are spread over, so that several processes share them."""


@pytest.mark.slow("infers from random trees")
@pytest.mark.parametrize("seeds", [*(range(part, 2000, PARTS) for part in range(PARTS))], ids=range(PARTS))
def test_what_is_decided_is_the_target(seeds: range) -> None:
    """The numbers that are printed say how many were decided, by how many values were shared."""
    counts: Counter[tuple[str, bool]] = Counter()
    for seed in seeds:
        try:
            inference = check(*surgery(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        counts[inference.values, inference.decided] += 1
    print(sorted(counts.items()))
    assert sum(count for (_, decided), count in counts.items() if decided) >= len(seeds) // 2


def check(source: Tree, target: Tree) -> Inferred:
    """Infer one surgery, and assert that the result is right."""
    inference = ckpt_surgery.infer(nested(source), nested(target))
    assert inference.problems == ()
    assert inference.findings.target_keys == tuple(target_order(target))
    if inference.decided:
        restored = carried_out(inference.recipe, source, target if inference.needs_target else None)
        if inference.values == "unrelated":
            assert described(restored) == {key: described(target)[key] for key in restored}
            assert sorted(restored) == sorted(target)
        else:
            assert_same(restored, target)
    else:
        assert inference.findings.undecided
    for one in inference.findings.undecided:
        assert set(one.targets) <= set(target)
    return inference


def target_order(target: Tree) -> list[str]:
    """The keys in the order in which a pytree of them has its leaves."""
    import jax

    leaves, _ = jax.tree_util.tree_flatten_with_path(nested(target))
    return ["/".join(part.key for part in path) for path, _ in leaves]


def carried_out(recipe: str, source: Tree, target: Tree | None) -> Mapping[str, np.ndarray]:
    """Run a recipe on arrays in memory with NumPy: JAX may have no float64."""
    wanted = None if target is None else described(target)
    plan = plan_of(recipe, described(source), target=wanted)

    def read(name: str, leaf: Leaf, region: Region) -> np.ndarray:
        arrays = source if name != "target" else target
        assert arrays is not None
        return arrays[leaf.key.text][region.slices]

    return {
        step.leaf.key.text: evaluate(step.value, Region.whole(step.value.spec.shape), read)
        for step in plan.steps
    }
