"""Parts of axes that hold what is looked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.holders import HeldLeaf
from ckpt_surgery.inference.values.windows import Window, windows
from tests.inference.two_sides import fingerprint, made, normal, text_of
from tests.support.comparing import same


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
    """What a window holds, by NumPy alone: its axis is taken apart."""
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
    found = list(windows(fingerprint(array), range(array.ndim), {wanted.size: {wanted.total: "it"}}))
    plain = Window(window.axis, window.repeats, window.start, window.length)
    assert (plain, "it") in found
    for one, _ in found:
        assert fingerprint(cut(array, one)).total == wanted.total


@given(cases())
def test_the_expression_of_a_window_is_what_it_holds(case: tuple[Shape, Window]) -> None:
    shape, window = case
    array = normal(*shape)
    wanted = cut(array, window)
    assert window.shape(shape) == wanted.shape
    assert same(made(window.of(HeldLeaf("x", shape)), {"x": array}), wanted)


VALUES = [
    ((6, 4), Window(0, 1, 2, 3), "x[2:5]", "a slice"),
    ((6, 4), Window(1, 1, 0, 1), "x[:, 0]", "one column, without an axis"),
    ((6, 4), Window(1, 1, 3, 1, keep=True), "x[:, 3:]", "one column, with its axis"),
    ((6, 4), Window(0, 3, 1, 1), "x[1::2]", "every second row"),
    ((3, 6, 4), Window(1, 2, 0, 2), "reshape(x, (3, 2, 3, 4))[:, :, :2]", "the first two rows of three"),
]


@pytest.mark.parametrize(("shape", "window", "wanted", "what"), VALUES, ids=[what for *_, what in VALUES])
def test_values_of_windows(shape: Shape, window: Window, wanted: str, what: str) -> None:
    assert text_of(window.of(HeldLeaf("x", shape))) == wanted


def test_several_are_looked_for_at_once_and_plain_slices_come_first() -> None:
    array = normal(8, 2)
    parts = {"head": array[:2], "tail": array[4:8], "even": array[::2], "none": normal(4, 2, seed=9)}
    wanted: dict[int, dict[int, str]] = {}
    for name, part in parts.items():
        wanted.setdefault(part.size, {})[fingerprint(part).total] = name
    found = list(windows(fingerprint(array), [0, 1], wanted))
    assert found == [
        (Window(0, 1, 0, 2), "head"),
        (Window(0, 1, 4, 4), "tail"),
        (Window(0, 4, 0, 1), "even"),
    ]


@pytest.mark.parametrize("size", [0, 16, 32, 5])
def test_sizes_that_no_window_has(size: int) -> None:
    array = normal(8, 2)
    assert list(windows(fingerprint(array), [0, 1], {size: {fingerprint(array).total: 1}})) == []
