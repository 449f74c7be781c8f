"""Arrays in boxes of any shapes: read against NumPy, and described as a grid where they are one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Manifest, contiguous
from ckpt_surgery.formats.chunk_reading import NO_FILES
from ckpt_surgery.formats.shared.boxes import Box, Boxes, on_grid
from ckpt_surgery.storage.listing import FileStat
from tests.support.arrays import array
from tests.support.conformance import random_regions

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
        found = Boxes(SPEC, boxes).read(region, NO_FILES)
        np.testing.assert_array_equal(found, VALUE[region.slices])
        assert found.dtype == VALUE.dtype


def test_only_boxes_that_a_region_touches_are_read(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", UNEVEN)
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:24])
    assert (Boxes(SPEC, boxes).read(UNEVEN[0], NO_FILES) == VALUE[:2]).all()
    with pytest.raises(SourceError, match="more belong"):
        Boxes(SPEC, boxes).read(Region((1, 5), (3, 6)), NO_FILES)


def test_boxes_of_one_shape_are_a_grid(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", EVEN)
    manifest = on_grid(SPEC, boxes)
    assert manifest is not None
    assert (manifest.spec, manifest.chunk_shape, sorted(manifest.chunks)) == (
        *(SPEC, (5, 2)),
        [(0, 0), (0, 1), (0, 2)],
    )
    first = boxes[0].stored
    assert isinstance(first, Manifest)
    assert manifest.chunks[0, 0] is first.chunks[0, 0]
    assert on_grid(SPEC, stored(tmp_path / "x", UNEVEN)) is None
    assert on_grid(SPEC, [boxes[0], boxes[1], Box(EVEN[2], Reading(VALUE))]) is None


def test_boxes_are_checked_where_they_are_read_whole(tmp_path: Path) -> None:
    boxes = stored(tmp_path / "x", UNEVEN)
    first = boxes[0].stored
    assert isinstance(first, Manifest)
    seen: list[int] = []
    checks = {first.chunks[0, 0]: lambda chunk, data: seen.append(data.size)}
    Boxes(SPEC, boxes, checks).read(Region((0, 0), (2, 5)), NO_FILES)
    assert seen == []
    Boxes(SPEC, boxes, checks).read(Region.whole(SPEC.shape), NO_FILES)
    assert seen == [24]
