"""Grids of keys, and matches between them by sizes and indices."""

from collections.abc import Iterable

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.keys.grids import Grid, alike, grids
from ckpt_surgery.inference.names.matches import Match, matches
from tests.support.leaves import array_leaf, leaf


def one(keys: Iterable[str], shape: Shape, dtype: str = "float32") -> Grid:
    """The only grid of these leaves."""
    leaves = [array_leaf(key, shape, np.dtype(dtype)) for key in keys]
    (group,) = alike(leaves, grids(key.key.text for key in leaves))
    return group


def layers(text: str, count: int = 3, first: int = 0) -> list[str]:
    return [text.format(n) for n in range(first, first + count)]


def grid(text: str, rows: int, columns: int) -> list[str]:
    return [text.format(a, b) for a in range(rows) for b in range(columns)]


def test_the_same_number_of_members() -> None:
    source, target = one(layers("h.{}.w"), (4, 5)), one(layers("layers_{:03}/w"), (5, 4))
    pairs = tuple(((f"h.{n}.w",), (f"layers_{n:03}/w",)) for n in range(3))
    assert matches(source, target) == (Match(source, target, "same", pairs, (), exact=True),)


def test_numbers_that_begin_elsewhere_are_not_exact() -> None:
    (match,) = matches(one(layers("h.{}.w", first=1), (4,)), one(layers("b.{}.w"), (4,)))
    assert not match.exact
    assert match.rows[0] == (("h.1.w",), ("b.0.w",))


def test_a_stack_and_back() -> None:
    single, stack = one(layers("h.{}.w", 12), (4,)), one(["h/w"], (4, 12))
    keys = tuple(layers("h.{}.w", 12))  # 2 before 10
    assert matches(single, stack) == (Match(single, stack, "stack", ((keys, ("h/w",)),), (12,), exact=True),)
    assert matches(stack, single) == (
        Match(stack, single, "unstack", ((("h/w",), keys),), (12,), exact=True),
    )


def test_a_stack_along_some_of_the_indices() -> None:
    experts = one(grid("layers.{}.experts.{}.w", 3, 3), (4,))
    (match,) = matches(experts, one(layers("layers_{}/w"), (3, 4)))
    assert match.lengths == (3,)
    assert match.rows[1] == (tuple(f"layers.1.experts.{e}.w" for e in range(3)), ("layers_1/w",))


def test_it_is_open_which_index_is_which_where_words_do_not_tell() -> None:
    both = matches(one(grid("a.{}.b.{}.w", 3, 3), (4,)), one(layers("c_{}/w"), (3, 4)))
    assert [match.rows[0][0][1] for match in both] == ["a.0.b.1.w", "a.1.b.0.w"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (one(layers("a.{}.w"), (4,)), one(layers("b.{}.w"), (5,))),  # sizes
        (one(layers("a.{}.w", 4), (3,)), one(layers("b.{}.w"), (4,))),  # 4 × 3 = 3 × 4 elements, but 4 of 3
        (one(["a"], (4,)), one(["b"], (4,), "int32")),  # kinds
        (one(["a.0.0.w", "a.0.1.w", "a.1.0.w"], (4,)), one(["b"], (3, 4))),  # one is missing
    ],
)
def test_what_does_not_fit(source: Grid, target: Grid) -> None:
    assert matches(source, target) == ()


def test_only_numbers_are_stacked() -> None:
    keys = [leaf(f"rng.{n}", "prng_key") for n in range(3)]
    (rngs,) = alike(keys, grids(one.key.text for one in keys))
    assert matches(rngs, rngs)[0].how == "same"
    assert matches(rngs, one(["rng"], (3, 2), "uint32")) == ()


def test_members_that_differ_are_apart() -> None:
    leaves = [array_leaf(f"h.{n}.w", (4 if n < 2 else 5,)) for n in range(4)]
    groups = alike(leaves, grids(one.key.text for one in leaves))
    assert [(group.shape, group.keys) for group in groups] == [
        ((4,), ("h.0.w", "h.1.w")),
        ((5,), ("h.2.w", "h.3.w")),
    ]


def test_the_numbers_of_sublayers_are_names_and_two_layers_are_counted() -> None:
    keys = [f"block_00{n}/layer_00{s}/{w}" for n in range(2) for s, w in ((0, "q"), (0, "norm"), (1, "norm"))]
    groups = alike(map(array_leaf, keys), grids(keys))
    assert [group.text for group in groups] == [
        "block_{}/layer_000/q",
        "block_{}/layer_000/norm",
        "block_{}/layer_001/norm",
    ]
    assert len(alike(map(array_leaf, ("wi_0/w", "wi_1/w")), grids(["wi_0/w", "wi_1/w"]))) == 2
