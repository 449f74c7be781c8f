"""Indices of lazy arrays against NumPy's, and which regions they read."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.live.indexing import parse_index, read_picked

SHAPE = (5, 6, 7)
WHOLE = np.arange(5 * 6 * 7, dtype=np.int32).reshape(SHAPE)


def read(index: Any, whole: np.ndarray, unit: Shape | None) -> tuple[np.ndarray, list[Region]]:
    """What an index gives, and the regions that were read for it."""
    regions: list[Region] = []

    def read_region(region: Region) -> np.ndarray:
        regions.append(region)
        part: np.ndarray = whole[region.slices]
        return part

    picked, rest = parse_index(index, whole.shape)
    block = read_picked(picked, ArraySpec(whole.shape, whole.dtype), unit, read_region)
    return block[rest], regions


BOUNDS = st.none() | st.integers(-15, 15)
ENTRIES = st.one_of(
    st.integers(-8, 7),
    st.builds(slice, BOUNDS, BOUNDS, st.sampled_from([None, 1, 2, 3, -1, -2, 100, -100])),
    st.none(),
    st.just(...),
    st.lists(st.integers(-5, 4), max_size=4),
    st.lists(st.lists(st.integers(-5, 4), min_size=2, max_size=2), min_size=1, max_size=2).map(np.array),
    st.sampled_from(SHAPE).flatmap(lambda n: st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)),
)


@given(st.lists(ENTRIES, max_size=5).map(tuple), st.sampled_from([None, (2, 3, 7), (1, 1, 1), (4, 4, 4)]))
def test_an_index_is_numpys_or_refused_before_reading(index: tuple[Any, ...], unit: Shape | None) -> None:
    several_arrays = sum(isinstance(entry, list | np.ndarray) for entry in index) > 1
    try:
        expected = None if several_arrays else WHOLE[index]
    except IndexError:
        expected = None
    if expected is None:
        with pytest.raises(IndexError):
            parse_index(index, SHAPE)
    else:
        found, _ = read(index, WHOLE, unit)
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize(
    "index", [True, np.bool_(False), "a", 1.0, [0.5], np.ones((5, 6), bool), [[True]], (..., ...), (0,) * 4]
)
def test_other_indices_are_refused(index: Any) -> None:
    with pytest.raises(IndexError):
        parse_index(index, SHAPE)


def test_only_the_chunks_that_an_index_touches_are_read() -> None:
    rows = np.zeros((1000, 10), np.float32)
    _, regions = read(([3, 998, 4, 3], slice(2, 4)), rows, (10, 5))
    assert regions == [Region((3, 2), (5, 4)), Region((998, 2), (999, 4))]
    _, regions = read(slice(None, None, 300), rows, (10, 5))
    assert [(r.starts[0], r.stops[0]) for r in regions] == [(0, 1), (300, 301), (600, 601), (900, 901)]


def test_small_gaps_between_bytes_are_read_too() -> None:
    rows = np.zeros((1000, 1024), np.uint8)
    _, regions = read((slice(0, 100, 2), 0), rows, None)
    assert regions == [Region((0, 0), (99, 1))]
    _, regions = read(([0, 900], 0), rows, None)
    assert len(regions) == 2


def test_no_region_without_elements_is_read() -> None:
    for index in ([], slice(3, 3), slice(9, None), (slice(None), np.zeros(6, bool))):
        found, regions = read(index, WHOLE, None)
        assert found.size == 0
        assert regions == []


def test_what_is_read_for_some_elements_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_surgery.live.indexing.RUN_BYTES", 40)
    numbers = np.arange(100, dtype=np.int32)
    found, regions = read(slice(None, None, 3), numbers, None)
    np.testing.assert_array_equal(found, numbers[::3])
    assert all(region.size <= 10 for region in regions)
