"""Which stored bytes are a region's elements, and what reading them back finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, chunk_regions
from ckpt_surgery.core.digests import Digests, bytes_crc, values_crc
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.storage import reading
from ckpt_surgery.verification.reading_back import Checker, stored_range
from tests.support.counting import calls_of


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


def stored(array: np.ndarray, grid: tuple[int, ...], path: Path | None = None) -> Leaf:
    """A leaf whose chunks are raw, inline or one after another in a file."""
    chunks, data = {}, b""
    for region in chunk_regions(array.shape, grid):
        index = tuple(a // n for a, n in zip(region.starts, grid, strict=True))
        block = np.ascontiguousarray(array[region.slices]).tobytes()
        place = ("", 0, len(block), block) if path is None else (str(path), len(data), len(block))
        chunks[index] = Chunk(*place)
        data += block
    if path is not None:
        path.write_bytes(data)
    spec = ArraySpec(array.shape, array.dtype)
    manifest = Manifest(spec, grid, raw_codec(array.ndim), chunks)
    return Leaf(Key.parse(path.name if path else "w"), LeafKind.ARRAY, spec, manifest)


def crcs_of(array: np.ndarray, grid: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    return {
        tuple(a // n for a, n in zip(r.starts, grid, strict=True)): values_crc(array[r.slices])
        for r in chunk_regions(array.shape, grid)
    }


class Reads:
    """A source that must not be asked for values, because their bytes are known."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        raise AssertionError("stored bytes are compared as they are")


def flaws(leaf: Leaf, digests: Digests) -> list[tuple[Any, Any, str]]:
    """What reading a leaf back finds: key, chunk and what is wrong."""
    source: Any = Reads()
    checker = Checker(Means(1 << 30, 2))
    assert checker.read_leaves(source, [(leaf, digests)], []) == {}
    return [(flaw.key, flaw.chunk, flaw.what) for flaw in checker.flaws]


@given(st.data())
def test_the_bytes_of_a_range_are_the_elements_of_the_region(data: st.DataObject) -> None:
    grid = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    shape = tuple(n * data.draw(st.integers(1, 3)) for n in grid)
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    manifest = stored(array, grid).manifest
    assert manifest is not None
    starts = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    region = Region(
        starts, tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(starts, shape, strict=True))
    )
    found = stored_range(manifest, region)
    if found is not None:
        assert found.inline is not None
        stored_bytes = found.inline[found.offset : found.offset + found.length]
        assert stored_bytes == array[region.slices].tobytes()
    if all(a % n == 0 and b - a == n for a, b, n in zip(region.starts, region.stops, grid, strict=True)):
        assert found is not None, "a whole chunk is always a range"


@pytest.mark.parametrize("grid", [(8, 6), (2, 6), (4, 3)])
@pytest.mark.parametrize("cells", [(8, 6), (4, 6), (1, 6), (1, 3)])
def test_raw_values_are_compared_without_decoding(
    grid: tuple[int, ...], cells: tuple[int, ...], tmp_path: Path
) -> None:
    array = numbers(8, 6)
    leaf = stored(array, grid, tmp_path / "w")
    inside = all(c <= g and g % c == 0 for c, g in zip(cells, grid, strict=True))
    if not inside or (cells[1] < grid[1] and cells[0] > 1):
        return
    digests = Digests(cells, True, crcs_of(array, cells))
    assert flaws(leaf, digests) == []
    data = bytearray((tmp_path / "w").read_bytes())
    data[0] ^= 1
    (tmp_path / "w").write_bytes(data)
    assert [flaw[:2] for flaw in flaws(leaf, digests)] == [("w", (0, 0))]


def test_a_file_is_opened_once_for_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = numbers(500, 4)
    leaf = stored(array, (1, 4), tmp_path / "w")
    digests = Digests((1, 4), True, crcs_of(array, (1, 4)))
    calls = calls_of(reading, monkeypatch)
    assert flaws(leaf, digests) == []
    assert calls == ["open", "read"]


def test_stored_bytes_that_are_missing(tmp_path: Path) -> None:
    leaf = stored(numbers(4, 2), (2, 2), tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    digests = Digests((2, 2), False, {(0, 0): bytes_crc(data[: len(data) // 2]), (5, 0): 1})
    assert flaws(leaf, digests) == [("w", (5, 0), "its stored bytes are missing")]
    (tmp_path / "w").unlink()
    assert "cannot be read: No such file" in flaws(leaf, digests)[1][2]
    (tmp_path / "w").write_bytes(data[:3])
    assert flaws(leaf, digests)[1][2].endswith("ends at byte 3, where 13 more belong")
