"""Regions of plain arrays in files, however they are cut into reads and writes."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.storage import reading as byte_ranges
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, opened, read_region, stat_file, write_region
from tests.support.effort import examples
from tests.support.failing import refusing
from tests.support.strategies import regions_of_shapes, shapes


@examples(100)
@given(
    box=regions_of_shapes(shapes(7)),
    dtype=st.sampled_from(["u1", "i2", "f4", "c16"]),
    span=st.integers(1, 200),
    run=st.integers(1, 200),
)
def test_regions_are_read_and_written_as_numpy_slices_them(
    box: tuple[tuple[int, ...], Region],
    dtype: str,
    span: int,
    run: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    shape, region = box
    spec = ArraySpec(shape, np.dtype(dtype))
    stored = (np.arange(spec.nbytes) % 251).astype(np.uint8).view(dtype).reshape(shape)
    path = tmp_path_factory.getbasetemp() / "ranges"
    path.write_bytes(b"before" + stored.tobytes() + b"after")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_ranges, "SPAN_BYTES", span)
        patch.setattr(byte_ranges, "RUN_BYTES", run)
        with opened(str(path)) as file:
            found = read_region(file, 6, spec, region)
    assert (found.dtype, found.shape) == (stored.dtype, region.shape)
    assert found.tobytes() == stored[region.slices].tobytes()
    block = (
        np.asfortranarray(~np.ascontiguousarray(found).view("u1").reshape(-1))
        .view(dtype)
        .reshape(region.shape)
    )
    descriptor = os.open(path, os.O_WRONLY)
    try:
        write_region(descriptor, 6, spec, region, block)
    finally:
        os.close(descriptor)
    wanted = stored.copy()
    wanted[region.slices] = block
    assert path.read_bytes() == b"before" + wanted.tobytes() + b"after"


@pytest.mark.parametrize(
    ("columns", "region", "lengths"),
    [
        (4000, Region((0, 0), (100, 4000)), [400_000]),  # all of it in one go
        (4000, Region((10, 0), (20, 4000)), [40_000]),  # whole rows, too
        (4000, Region((7, 400), (8, 800)), [400]),  # part of one row
        (4000, Region((0, 0), (100, 40)), [99 * 4000 + 40]),  # short runs: with the gaps between them
        (80_000, Region((0, 0), (40, 40_000)), [40_000] * 40),  # long ones: without
        (80_000, Region((0, 0), (28, 40)), [13 * 80_000 + 40] * 2),  # as many together as 1 MiB holds
    ],
)
def test_how_much_is_read(columns: int, region: Region, lengths: list[int]) -> None:
    taken: list[int] = []
    file = OpenFile("x", FileStat(100 * columns, 0), lambda offset, buffer: taken.append(len(buffer)))
    read_region(file, 0, ArraySpec((100, columns), np.dtype("u1")), region)
    assert taken == lengths


def test_reads_and_writes_that_do_a_part_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ranges, "CALL_BYTES", 3)
    spec, value = ArraySpec((5, 4), np.dtype("u2")), np.arange(20, dtype="u2").reshape(5, 4)
    descriptor = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    write_region(descriptor, 0, spec, Region.whole((5, 4)), value)
    os.close(descriptor)
    with opened(str(tmp_path / "x")) as file:
        assert (read_region(file, 0, spec, Region.whole((5, 4))) == value).all()


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "not a regular file"), (tmp_path / "missing", "No such file")):
        with pytest.raises(SourceError, match=says), opened(str(path)):
            pass
        with pytest.raises(SourceError, match=says):
            stat_file(str(path))


def test_an_error_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(bytes(10))
    for call in ("preadv", "pread"):
        monkeypatch.setattr(os, call, refusing(errno.EIO))
    with opened(str(tmp_path / "x")) as file, pytest.raises(StorageError, match="Input/output error"):
        file.read(0, 4)


def test_reads_without_preadv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv", raising=False)
    stored = np.arange(35, dtype=np.float32).reshape(5, 7)
    (tmp_path / "w").write_bytes(b"head" + stored.tobytes())
    with opened(str(tmp_path / "w")) as file:
        block = read_region(file, 4, ArraySpec((5, 7), np.dtype(np.float32)), Region((1, 2), (4, 6)))
        assert file.read(0, 4) == b"head"
        with pytest.raises(SourceError, match="ends at byte 144"):
            file.read(140, 8)
    np.testing.assert_array_equal(block, stored[1:4, 2:6])
