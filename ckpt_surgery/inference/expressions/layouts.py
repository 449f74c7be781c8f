"""How the elements of one array are moved to make another of the same size.

A layout cuts the axes of its input into digits, as a mixed radix system does with numbers, puts these into
another order, and joins neighbours again: a reshape, a transpose and a reshape. Transposes, the axes of
heads, interleaved halves, fused gates and stacks of stacks are all of this kind.
"""

import itertools
import math

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.frozen import frozen


@frozen()
class Layout:
    """A reshape, a transpose and a reshape."""

    cuts: tuple[Shape, ...]
    """The lengths that each axis of the input is cut into, from slow to fast; `(n,)` where it is whole, `()`
    where its length is 1."""
    order: tuple[int, ...]
    """The digits of the input, counted through all axes, in the order of the result."""
    joins: tuple[int, ...]
    """How many digits each axis of the result consists of: 0 where its length is 1."""

    @property
    def digits(self) -> Shape:
        """The lengths of all digits, in the order of the input."""
        return tuple(itertools.chain.from_iterable(self.cuts))

    @property
    def shape_in(self) -> Shape:
        """Shape of the input."""
        return tuple(math.prod(cut) for cut in self.cuts)

    @property
    def shape_out(self) -> Shape:
        """Shape of the result."""
        return tuple(math.prod(self.digits[d] for d in group) for group in self.groups())

    def groups(self) -> list[tuple[int, ...]]:
        """The digits of each axis of the result."""
        ends = list(itertools.accumulate(self.joins, initial=0))
        return [self.order[a:b] for a, b in itertools.pairwise(ends)]

    def inverse(self) -> "Layout":
        """The layout that undoes this one."""
        digits = self.digits
        cuts = tuple(tuple(digits[d] for d in group) for group in self.groups())
        place = {digit: new for new, digit in enumerate(self.order)}
        return Layout(cuts, tuple(place[d] for d in range(len(digits))), tuple(map(len, self.cuts)))
