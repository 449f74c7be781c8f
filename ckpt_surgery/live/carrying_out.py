"""Carry out a plan into arrays on devices: nothing is written."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.planner.plan import Plan


def carry_out(
    plan: Plan,
    sources: Mapping[str, Source],
    target: LiveTree | None,
    shardings: Mapping[str, Any],
    memory: int,
    workers: int,
    donate: bool,
    progress: Callable[[Progress], None] | None,
) -> Mapping[str, Any]:
    """Every value of the result by the text of its key."""
    import jax

    def read(source: str, leaf: Leaf, region: Region) -> np.ndarray:
        return sources[source].read(leaf, region)

    found: dict[str, Any] = {}
    for step in plan.steps:
        if step.leaf.spec is None:
            found[step.leaf.key.text] = step.leaf.string
            continue
        block = evaluate(step.value, Region.whole(step.value.spec.shape), read)
        found[step.leaf.key.text] = jax.device_put(block, shardings.get(step.leaf.key.text))
    return found
