"""What leaves of a target could be made of, by their sizes alone."""

import pytest

from ckpt_surgery.inference.names.leftovers import leftovers
from tests.support.leaves import leaf


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
    found = leftovers([leaf(*one) for one in left.items()], [leaf(*one) for one in alone.items()])
    assert {c.how for one in found.undecided for c in one.candidates} == ({how} if how else set())
    assert [one.targets for one in found.undecided] == ([tuple(alone)] if how else [])
    assert found.held == (set(left) if how else set())


def test_all_are_held_though_few_are_named() -> None:
    left = [leaf(f"l_{i}/s", "float32[6]") for i in range(20)]
    found = leftovers(left, [leaf("x/s", "float32[6]")])
    assert [len(one.candidates) for one in found.undecided] == [8]
    assert len(found.held) == 20
