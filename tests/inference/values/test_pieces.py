"""Parts of axes that hold what is looked for, and arrays that are put together of parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.expressions.holders import of_leaves
from ckpt_surgery.inference.keys.grids import grids
from ckpt_surgery.inference.values.by_values import match_by_values
from ckpt_surgery.inference.values.pieces import (
    MOST_SLICES,
    Piece,
    Window,
    by_sums,
    chains,
    grid_stacks,
    sibling_stacks,
    single,
    sliced_pieces,
    windows,
)
from tests.inference.two_sides import (
    Arrays,
    array_of,
    assert_equal,
    computed,
    fingerprint,
    normal,
    sides,
    text_of,
)
from tests.support.comparing import same

A, B = normal(4, 6), normal(2, 6, seed=1)


def together(source: Arrays, wanted: np.ndarray) -> Formation | None:
    """The formation of the wanted array, confirmed by computing its expression."""
    for formation in match_by_values(*sides(source, {"w": np.ascontiguousarray(wanted)})).formations:
        assert same(computed(formation.value, {key: source[key] for key in formation.sources}), wanted)
        return formation
    return None


ROWS = [
    (np.vstack([B, A]), "b a", "concat(xs)", "parts along axis 0"),
    (np.hstack([A.T, B.T]), "a b", "concat([xs[0].T, xs[1].T], axis=1)", "parts along axis 1"),
    (np.pad(A, [(0, 0), (0, 2)]), "a", "pad(x, axis=1, to=8)", "one leaf along axis 1, and zeros"),
    (
        np.pad(np.vstack([A, B]), [(0, 1), (0, 0)]),
        "a b",
        "pad(concat(xs), axis=0, to=7)",
        "parts along axis 0, and zeros",
    ),
    (
        np.concatenate([A.reshape(2, 2, 6), B.reshape(2, 1, 6)], 1).reshape(6, 6),
        "a b",
        "reshape(concat([reshape(xs[0], (2, 2, 6)), reshape(xs[1], (2, 1, 6))], axis=1), (6, 6))",
        "parts along axis 0",
    ),
    (np.vstack([A[3], B[0], A[1]]), "a b", "stack([xs[0][3], xs[1][0], xs[0][1]])", "parts along axis 0"),
]


@pytest.mark.parametrize(("wanted", "keys", "value", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_what_is_put_together(wanted: np.ndarray, keys: str, value: str, why: str) -> None:
    formation = together({"a": A, "b": B}, wanted)
    assert formation is not None
    assert (" ".join(formation.sources), str(formation.value), formation.why) == (keys, value, why)


@pytest.mark.parametrize(
    "wanted",
    [
        np.vstack([A, normal(2, 6, seed=9)]),  # the rest is not known
        np.vstack([A, np.ones((2, 6), np.float32)]),  # the rest is not zero
        np.pad(A, [(1, 0), (0, 0)]),  # padded in front
    ],
    ids=["rest", "ones", "in front"],
)
def test_what_is_not_put_together(wanted: np.ndarray) -> None:
    assert together({"a": A, "b": B}, wanted) is None


def test_of_several_with_equal_sums_the_smallest_is_taken() -> None:
    one, two = single("a", fingerprint(A)), Piece(("b", "c"), (2,), tuple(map(fingerprint, (A[:2], A[2:]))))
    [(repeats, [(window, piece)])] = chains(fingerprint(np.vstack([A, B])), 0, by_sums([two, one]))
    assert (repeats, window, piece) == (1, Window(0, 1, 0, 4), one)


def test_only_slices_that_tell_are_pieces() -> None:
    def places(array: np.ndarray) -> set[tuple[int, int]]:
        pieces_by_size = sliced_pieces([single("a", fingerprint(array))], lambda part: fingerprint(array))
        pieces = [piece for totals in pieces_by_size.values() for alike in totals.values() for piece in alike]
        return {(one.window.axis, one.window.start) for one in pieces if one.window is not None}

    rows = np.stack([A[0], A[1], A[0], np.zeros(6, np.float32)])
    assert places(rows) == {(0, 1), (0, 3), *((1, column) for column in range(6))}
    assert places(normal(5)) == set()  # single elements
    assert places(normal(MOST_SLICES + 1, 2)[:, :1]) == set()
    assert places(np.zeros((0, 3))) == set()


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, Window]:
    """The shape of an array, and a window of it that leaves something out."""
    repeats, period = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    before, after = (draw(st.lists(st.integers(1, 3), max_size=2)) for _ in range(2))
    length = draw(st.integers(1, period - 1))
    start = draw(st.integers(0, period - length))
    window = Window(len(before), repeats, start, length, draw(st.booleans()))
    return (*before, repeats * period, *after), window


def cut(array: np.ndarray, window: Window) -> np.ndarray:
    """Contents of a window, by NumPy alone: its axis is taken apart."""
    axis = window.axis
    period = array.shape[axis] // window.repeats
    apart = array.reshape(*array.shape[:axis], window.repeats, period, *array.shape[axis + 1 :])
    rows = np.arange(window.start, window.start + window.length)
    taken = apart.take(rows, axis + 1)
    shape = list(taken.shape)
    if window.length == 1 and not window.keep:
        del shape[axis + 1]
    if window.repeats == 1:
        del shape[axis]
    return taken.reshape(shape)


@given(cases())
def test_every_window_is_found(case: tuple[Shape, Window]) -> None:
    shape, window = case
    array = normal(*shape)
    wanted = fingerprint(cut(array, window))
    matches = list(windows(fingerprint(array), range(array.ndim), {wanted.size: {wanted.total: "it"}}))
    plain = Window(window.axis, window.repeats, window.start, window.length)
    assert (plain, "it") in matches
    for one, _ in matches:
        assert fingerprint(cut(array, one)).total == wanted.total


@given(cases())
def test_the_expression_of_a_window_is_what_it_holds(case: tuple[Shape, Window]) -> None:
    shape, window = case
    array = normal(*shape)
    wanted = cut(array, window)
    assert window.shape(shape) == wanted.shape
    assert same(array_of(window.of(of_leaves(["x"], (), shape)), {"x": array}), wanted)


VALUES = [
    ((6, 4), Window(0, 1, 2, 3), "x[2:5]", "a slice"),
    ((6, 4), Window(1, 1, 0, 1), "x[:, 0]", "one column, without an axis"),
    ((6, 4), Window(1, 1, 3, 1, keep=True), "x[:, 3:]", "one column, with its axis"),
    ((6, 4), Window(0, 3, 1, 1), "x[1::2]", "every second row"),
    ((3, 6, 4), Window(1, 2, 0, 2), "reshape(x, (3, 2, 3, 4))[:, :, :2]", "the first two rows of three"),
]


@pytest.mark.parametrize(("shape", "window", "wanted", "what"), VALUES, ids=[what for *_, what in VALUES])
def test_values_of_windows(shape: Shape, window: Window, wanted: str, what: str) -> None:
    assert text_of(window.of(of_leaves(["x"], (), shape))) == wanted


def test_several_are_looked_for_at_once_and_plain_slices_come_first() -> None:
    array = normal(8, 2)
    parts = {"head": array[:2], "tail": array[4:8], "even": array[::2], "none": normal(4, 2, seed=9)}
    wanted: dict[int, dict[int, str]] = {}
    for name, part in parts.items():
        wanted.setdefault(part.size, {})[fingerprint(part).total] = name
    matches = list(windows(fingerprint(array), [0, 1], wanted))
    assert matches == [
        (Window(0, 1, 0, 2), "head"),
        (Window(0, 1, 4, 4), "tail"),
        (Window(0, 4, 0, 1), "even"),
    ]


@pytest.mark.parametrize("size", [0, 16, 32, 5])
def test_sizes_that_no_window_has(size: int) -> None:
    array = normal(8, 2)
    assert list(windows(fingerprint(array), [0, 1], {size: {fingerprint(array).total: 1}})) == []


# --- stacks -----------------------------------------------------------------------------------------------

Groups = list[tuple[str, tuple[int, ...]]]
LAYERS = [f"l/{i}/w" for i in (10, 9, 0, 1)]
EXPERTS = [f"l/{i}/e/{j}" for i in range(2) for j in range(3)]
GROUPS: list[tuple[Callable[..., Any], list[str], Groups]] = [
    (grid_stacks, LAYERS, [("l/0/w l/1/w l/9/w l/10/w", (4,))]),  # in the order of their numbers
    (
        grid_stacks,
        EXPERTS,
        [
            *((f"l/0/e/{j} l/1/e/{j}", (2,)) for j in range(3)),
            *((f"l/{i}/e/0 l/{i}/e/1 l/{i}/e/2", (3,)) for i in range(2)),
            (" ".join(EXPERTS), (2, 3)),
        ],
    ),
    (
        grid_stacks,  # with a gap, there is no stack along both
        EXPERTS[1:],
        [
            *((f"l/0/e/{j} l/1/e/{j}", (2,)) for j in (1, 2)),
            ("l/0/e/1 l/0/e/2", (2,)),
            ("l/1/e/0 l/1/e/1 l/1/e/2", (3,)),
        ],
    ),
    (sibling_stacks, ["m/gate/w", "m/up/w", "m/down/b"], [("m/gate/w m/up/w", (2,))]),
    (sibling_stacks, ["q", "k", "v"], [("q k", (2,)), ("q v", (2,)), ("k v", (2,)), ("q k v", (3,))]),
    (
        sibling_stacks,
        [f"l.{i}.{name}.w" for i in range(2) for name in ("gate", "up")],
        [
            ("l.0.gate.w l.0.up.w", (2,)),
            ("l.1.gate.w l.1.up.w", (2,)),
            ("l.0.gate.w l.1.gate.w l.0.up.w l.1.up.w", (2, 2)),
        ],
    ),
]


@pytest.mark.parametrize(("make", "keys", "groups"), GROUPS)
def test_groups(make: Callable[..., Any], keys: list[str], groups: Groups) -> None:
    known = {key: fingerprint(normal(2, 3, seed=i)) for i, key in enumerate(keys)}
    candidates = sorted((" ".join(one.keys), one.lengths) for one in make(grids(keys), known))
    assert candidates == sorted(groups)


@pytest.mark.parametrize(("make", "keys"), [(grid_stacks, ["l/0", "l/1"]), (sibling_stacks, ["q", "k"])])
def test_leaves_of_different_shapes_are_not_taken_together(make: Callable[..., Any], keys: list[str]) -> None:
    known = {key: fingerprint(normal(2 + i)) for i, key in enumerate(keys)}
    assert list(make(grids(keys), known)) == []


def test_a_stack_has_the_sums_of_the_stacked_array() -> None:
    arrays = [normal(2, 3, seed=i) for i in range(3)]
    group = Piece(tuple("abc"), (3,), tuple(map(fingerprint, arrays)))
    stacked = fingerprint(np.stack(arrays))
    assert_equal(group.fingerprint, stacked)
    assert (group.total, group.size, group.shape) == (stacked.total, 18, (3, 2, 3))


def test_a_stack_is_constant_if_all_members_are() -> None:
    zeros, ones, others = map(fingerprint, (np.zeros(3), np.ones(3), normal(3)))
    assert Piece(("a", "b"), (2,), (zeros, ones)).constant
    assert not Piece(("a", "b"), (2,), (zeros, others)).constant
