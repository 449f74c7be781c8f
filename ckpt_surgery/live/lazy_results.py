"""Lazy arrays of a plan's result: each is computed when its elements are asked for, region by region."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.graph.checked import Evaluator
from ckpt_surgery.live.carrying_out import BLOCK, Restoration, make_arrays
from ckpt_surgery.live.computing import Filling
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.results import HostValue
from ckpt_surgery.live.wanted import type_of
from ckpt_surgery.planner.cutting import Cut, finer
from ckpt_surgery.planner.plan import Step, at_step

Overflowed = Callable[[str, int], None]
"""Takes the key of an array and the number of permitted non-finite elements that were read."""


class PlannedArray(LazyArray):
    """An array of a plan's result. Nothing of it is computed before it is read."""

    def __init__(self, step: Step, sources: Mapping[str, Source], memory: int, overflowed: Overflowed):
        assert step.leaf.spec is not None
        super().__init__(
            step.leaf.spec,
            key=step.leaf.key.text,
            sharding=step.leaf.sharding,
            prng_impl=step.leaf.prng_impl,
        )
        self._step, self._sources, self._memory, self._overflowed = step, sources, memory, overflowed

    @cached_property
    def _cut(self) -> Cut:
        assert self._step.cut is not None
        return finer(self._step.value, self._step.cut, BLOCK)

    def _read(self, region: Region) -> np.ndarray:
        """Compute a region block by block, as the plan cuts the array."""
        step, result = self._step, HostValue(region, self._spec.dtype)
        evaluator, count = Evaluator(self._read_source), 0
        with at_step(step), memory_errors("make it", self._memory):
            filling = Filling(step.value, result, result.regions)
            for block in filling.blocks(self._cut.block):
                count += filling.fill(block, evaluator, self._cut.pieces).overflowed
        if count:
            self._overflowed(self.key, count)
        array: np.ndarray = result.value()
        return array

    def _read_source(self, source: str, leaf: Leaf, region: Region) -> np.ndarray:
        return self._sources[source].read(leaf, region)


def lazy_values(restoration: Restoration, overflowed: Overflowed) -> dict[str, Any]:
    """Values of a plan's outputs by key, in its order: arrays are lazy, all others are computed now.

    `overflowed` is called at each read of an array with permitted non-finite elements.
    """
    plan = restoration.plan
    lazy = {
        step.leaf.key.text: PlannedArray(step, restoration.sources, restoration.memory, overflowed)
        for step in plan.steps
        if _is_array(step.leaf, restoration)
    }
    others = tuple(step for step in plan.steps if step.leaf.key.text not in lazy)
    eager = make_arrays(replace(restoration, plan=replace(plan, steps=others)))
    for key, count in eager.overflowed.items():
        overflowed(key, count)
    values = {**lazy, **eager.values}
    return {step.leaf.key.text: values[step.leaf.key.text] for step in plan.steps}


def _is_array(leaf: Leaf, restoration: Restoration) -> bool:
    """True if an output is an array, and not a number, a text or an empty node."""
    like = None if restoration.target is None else restoration.target.values[leaf.key.text]
    if issubclass(type_of(like), bool | int | float | np.generic):
        return False
    return leaf.kind in (LeafKind.ARRAY, LeafKind.PRNG_KEY) or (leaf.spec is not None and like is not None)
