"""Regions of zarr arrays: what missing, damaged and changed chunks read as."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import RANGED_BYTES, contiguous
from ckpt_surgery.formats.shared.zarr.arrays import ArrayReader, ZarrArraysSource
from ckpt_surgery.formats.shared.zarr.files import Files, StoredArray, file_array, file_manifest
from ckpt_surgery.storage.listing import FileStat
from tests.support.arrays import array
from tests.support.conformance import random_regions
from tests.support.leaves import array_leaf, by_key

ROWS = array((4, 6), "float32")
"""Written as chunks of 2 × 2."""
WIDE = (2 * RANGED_BYTES,)
"""Shape of an array of two chunks that are read in parts, if they are raw."""


def written(path: Path, value: np.ndarray, chunks: list[int], compressed: bool = True) -> Path:
    """A zarr array as TensorStore writes it."""
    metadata: dict[str, Any] = {
        "data_type": value.dtype.name,
        "shape": list(value.shape),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "codecs": [{"name": "bytes"}, *([{"name": "zstd"}, {"name": "crc32c"}] if compressed else [])],
        "fill_value": 5,
    }
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}, "metadata": metadata}
    store = ts.open(spec, create=True).result()
    store.write(value).result()
    return path


def listed(
    path: Path, filled: bool = False, name: str = "w"
) -> tuple[Leaf, StoredArray, dict[str, FileStat]]:
    """The leaf of the array in a directory, what reading it takes, and the files that are there now."""
    files = Files.of(str(path))
    stored = file_array(files, "")
    manifest = file_manifest(files, "", stored.definition)
    stored = StoredArray(stored.definition, stored.kvstore, stored.path, filled)
    spec = manifest.spec
    return array_leaf(name, spec.shape, spec.dtype, manifest=manifest), stored, files.by_path


def reader_of(path: Path, filled: bool = False) -> tuple[ArrayReader, Leaf]:
    leaf, stored, files = listed(path, filled)
    return ArrayReader(str(path), {"w": stored}.__getitem__, files), leaf


def test_regions_are_what_tensorstore_wrote(tmp_path: Path) -> None:
    reader, leaf = reader_of(written(tmp_path / "x", ROWS, [2, 2]))
    for region in random_regions(ROWS.shape, 20):
        np.testing.assert_array_equal(reader.read(leaf, region), ROWS[region.slices])


def test_an_empty_region_opens_nothing(tmp_path: Path) -> None:
    _, leaf = reader_of(written(tmp_path / "x", ROWS, [2, 2]))
    found = ArrayReader(str(tmp_path), {}.__getitem__).read(leaf, Region((1, 2), (1, 5)))
    assert (found.shape, found.dtype) == ((0, 3), np.float32)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_missing_chunk_is_the_fill_value_or_an_error(compressed: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2], compressed)
    (path / "c/0/1").unlink()
    filled, leaf = reader_of(path, filled=True)
    wanted = ROWS.copy()
    wanted[:2, 2:4] = 5
    np.testing.assert_array_equal(filled.read(leaf, Region.whole((4, 6))), wanted)
    strict, leaf = reader_of(path)
    with pytest.raises(SourceError, match="`w` cannot be read from"):
        strict.read(leaf, Region.whole((4, 6)))
    np.testing.assert_array_equal(strict.read(leaf, Region((2, 0), (4, 6))), ROWS[2:])


def test_large_raw_chunks_are_read_in_parts_only_where_all_of_them_are_stored(tmp_path: Path) -> None:
    """The reader is given no array, so that whatever does not read parts of files fails."""
    value = array(WIDE, "uint8")
    path = written(tmp_path / "x", value, [RANGED_BYTES], compressed=False)
    (path / "c/1").unlink()
    leaf, _, files = listed(path)
    reader = ArrayReader(str(path), {}.__getitem__, files)
    near = Region((RANGED_BYTES - 3,), (RANGED_BYTES,))
    np.testing.assert_array_equal(reader.read(leaf, near), value[near.slices])
    with pytest.raises(SourceError, match="`w` cannot be read"):
        reader.read(leaf, Region((RANGED_BYTES - 3,), (RANGED_BYTES + 1,)))


@pytest.mark.parametrize("filled", [True, False])
def test_a_chunk_that_vanishes_is_an_error_even_where_there_is_a_fill_value(
    filled: bool, tmp_path: Path
) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    reader, leaf = reader_of(path, filled)
    (path / "c/1/2").unlink()
    np.testing.assert_array_equal(reader.read(leaf, Region((0, 0), (2, 6))), ROWS[:2])
    with pytest.raises(SourceError, match="c/1/2"):
        reader.read(leaf, Region((2, 4), (4, 6)))


def test_a_chunk_that_changed_is_an_error_even_where_it_can_be_decoded(tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    reader, leaf = reader_of(path)
    os.utime(path / "c/0/0", ns=(1, 1))
    np.testing.assert_array_equal(reader.read(leaf, Region((2, 0), (4, 2))), ROWS[2:, :2])
    with pytest.raises(SourceError, match="c/0/0 has changed since it was listed"):
        reader.read(leaf, Region((0, 0), (1, 1)))


def test_a_flipped_bit_is_an_error_with_the_files_of_the_region(tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    data = bytearray((path / "c/1/1").read_bytes())
    data[5] ^= 1
    (path / "c/1/1").write_bytes(data)
    reader, leaf = reader_of(path)
    with pytest.raises(SourceError) as caught:
        reader.read(leaf, Region((2, 2), (3, 3)))
    message = str(caught.value)
    assert message.startswith(f"`w` cannot be read from {path}/c/1/1: ")
    assert "source locations" not in message
    with pytest.raises(
        SourceError, match=f"from {path}/c/0/0, {path}/c/0/1, {path}/c/0/2 and 3 more files: "
    ):
        reader.read(leaf, Region.whole((4, 6)))


def test_an_array_without_any_file_is_named_by_its_directory(tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    for file in path.glob("c/*/*"):
        file.unlink()
    reader, leaf = reader_of(path)
    with pytest.raises(SourceError, match=f"`w` cannot be read from {path}: "):
        reader.read(leaf, Region.whole((4, 6)))


def test_a_source_holds_zarr_arrays_beside_contiguous_ones(tmp_path: Path) -> None:
    leaf, stored, files = listed(written(tmp_path / "x", ROWS, [2, 2]), name="zarr")
    (tmp_path / "y").write_bytes(ROWS.tobytes())
    assert leaf.spec is not None
    plain = array_leaf("raw", manifest=contiguous(leaf.spec, str(tmp_path / "y"), 0))
    source = ZarrArraysSource(
        path=str(tmp_path),
        format="toy",
        directory=str(tmp_path),
        leaves=by_key(leaf, plain),
        arrays={"zarr": stored},
        files=files,
        metadata={},
    )
    for one in (leaf, plain):
        np.testing.assert_array_equal(source.read(one, Region((1, 1), (3, 5))), ROWS[1:3, 1:5])
