"""Candidate sources of target leaves, by their sizes alone."""

import pytest

from ckpt_surgery.inference.expressions.formations import Undecided
from ckpt_surgery.inference.names.leftovers import leftovers
from ckpt_surgery.inference.values.reading import Side
from tests.support.leaves import leaf


def left_over(left: dict[str, str], alone: dict[str, str]) -> tuple[list[Undecided], set[str]]:
    """Undecided leaves of two checkpoints that have no other leaves than these."""
    source, target = (Side({key: leaf(key, said) for key, said in side.items()}) for side in (left, alone))
    return leftovers(source, target, left, alone)


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
    undecided, held = left_over(left, alone)
    assert {c.how for one in undecided for c in one.candidates} == ({how} if how else set())
    assert [key for one in undecided for key in one.targets] == (list(alone) if how else [])
    assert held == (set(left) if how else set())


def test_all_are_held_though_few_are_named() -> None:
    undecided, held = left_over({f"l_{i}/s": "float32[6]" for i in range(20)}, {"x/s": "float32[6]"})
    assert [len(one.candidates) for one in undecided] == [8]
    assert len(held) == 20
