"""The variables of `for`."""

import pytest

from ckpt_surgery.inference.drafts.loops import loops_of
from ckpt_surgery.inference.drafts.parts import KeyPlace, Kind, RulePart
from ckpt_surgery.inference.expressions.formations import Value
from ckpt_surgery.inference.keys.grids import KeyTemplate

TARGET = KeyTemplate(("t/", "/", ""))


def part(source: int, target: tuple[int, int], *holes: int) -> RulePart:
    place = KeyPlace(KeyTemplate(("s/", "")), (str(source),))
    return RulePart(Kind.MADE, (place,), KeyPlace(TARGET, tuple(map(str, target))), Value("x", holes))


@pytest.mark.parametrize(
    ("parts", "ranges", "values"),
    [
        ([part(0, (0, 0)), part(1, (1, 0))], (), {}),  # one for each leaf
        ([part(0, (0, i)) for i in range(3)], (("i", "range(3)"),), {"i": [0, 1, 2]}),
        ([part(0, (4 + 2 * i, 0)) for i in range(3)], (("i", "range(3)"),), {"i": [0, 1, 2]}),
        ([part(0, (0, i)) for i in (0, 1, 3)], (("i", "[0, 1, 3]"),), {"i": [0, 1, 3]}),  # no even steps
        (
            [part(s, (2 * s + i, 0)) for s in range(2) for i in range(2)],
            (("i", "range(2)"),),
            {"i": [0, 1, 0, 1]},  # counted from 0 for each leaf
        ),
        (
            [part(0, (i, j)) for i in range(2) for j in range(2)],
            (("i", "range(2)"), ("j", "range(2)")),
            {"i": [0, 0, 1, 1], "j": [0, 1, 0, 1]},
        ),
        ([part(0, (0, 0), 5), part(0, (0, 0), 7)], (("i", "range(2)"),), {"i": [0, 1]}),  # by holes alone
    ],
)
def test_loops(parts: list[RulePart], ranges: object, values: object) -> None:
    loops = loops_of([parts])
    assert loops is not None
    assert (loops.ranges, loops.columns) == (ranges, (values,))


@pytest.mark.parametrize(
    "groups",
    [
        [[part(0, (0, 0)), part(0, (0, 1)), part(1, (1, 0))]],  # not as many for each leaf
        [[part(0, (0, 0)), part(0, (1, 1)), part(0, (0, 1))]],  # not every combination
        [[part(0, (0, 0)), part(1, (1, 0))], [part(0, (2, 0))]],  # not of each leaf
        [[part(0, (0, 0))], [part(0, (0, 0)), part(0, (0, 1))]],  # only one of them is repeated
    ],
)
def test_no_loops(groups: list[list[RulePart]]) -> None:
    assert loops_of(groups) is None
