"""Whether boxes fill an array: every element is in exactly one of them.

Count each corner of each box, +1 where an even number of its coordinates are stops and -1 where an odd
number are. Summed over all corners that are nowhere beyond an index, the counts give the number of boxes that
hold the element at that index. So the boxes fill the array exactly if their counts add up to those of the
array itself, which takes time in proportion to their number.
"""

import itertools
from collections import defaultdict
from collections.abc import Sequence

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.failures import DAMAGED

MOST_SPLIT_AXES = 6
"""Limit on the axes along which an array is split: each doubles the number of corners."""
MOST_CORNERS = 2**22
"""Limit on the corners of all boxes of an array."""


def check_tiling(shape: Shape, boxes: Sequence[Region]) -> None:
    """Raise SourceError unless the boxes fill an array exactly. None is empty, and all lie within it.

    The error names the first element, in C order, that none or several hold, and these.
    """
    axes = [axis for axis, n in enumerate(shape) if any(box.shape[axis] != n for box in boxes)]
    if len(axes) > MOST_SPLIT_AXES or len(boxes) << len(axes) > MOST_CORNERS:
        raise SourceError(
            f"is split into {len(boxes)} chunks along {len(axes)} axes, which are too many to check",
            hint=DAMAGED,
        )
    left: dict[Shape, int] = defaultdict(int)
    for sign, box in [(1, Region.whole(shape)), *((-1, box) for box in boxes)]:
        for corner in itertools.product(*(((box.starts[a], 1), (box.stops[a], -1)) for a in axes)):
            count = sign
            for _, factor in corner:
                count *= factor
            left[tuple(place for place, _ in corner)] += count
    wrong = min((corner for corner, count in left.items() if count), default=None)
    if wrong is not None:
        index = dict(zip(axes, wrong, strict=True))
        raise _flaw(shape, boxes, tuple(index.get(axis, 0) for axis in range(len(shape))))


def _flaw(shape: Shape, boxes: Sequence[Region], element: Shape) -> SourceError:
    """The error for an element that none or several boxes hold."""
    holding = [
        box
        for box in boxes
        if all(a <= i < b for a, i, b in zip(box.starts, element, box.stops, strict=True))
    ]
    if not holding:
        what = f"no chunk has the element {list(element)} of {list(shape)}"
    else:
        listed = " and ".join(f"{list(box.shape)} at {list(box.starts)}" for box in holding[:2])
        what = f"{len(holding)} chunks have the element {list(element)} of {list(shape)}: those of {listed}"
    return SourceError(what, hint=DAMAGED)
