"""Which leaves are taken together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.inference.keys.grids import grids
from ckpt_surgery.inference.values.stacks import StackedLeaves, gathered, siblings
from tests.inference.two_sides import assert_equal, fingerprint, normal

Groups = list[tuple[str, tuple[int, ...]]]
LAYERS = [f"l/{i}/w" for i in (10, 9, 0, 1)]
EXPERTS = [f"l/{i}/e/{j}" for i in range(2) for j in range(3)]
ROWS: list[tuple[Callable[..., Any], list[str], Groups]] = [
    (gathered, LAYERS, [("l/0/w l/1/w l/9/w l/10/w", (4,))]),  # in the order of their numbers
    (
        gathered,
        EXPERTS,
        [
            *((f"l/0/e/{j} l/1/e/{j}", (2,)) for j in range(3)),
            *((f"l/{i}/e/0 l/{i}/e/1 l/{i}/e/2", (3,)) for i in range(2)),
            (" ".join(EXPERTS), (2, 3)),
        ],
    ),
    (
        gathered,  # with a gap, there is no stack along both
        EXPERTS[1:],
        [
            *((f"l/0/e/{j} l/1/e/{j}", (2,)) for j in (1, 2)),
            ("l/0/e/1 l/0/e/2", (2,)),
            ("l/1/e/0 l/1/e/1 l/1/e/2", (3,)),
        ],
    ),
    (siblings, ["m/gate/w", "m/up/w", "m/down/b"], [("m/gate/w m/up/w", (2,))]),
    (siblings, ["q", "k", "v"], [("q k", (2,)), ("q v", (2,)), ("k v", (2,)), ("q k v", (3,))]),
    (
        siblings,
        [f"l.{i}.{name}.w" for i in range(2) for name in ("gate", "up")],
        [
            ("l.0.gate.w l.0.up.w", (2,)),
            ("l.1.gate.w l.1.up.w", (2,)),
            ("l.0.gate.w l.1.gate.w l.0.up.w l.1.up.w", (2, 2)),
        ],
    ),
]


@pytest.mark.parametrize(("make", "keys", "groups"), ROWS)
def test_groups(make: Callable[..., Any], keys: list[str], groups: Groups) -> None:
    known = {key: fingerprint(normal(2, 3, seed=i)) for i, key in enumerate(keys)}
    found = sorted((" ".join(one.keys), one.lengths) for one in make(grids(keys), known))
    assert found == sorted(groups)


@pytest.mark.parametrize(("make", "keys"), [(gathered, ["l/0", "l/1"]), (siblings, ["q", "k"])])
def test_leaves_of_different_shapes_are_not_taken_together(make: Callable[..., Any], keys: list[str]) -> None:
    known = {key: fingerprint(normal(2 + i)) for i, key in enumerate(keys)}
    assert list(make(grids(keys), known)) == []


def test_a_stack_has_the_sums_of_the_stacked_array() -> None:
    arrays = [normal(2, 3, seed=i) for i in range(3)]
    group = StackedLeaves(tuple("abc"), (3,), tuple(map(fingerprint, arrays)))
    stacked = fingerprint(np.stack(arrays))
    assert_equal(group.fingerprint, stacked)
    assert (group.total, group.size, group.shape) == (stacked.total, 18, (3, 2, 3))


def test_a_stack_is_constant_if_all_members_are() -> None:
    zeros, ones, others = map(fingerprint, (np.zeros(3), np.ones(3), normal(3)))
    assert StackedLeaves(("a", "b"), (2,), (zeros, ones)).constant
    assert not StackedLeaves(("a", "b"), (2,), (zeros, others)).constant
