"""What leaves of a target could be made of, by their sizes alone."""

import pytest

from ckpt_surgery.inference.keys.grids import grids
from ckpt_surgery.inference.names.leftovers import Leftovers, leftovers
from tests.support.leaves import leaf


def left_over(left: dict[str, str], alone: dict[str, str]) -> Leftovers:
    """What is open of these leaves, which are all that there are."""
    sides = ([leaf(*one) for one in side.items()] for side in (left, alone))
    return leftovers(*sides, grids(left), grids(alone))


@pytest.mark.parametrize(
    ("left", "alone", "how"),
    [
        ({"a": "float32[4,6]"}, {"b": "bfloat16[24]"}, "same"),
        ({"a": "float32[4,6]"}, {"b": "int32[24]"}, ""),  # other kinds of values
        ({"a": "int32[2]"}, {"b": "uint32[2]"}, "same"),  # a sign makes no other kind
        ({f"l_{i}/s": "float32[6]" for i in range(4)}, {"even/s": "float32[2,6]"}, "stack"),
        ({f"l_{i}/s": "float32[6]" for i in range(4)}, {"s": "float32[5,6]"}, ""),  # more than there are
        ({"a/s": "float32[6]", "b/s": "float32[6]"}, {"s": "float32[2,6]"}, ""),  # not one family
        ({"s": "float32[2,6]"}, {f"l_{i}/s": "float32[6]" for i in range(4)}, "unstack"),
        ({"s": "float32[5,6]"}, {f"l_{i}/s": "float32[6]" for i in range(4)}, ""),
        ({"a": "float32[0]"}, {"b": "float32[2]"}, ""),
    ],
)
def test_ways(left: dict[str, str], alone: dict[str, str], how: str) -> None:
    found = left_over(left, alone)
    assert {c.how for one in found.undecided for c in one.candidates} == ({how} if how else set())
    assert [key for one in found.undecided for key in one.targets] == (list(alone) if how else [])
    assert found.held == (set(left) if how else set())


def test_all_are_held_though_few_are_named() -> None:
    found = left_over({f"l_{i}/s": "float32[6]" for i in range(20)}, {"x/s": "float32[6]"})
    assert [len(one.candidates) for one in found.undecided] == [8]
    assert len(found.held) == 20
