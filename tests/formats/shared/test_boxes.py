"""Arrays in boxes of any shapes: read against NumPy, and described as a grid where they are one."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.formats.shared.boxes import MOST_SPLIT_AXES, Box, Boxes, check_tiling, on_grid
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import NONE_LISTED
from tests.formats.bounds import bounded
from tests.support.arrays import array
from tests.support.conformance import random_regions
from tests.support.effort import examples

VALUE = array((5, 6), "int16")
SPEC = ArraySpec(VALUE.shape, VALUE.dtype)
UNEVEN = [Region((0, 0), (2, 6)), Region((2, 0), (5, 1)), Region((2, 1), (5, 6))]
EVEN = [Region((i, j), (i + 5, j + 2)) for i in (0,) for j in (0, 2, 4)]


@dataclass
class Reading:
    """Reads a box from memory."""

    value: np.ndarray

    def read(self, region: Region, files: Mapping[str, FileStat]) -> np.ndarray:
        return self.value[region.slices]


def stored(path: Path, regions: Sequence[Region]) -> list[Box]:
    """The boxes of VALUE one after another in a file."""
    boxes = []
    with open(path, "wb") as file:
        for region in regions:
            part = ArraySpec(region.shape, VALUE.dtype)
            boxes.append(Box(region, contiguous(part, str(path), file.tell())))
            file.write(VALUE[region.slices].tobytes())
    return boxes


def test_a_region_is_put_together_from_its_boxes(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", UNEVEN)
    boxes[1] = Box(UNEVEN[1], Reading(VALUE[UNEVEN[1].slices]))
    for region in (Region((0, 1), (0, 3)), *random_regions(VALUE.shape, 30)):
        found = Boxes(SPEC, boxes).read(region, NONE_LISTED)
        np.testing.assert_array_equal(found, VALUE[region.slices])
        assert found.dtype == VALUE.dtype


def test_only_boxes_that_a_region_touches_are_read(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", UNEVEN)
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:24])
    assert (Boxes(SPEC, boxes).read(UNEVEN[0], NONE_LISTED) == VALUE[:2]).all()
    with pytest.raises(SourceError, match="more belong"):
        Boxes(SPEC, boxes).read(Region((1, 5), (3, 6)), NONE_LISTED)


def test_boxes_of_one_shape_are_a_grid(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", EVEN)
    manifest = on_grid(SPEC, boxes)
    assert (manifest.spec, manifest.chunk_shape, sorted(manifest.chunks)) == (
        *(SPEC, (5, 2)),
        [(0, 0), (0, 1), (0, 2)],
    )
    first = boxes[0].stored
    assert manifest.chunks[0, 0] is first.chunks[0, 0]
    assert on_grid(SPEC, stored(tmp_path / "x", UNEVEN)) is None
    assert on_grid(SPEC, [boxes[0], boxes[1], Box(EVEN[2], Reading(VALUE))]) is None


def test_boxes_are_checked_where_they_are_read_whole(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", UNEVEN)
    first = boxes[0].stored
    seen: list[int] = []
    checks = {first.chunks[0, 0]: lambda chunk, data: seen.append(data.size)}
    Boxes(SPEC, boxes, checks).read(Region((0, 0), (2, 5)), NONE_LISTED)
    assert seen == []
    Boxes(SPEC, boxes, checks).read(Region.whole(SPEC.shape), NONE_LISTED)
    assert seen == [24]


# --- boxes that fill an array, and those that do not --------------------------------------------------------


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
@examples(60)
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
