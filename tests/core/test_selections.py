"""Selections of elements, against NumPy's own indexing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core import selections
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.selections import Positions
from tests.support.effort import examples
from tests.support.strategies import regions, shapes
from tests.support.strategies import selections as any_selections

LENGTH = 12

ranges = st.builds(range, st.integers(0, 5), st.integers(0, LENGTH), st.integers(1, 4))
places = st.lists(st.integers(0, LENGTH - 1), max_size=6).map(lambda found: np.array(found, np.int64))
ascending: st.SearchStrategy[Positions] = ranges | places.map(np.unique)


def listed(positions: Positions) -> list[int]:
    return [int(position) for position in positions]


@examples(60)
@given(data=st.data(), shape=shapes(5, max_ndim=3))
def test_counts_and_boxes_are_those_of_the_elements(data: st.DataObject, shape: tuple[int, ...]) -> None:
    selection = data.draw(any_selections(shape))
    mask = np.zeros(shape, bool)
    mask[np.ix_(*map(selections.as_array, selection))] = True
    assert selections.count(selection) == mask.sum()
    box = selections.bounding_box(selection)
    if mask.any():
        found = np.argwhere(mask)
        assert box == Region(tuple(found.min(0).tolist()), tuple((found.max(0) + 1).tolist()))
    else:
        assert box.size == 0


@given(data=st.data(), shape=shapes(5, max_ndim=3))
def test_a_region_selects_its_elements(data: st.DataObject, shape: tuple[int, ...]) -> None:
    region = data.draw(regions(shape))
    assert selections.count(selections.of_region(region)) == region.size
    assert selections.whole(shape) == selections.of_region(Region.whole(shape))


@given(positions=ascending | ranges.map(lambda found: found[::-1]), length=st.integers(1, 5))
def test_the_blocks_that_indices_are_in(positions: Positions, length: int) -> None:
    wanted = {position // length for position in listed(positions)}
    found = listed(selections.blocks_of(positions, length))
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("positions", "bounds"),
    [
        (range(3, 8), (3, 8)),
        (range(8, 3, -2), (4, 9)),  # 8, 6, 4
        (range(0), (0, 0)),
        (np.array([5, 2, 9]), (2, 10)),
        (np.array([], np.int64), (0, 0)),
    ],
)
def test_the_interval_that_holds_all_positions(positions, bounds) -> None:
    assert selections.bounds(positions) == bounds


@given(positions=ascending, data=st.data())
def test_positions_of_positions_are_numpys(positions: Positions, data: st.DataObject) -> None:
    count = len(positions)
    chosen = data.draw(
        st.sets(st.integers(0, count - 1)).map(lambda found: np.array(sorted(found), np.int64))
        | st.builds(range, st.integers(0, count), st.integers(0, count))
        if count
        else st.just(range(0))
    )
    wanted = selections.as_array(positions)[selections.as_array(chosen)]
    assert listed(selections.at(positions, chosen)) == wanted.tolist()


@given(positions=ascending, start=st.integers(0, LENGTH), length=st.integers(0, LENGTH))
def test_positions_within_an_interval_are_counted_from_its_start(
    positions: Positions, start: int, length: int
) -> None:
    stop = start + length
    wanted = [place - start for place in listed(positions) if start <= place < stop]
    assert listed(selections.within(positions, start, stop)) == wanted


@given(positions=ranges | places)
def test_distinct_places_are_ascending_and_a_range_where_they_can_be(positions: Positions) -> None:
    found = selections.distinct(positions)
    assert listed(found) == sorted(set(listed(positions)))
    if len(set(np.diff(listed(found)).tolist())) < 2:
        assert isinstance(found, range)
    assert selections.distinct(range(9, 0, -3)) == range(3, 12, 3)


@pytest.mark.parametrize(
    ("selection", "shape", "wanted"),
    [
        ((range(2, 5), range(7)), (9, 7), (range(2, 5), range(7))),
        ((range(2, 5), range(3, 7)), (1, 7), (range(1), range(3, 7))),  # an axis of length 1 is repeated
        ((range(2, 5), range(3, 7)), (7,), (range(3, 7),)),  # an axis that the input does not have
        ((range(0), range(3, 7)), (1, 7), (range(0), range(3, 7))),
        ((range(2, 5),), (), ()),
    ],
)
def test_what_of_an_input_a_broadcast_result_needs(selection, shape, wanted) -> None:
    assert selections.broadcast(selection, shape) == wanted
