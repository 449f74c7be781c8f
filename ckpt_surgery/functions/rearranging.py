"""The function `rearrange`: a reshape, a transpose and a reshape, written as a pattern of named axes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.functions.axis_patterns import Rearrangement, rearrangement
from ckpt_surgery.functions.base import Blocks, Function, Specs
from ckpt_surgery.functions.layout import Reshape, Transpose


@dataclass(frozen=True)
class Rearrange(Function):
    """`rearrange(x, 'd (h k) -> d h k', k=128)`: splits, permutes and merges axes by name.

    The pattern language is that of `einops.rearrange` (Rogozhnikov, ICLR 2022). Both sides name the same
    axes, each once. Parentheses stand for one axis that is the product of the axes within, `1` and `()` for
    an axis of length 1, and `...` for any number of further axes. Keywords give the lengths of axes; in each
    pair of parentheses on the left, one length can be omitted. Raises FunctionError if pattern, lengths and
    shape do not fit together.
    """

    name: ClassVar[str] = "rearrange"
    is_layout: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "/", "pattern")  # an axis may be called `x`
    remaining: ClassVar[str | None] = "axes"
    pattern: str
    axes: tuple[tuple[str, int], ...] = ()

    def infer(self, ins: Specs) -> ArraySpec:
        return ArraySpec(self._rearrangement(ins).merged, ins[0].dtype)

    def steps(self, ins: Specs) -> tuple[Reshape, Transpose, Reshape]:
        """The three functions that, applied one after another, give the same result."""
        found = self._rearrangement(ins)
        return Reshape(found.split), Transpose(found.permutation), Reshape(found.merged)

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

    def _rearrangement(self, ins: Specs) -> Rearrangement:
        return rearrangement(self.pattern, self.axes, ins[0].shape)

    def _specs(self, ins: Specs) -> tuple[ArraySpec, ArraySpec, ArraySpec]:
        """Shape and dtype of the input of each step."""
        split, permute, _ = self.steps(ins)
        first = split.infer(ins)
        return ins[0], first, permute.infer([first])

    def _regions(self, region: Region, ins: Specs) -> tuple[Region, Region, Region, Region]:
        """The regions that an output region is computed from: of the input, then of the result of each
        step."""
        split, permute, merge = self.steps(ins)
        whole, parts, permuted = self._specs(ins)
        [(_, before_merge)] = merge.needs(region, [permuted])
        [(_, before_permute)] = permute.needs(before_merge, [parts])
        [(_, before_split)] = split.needs(before_permute, [whole])
        return before_split, before_permute, before_merge, region
