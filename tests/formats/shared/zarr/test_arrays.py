"""Zarr arrays as sources read them: what missing, damaged and changed chunks read as."""

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
from ckpt_surgery.formats.shared.listings import ListedSource, Listing
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.files import Files, file_array, file_manifest
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


def source_of(path: Path, filled: bool = False, *others: Leaf) -> tuple[ListedSource, Leaf]:
    """A source of the array in a directory, and its leaf `w`."""
    files = Files.of(str(path))
    manifest = file_manifest(files, "", file_array(files, ""), filled)
    leaf = array_leaf("w", manifest.spec.shape, manifest.spec.dtype, manifest=manifest)
    listing = Listing(by_key(leaf, *others), files.by_path, decode=decode_region)
    return ListedSource(str(path), "toy", listing), leaf


def test_regions_are_what_tensorstore_wrote(tmp_path: Path) -> None:
    source, leaf = source_of(written(tmp_path / "x", ROWS, [2, 2]))
    for region in random_regions(ROWS.shape, 20):
        np.testing.assert_array_equal(source.read(leaf, region), ROWS[region.slices])


def test_an_empty_region_opens_nothing(tmp_path: Path) -> None:
    source, leaf = source_of(written(tmp_path / "x", ROWS, [2, 2]))
    for file in (tmp_path / "x").glob("c/*/*"):
        file.unlink()
    found = source.read(leaf, Region((1, 2), (1, 5)))
    assert (found.shape, found.dtype) == ((0, 3), np.float32)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_missing_chunk_is_the_fill_value_or_an_error(compressed: bool, tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2], compressed)
    (path / "c/0/1").unlink()
    filled, leaf = source_of(path, filled=True)
    wanted = ROWS.copy()
    wanted[:2, 2:4] = 5
    np.testing.assert_array_equal(filled.read(leaf, Region.whole((4, 6))), wanted)
    strict, leaf = source_of(path)
    with pytest.raises(SourceError, match=r"`w`: its chunk .*0.*1.* is missing"):
        strict.read(leaf, Region.whole((4, 6)))
    np.testing.assert_array_equal(strict.read(leaf, Region((2, 0), (4, 6))), ROWS[2:])


def test_large_raw_chunks_are_read_in_parts(tmp_path: Path) -> None:
    value = array(WIDE, "uint8")
    path = written(tmp_path / "x", value, [RANGED_BYTES], compressed=False)
    (path / "c/1").unlink()
    source, leaf = source_of(path)
    near = Region((RANGED_BYTES - 3,), (RANGED_BYTES,))
    np.testing.assert_array_equal(source.read(leaf, near), value[near.slices])
    with pytest.raises(SourceError, match="`w`: its chunk"):
        source.read(leaf, Region((RANGED_BYTES - 3,), (RANGED_BYTES + 1,)))


@pytest.mark.parametrize("filled", [True, False])
def test_a_chunk_that_vanishes_is_an_error_even_where_there_is_a_fill_value(
    filled: bool, tmp_path: Path
) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    source, leaf = source_of(path, filled)
    (path / "c/1/2").unlink()
    np.testing.assert_array_equal(source.read(leaf, Region((0, 0), (2, 6))), ROWS[:2])
    with pytest.raises(SourceError, match="c/1/2"):
        source.read(leaf, Region((2, 4), (4, 6)))


def test_a_chunk_that_changed_is_an_error_even_where_it_can_be_decoded(tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    source, leaf = source_of(path)
    os.utime(path / "c/0/0", ns=(1, 1))
    np.testing.assert_array_equal(source.read(leaf, Region((2, 0), (4, 2))), ROWS[2:, :2])
    with pytest.raises(SourceError, match="c/0/0 has changed since it was listed"):
        source.read(leaf, Region((0, 0), (1, 1)))


def test_a_flipped_bit_is_an_error_with_the_file_of_the_chunk(tmp_path: Path) -> None:
    path = written(tmp_path / "x", ROWS, [2, 2])
    data = bytearray((path / "c/1/1").read_bytes())
    data[5] ^= 1
    (path / "c/1/1").write_bytes(data)
    source, leaf = source_of(path)
    with pytest.raises(SourceError) as caught:
        source.read(leaf, Region((2, 2), (3, 3)))
    message = str(caught.value)
    assert message.startswith(f"`w`: its chunk c/1/1 in {path}/c/1/1 cannot be decoded: ")
    assert "source locations" not in message
    with pytest.raises(SourceError, match=f"`w`: its chunk c/1/1 in {path}/c/1/1 cannot be decoded: "):
        source.read(leaf, Region.whole((4, 6)))


def test_paths_that_tensorstore_does_not_open_are_read(tmp_path: Path) -> None:
    """A backslash, which it takes for `/`, and a name that is not UTF-8: the files are not its business."""
    for name in ("a\\b", os.fsdecode(b"a\xffb")):
        path = written(tmp_path / "plain", ROWS, [2, 2]).rename(tmp_path / name)
        source, leaf = source_of(path)
        np.testing.assert_array_equal(source.read(leaf, Region.whole((4, 6))), ROWS)


def test_a_source_holds_zarr_arrays_beside_contiguous_ones(tmp_path: Path) -> None:
    (tmp_path / "y").write_bytes(ROWS.tobytes())
    plain = array_leaf("raw", ROWS.shape, ROWS.dtype)
    assert plain.spec is not None
    plain = array_leaf("raw", ROWS.shape, ROWS.dtype, manifest=contiguous(plain.spec, str(tmp_path / "y"), 0))
    source, leaf = source_of(written(tmp_path / "x", ROWS, [2, 2]), False, plain)
    for one in (leaf, plain):
        np.testing.assert_array_equal(source.read(one, Region((1, 1), (3, 5))), ROWS[1:3, 1:5])
