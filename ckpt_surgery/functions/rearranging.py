"""`rearrange`: transposes and reshapes written as a pattern of named axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.selections import (
    Selection,
)
from ckpt_surgery.functions.axis_patterns import Plan, plan_rearrange
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.layout import Reshape, Transpose


@dataclass(frozen=True)
class Rearrange(Function):
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: split, permute and merge axes by name, as einops does.

    Both sides name the same axes once each. Parentheses make one axis of several, `1` and `()` are an
    axis of length 1, `...` stands for any further axes. Keywords give lengths; of each pair of parentheses
    on the left, one length may be left open. Raises FunctionError where pattern, lengths and shape do
    not agree. The pattern language is that of einops (Rogozhnikov, ICLR 2022).
    """

    name: ClassVar[str] = "rearrange"
    is_layout: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "/", "pattern")  # an axis may be called `x`
    remaining: ClassVar[str | None] = "axes"
    pattern: str
    axes: tuple[tuple[str, int], ...] = ()

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self._plan(ins).merged, ins[0].dtype)

    def steps(self, ins: Specs) -> tuple[Reshape, Transpose, Reshape]:
        """The same as three functions, each of the one before."""
        plan = self._plan(ins)
        return Reshape(plan.split), Transpose(plan.permutation), Reshape(plan.merged)

    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(0, self._regions(region, ins)[0])]

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        found = [selection]
        for step, spec in zip(reversed(self.steps(ins)), reversed(self._specs(ins)), strict=True):
            found = [used for one in found for _, used in step.uses(one, [spec])]
        return [(0, one) for one in found]

    def apply(self, region: Region, ins: Specs, blocks: Blocks) -> np.ndarray:
        block = blocks[0]
        _, *regions = self._regions(region, ins)
        for step, spec, out in zip(self.steps(ins), self._specs(ins), regions, strict=True):
            block = step.apply(out, [spec], [block])
        return block

    def followed(self, axis: int, ins: Specs) -> tuple[int, int] | None:
        found: int | None = axis
        for step, spec in zip(reversed(self.steps(ins)), reversed(self._specs(ins)), strict=True):
            below = None if found is None else step.followed(found, [spec])
            found = None if below is None else below[0]
        return None if found is None else (found, 0)

    def relink(self, manifests: Sequence[Manifest]) -> Manifest | None:
        found: Manifest | None = manifests[0]
        for step in self.steps([manifests[0].spec]):
            found = found and step.relink([found])
        return found

    def _plan(self, ins: Specs) -> Plan:
        return plan_rearrange(self.pattern, self.axes, ins[0].shape)

    def _specs(self, ins: Specs) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        """Of the input of each step."""
        split, permute, _ = self.steps(ins)
        first = split.infer(ins)
        return ins[0], first, permute.infer([first])

    def _regions(self, region: Region, ins: Specs) -> tuple[Region, Region, Region, Region]:
        """The regions of the input and of the three steps that the output region goes back to."""
        split, permute, merge = self.steps(ins)
        whole, parts, permuted = self._specs(ins)
        [(_, before_merge)] = merge.needs(region, [permuted])
        [(_, before_permute)] = permute.needs(before_merge, [parts])
        [(_, before_split)] = split.needs(before_permute, [whole])
        return before_split, before_permute, before_merge, region
