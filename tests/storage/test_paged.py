"""Short reads of a file through pages: the right bytes, in few reads, in bounded memory."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, PagedFile, opened
from tests.support.key_value import uploaded

DATA = random.Random(0).randbytes(1000)
PAGE = 64


class Counted:
    """A file in memory, and the ranges that were read of it."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []
        self.file = OpenFile("x", FileStat(len(DATA), 0), self._fill)

    def _fill(self, offset: int, buffer: memoryview) -> None:
        self.reads.append((offset, len(buffer)))
        if offset + len(buffer) > len(DATA):
            raise SourceError("it ends")
        buffer[:] = DATA[offset : offset + len(buffer)]


def read_into(paged: PagedFile, offset: int, length: int) -> bytes:
    buffer = bytearray(length)
    paged.read_into(offset, memoryview(buffer))
    return bytes(buffer)


@pytest.mark.parametrize("read", [PagedFile.read, read_into])
@pytest.mark.parametrize("kept", [2, 100])
def test_any_bytes_in_any_order(read: Callable[[PagedFile, int, int], bytes], kept: int) -> None:
    counted, draw = Counted(), random.Random(1)
    paged = PagedFile(counted.file, PAGE, kept)
    for _ in range(2000):
        length = draw.choice((0, 1, 8, PAGE - 1, PAGE, PAGE + 1, 200))
        offset = draw.randrange(len(DATA) - length + 1)
        assert read(paged, offset, length) == DATA[offset : offset + length]
    if kept == 100:
        short = [read for read in counted.reads if read[0] % PAGE == 0 and read[1] <= PAGE]
        pages = {offset for offset, length in short if length < PAGE}
        assert pages <= {960}  # only the last page is shorter


def test_each_page_is_read_once_while_it_is_kept() -> None:
    counted = Counted()
    paged = PagedFile(counted.file, PAGE, 2)
    for at in range(0, 2 * PAGE - 8, 5):
        paged.read(at, 8)
    assert counted.reads == [(0, PAGE), (PAGE, PAGE)]
    paged.read(5 * PAGE, 1)
    paged.read(PAGE, 1)
    paged.read(0, 1)  # was dropped for the third page
    assert counted.reads[2:] == [(5 * PAGE, PAGE), (0, PAGE)]


def test_neighbours_are_prefetched_in_one_read() -> None:
    counted = Counted()
    paged = PagedFile(counted.file, PAGE, 100)
    paged.read(PAGE, 1)
    paged.prefetch([(0, 10), (100, 3 * PAGE), (10 * PAGE - 1, 10 * PAGE + 1), (950, 1000), (7, 7)])
    assert counted.reads[1:] == [(0, PAGE), (2 * PAGE, PAGE), (9 * PAGE, 2 * PAGE), (14 * PAGE, 104)]
    for offset in (0, 100, 10 * PAGE - 1, 990):
        assert paged.read(offset, 8) == DATA[offset : offset + 8]
    assert len(counted.reads) == 5


def test_pages_of_an_object_are_fetched_together(tmp_path: Path, bucket: str) -> None:
    data = random.Random(2).randbytes(1 << 18)
    (tmp_path / "x").write_bytes(data)
    with opened(uploaded(tmp_path / "x", f"{bucket}/x")) as file:
        paged = PagedFile(file, 1 << 10, 100)
        paged.prefetch([(70_000, 70_001), (1 << 17, (1 << 17) + 3000)])
        reads: list[int] = []
        closed = OpenFile(file.path, file.stat, lambda offset, buffer: reads.append(offset))
        paged._file = closed
        assert paged.read(1 << 17, 1000) == data[1 << 17 :][:1000]
        assert paged.read(70_000, 300) == data[70_000:70_300]
        assert not reads
