"""Boxes that fill an array, and those that do not."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, chunk_regions
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.dcp.index import MOST_SPLIT_AXES, check_tiling
from tests.formats.bounds import bounded


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Region]]:
    """A shape, and boxes in it: those of a grid, some of them left out, moved, or doubled."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    grid = list(chunk_regions(shape, tuple(draw(st.integers(1, n)) for n in shape)))
    for number in draw(st.lists(st.integers(0, len(grid) - 1), max_size=2)):
        ends = [sorted(draw(st.sets(st.integers(0, n), min_size=2, max_size=2))) for n in shape]
        grid[number] = Region(tuple(a for a, _ in ends), tuple(b for _, b in ends))
    return shape, draw(st.permutations(grid))


@given(boxes())
@settings(max_examples=60, deadline=None)
def test_it_is_found_whether_each_element_is_in_one_box(case: tuple[tuple[int, ...], list[Region]]) -> None:
    shape, found = case
    counts = np.zeros(shape, int)
    for box in found:
        counts[box.slices] += 1
    wrong = np.argwhere(counts != 1)
    if not len(wrong):
        check_tiling(shape, found)
        return
    first = tuple(wrong[0].tolist())
    number = "no chunk has" if not counts[first] else f"{counts[first]} chunks have"
    with pytest.raises(SourceError) as caught:
        check_tiling(shape, found)
    assert str(caught.value).startswith(f"{number} the element {list(first)} of {list(shape)}")


def test_a_wheel_of_boxes_that_no_cut_divides() -> None:
    wheel = [((0, 0), (1, 2)), ((0, 2), (2, 3)), ((2, 1), (3, 3)), ((1, 0), (3, 1)), ((1, 1), (2, 2))]
    check_tiling((3, 3), [Region(*box) for box in wheel])
    with pytest.raises(SourceError, match=r"no chunk has the element \[1, 1\] of \[3, 3\]\n"):
        check_tiling((3, 3), [Region(*box) for box in wheel[:-1]])


def test_an_array_without_axes() -> None:
    whole = Region((), ())
    check_tiling((), [whole])
    for found in ([], [whole, whole]):
        with pytest.raises(SourceError, match=r"the element \[\] of \[\]"):
            check_tiling((), found)


def test_thousands_of_boxes_take_a_number_of_calls_in_proportion() -> None:
    found = list(chunk_regions((2**40, 4096), (2**34, 128)))
    assert len(found) == 2**11
    with bounded(2**23, calls=2**17):
        check_tiling((2**40, 4096), found)


def test_arrays_divided_along_many_axes_are_refused() -> None:
    axes = MOST_SPLIT_AXES + 1
    found = [Region(start, tuple(n + 1 for n in start)) for start in itertools.product((0, 1), repeat=axes)]
    with pytest.raises(SourceError, match="is split into 128 chunks along 7 axes"):
        check_tiling((2,) * axes, found)
    check_tiling((2,) * (axes - 1), [Region(r.starts[1:], r.stops[1:]) for r in found[: len(found) // 2]])
