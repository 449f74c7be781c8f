"""Which leaves are taken together."""

from typing import Any

import numpy as np

from ckpt_surgery.inference.keys.grids import grids
from ckpt_surgery.inference.values.stacks import StackedLeaves, gathered, siblings, single, singles
from tests.inference.two_sides import Arrays, assert_equal, fingerprint, normal


def known(arrays: Arrays) -> Any:
    return {key: fingerprint(array) for key, array in arrays.items()}


def alike(*keys: str, shape: tuple[int, ...] = (2, 3)) -> dict[str, np.ndarray]:
    return {key: normal(*shape, seed=i) for i, key in enumerate(keys)}


def groups(found: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(" ".join(one.keys), one.lengths) for one in found]


def test_a_leaf_by_itself() -> None:
    array = normal(4, 2)
    one = single("a", fingerprint(array))
    assert (one.keys, one.lengths, one.shape, one.size) == (("a",), (), (4, 2), 8)
    assert (one.total, one.constant) == (fingerprint(array).total, False)
    assert_equal(one.fingerprint, fingerprint(array))
    assert [group.keys for group in singles(known(alike("a", "b")))] == [("a",), ("b",)]


def test_a_stack_has_the_sums_of_the_stacked_array() -> None:
    arrays = alike("a", "b", "c")
    group = StackedLeaves(tuple(arrays), (3,), tuple(known(arrays).values()))
    stacked = fingerprint(np.stack(list(arrays.values())))
    assert_equal(group.fingerprint, stacked)
    assert (group.total, group.size, group.shape) == (stacked.total, 18, (3, 2, 3))


def test_members_are_stacked_in_the_order_of_their_numbers() -> None:
    arrays = alike(*(f"l/{i}/w" for i in (10, 9, 0, 1)))
    assert groups(gathered(grids(arrays), known(arrays))) == [("l/0/w l/1/w l/9/w l/10/w", (4,))]


def test_along_each_index_and_along_all() -> None:
    arrays = alike(*(f"l/{i}/e/{j}" for i in range(2) for j in range(3)))
    assert groups(gathered(grids(arrays), known(arrays))) == [
        ("l/0/e/0 l/1/e/0", (2,)),
        ("l/0/e/1 l/1/e/1", (2,)),
        ("l/0/e/2 l/1/e/2", (2,)),
        ("l/0/e/0 l/0/e/1 l/0/e/2", (3,)),
        ("l/1/e/0 l/1/e/1 l/1/e/2", (3,)),
        ("l/0/e/0 l/0/e/1 l/0/e/2 l/1/e/0 l/1/e/1 l/1/e/2", (2, 3)),
    ]


def test_leaves_of_different_shapes_are_no_stack() -> None:
    arrays = {"l/0": normal(2), "l/1": normal(3)}
    assert groups(gathered(grids(arrays), known(arrays))) == []


def test_a_grid_with_a_gap_is_no_stack_along_both() -> None:
    arrays = alike("l/0/e/0", "l/0/e/1", "l/1/e/0", "l/1/e/1", "l/1/e/2")
    lengths = [lengths for _, lengths in groups(gathered(grids(arrays), known(arrays)))]
    assert (2, 3) not in lengths
    assert (3,) in lengths


def test_only_known_leaves_are_taken() -> None:
    arrays = alike("l/0", "l/1", "l/2")
    told = known({key: arrays[key] for key in ("l/0", "l/2")})
    assert groups(gathered(grids(arrays), told)) == [("l/0 l/2", (2,))]


def test_siblings_differ_in_one_component() -> None:
    arrays = alike("m/gate/w", "m/up/w", "m/down/b")
    assert groups(siblings(grids(arrays), known(arrays))) == [("m/gate/w m/up/w", (2,))]


def test_three_siblings_are_taken_two_by_two_and_together() -> None:
    arrays = alike("q", "k", "v")
    assert groups(siblings(grids(arrays), known(arrays))) == [
        ("q k", (2,)),
        ("q v", (2,)),
        ("k v", (2,)),
        ("q k v", (3,)),
    ]


def test_siblings_of_layers_one_by_one_and_stacked() -> None:
    arrays = alike(*(f"l.{i}.{name}.w" for i in range(2) for name in ("gate", "up")))
    assert groups(siblings(grids(arrays), known(arrays))) == [
        ("l.0.gate.w l.0.up.w", (2,)),
        ("l.1.gate.w l.1.up.w", (2,)),
        ("l.0.gate.w l.1.gate.w l.0.up.w l.1.up.w", (2, 2)),
    ]


def test_siblings_of_different_shapes_are_not_taken_together() -> None:
    arrays = {"q": normal(2), "k": normal(3)}
    assert groups(siblings(grids(arrays), known(arrays))) == []


def test_a_stack_is_constant_if_all_members_are() -> None:
    zeros, ones = fingerprint(np.zeros(3)), fingerprint(np.ones(3))
    assert StackedLeaves(("a", "b"), (2,), (ones, ones)).constant
    assert StackedLeaves(("a", "b"), (2,), (zeros, ones)).constant
    assert not StackedLeaves(("a", "b"), (2,), (zeros, fingerprint(normal(3)))).constant
