"""Reading files, and reading and writing regions of arrays that lie in them as plain bytes in C order.

Files are read with pread(2), not mapped: a file that shrinks meanwhile then raises an error instead of
SIGBUS.
"""

import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from stat import S_ISREG
from types import MappingProxyType

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import LINKS, changed, damaged, unreadable
from ckpt_surgery.storage.listing import FileStat, check_link, listed_object, object_stat, real_path
from ckpt_surgery.storage.store import ByteRange, Stat, store_of
from ckpt_surgery.storage.views import HEADS

SPAN_BYTES = 2**20
"""Short runs that lie within this many bytes are read in one call, with the gaps between them."""
RUN_BYTES = 2**15
"""Runs of at least this many bytes are read one by one, without the gaps."""
PIECE = 512 << 10
"""Bytes of a file that are in memory at a time, and in a processor's cache when their CRC is computed."""
OBJECT_PIECE = 16 << 20
"""The same of an object, where each piece is a request."""
PAGE = 64 << 10
"""Bytes of a file that are read for short ranges near each other."""
CALL_BYTES = 2**26
"""Largest number of bytes per call: cancellation is checked between calls."""
WHOLE_BYTES = 2**30
"""Largest number of bytes that are read from a file by one call, which copies nothing."""
NONE_LISTED: Mapping[str, FileStat] = MappingProxyType({})
"""No files were listed: any version of a file is read."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file or an object of a store that is open for reading, or a compressed stream, read forwards."""

    path: str
    """Its path or URL."""
    stat: FileStat
    read_into: Callable[[int, memoryview], None]
    """Fills a buffer with the bytes from an offset on."""
    descriptor: int | None = None
    """Descriptor of a file; None for objects."""

    def read(self, offset: int, length: int) -> bytes:
        """The `length` bytes from `offset` on."""
        if offset + length > self.stat.size:
            raise _too_short(self.path, self.stat.size, offset + length - self.stat.size)
        if self.descriptor is not None and length <= WHOLE_BYTES:
            raise_if_cancelled()
            with suppress(OSError):  # which reading again tells
                data = os.pread(self.descriptor, length, offset)
                if len(data) == length:
                    return data
        buffer = bytearray(length)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)


def _fill_from_file(path: str, descriptor: int, offset: int, buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        raise_if_cancelled()
        part = buffer[done : done + CALL_BYTES]
        try:
            if hasattr(os, "preadv"):
                count = os.preadv(descriptor, [part], offset + done)
            else:
                data = os.pread(descriptor, len(part), offset + done)
                count, part[: len(data)] = len(data), data
        except OSError as error:
            raise unreadable(path, error) from error
        if count == 0:
            raise _too_short(path, offset + done, len(buffer) - done)
        done += count


def _too_short(path: str, end: int, lacking: int) -> SourceError:
    return damaged(f"{shown(path)} ends at byte {end}, where {lacking} more belong")


def _fill_from_object(url: str, stat: Stat, offset: int, buffer: memoryview) -> None:
    if offset + len(buffer) > stat.size:
        end = max(offset, stat.size)
        raise _too_short(url, end, offset + len(buffer) - end)
    head = HEADS.read(url, stat, offset, len(buffer))
    if head is not None:
        buffer[:] = head
        return
    store, name = store_of(url)
    for done in range(0, len(buffer), CALL_BYTES):
        raise_if_cancelled()
        stop = min(done + CALL_BYTES, len(buffer))
        buffer[done:stop] = store.read(name, offset + done, offset + stop, stat.version)


@contextmanager
def opened(path: str, expected: FileStat | None = None) -> Iterator[OpenFile]:
    """A regular file or an object, open for reading; `expected` is its size and time when it was listed."""
    if urls.is_url(path):
        listed = _listed(path, expected)
        yield OpenFile(path, object_stat(listed), partial(_fill_from_object, path, listed))
        return
    try:
        # A pipe would keep a plain open waiting for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        stat = _stat(path, os.fstat(descriptor))
        if expected is not None and stat != expected:
            raise changed(path)
        yield OpenFile(path, stat, partial(_fill_from_file, path, descriptor), descriptor)
    finally:
        os.close(descriptor)


def _listed(url: str, expected: FileStat | None) -> Stat:
    """Size and version of an object. Raises SourceError where it is missing or has changed."""
    stat = listed_object(url)
    if expected is not None and object_stat(stat) != expected:
        raise changed(url)
    return stat


def stat_file(path: str) -> FileStat:
    """Size and time of a regular file, also through links."""
    if urls.is_url(path):
        return object_stat(listed_object(path))
    try:
        return _stat(path, os.stat(path))
    except OSError as error:
        raise unreadable(path, error) from error


def stat_within(directory: str, name: str) -> FileStat:
    """Size and time of a file of the checkpoint in a directory, which a link must not leave."""
    path = os.path.join(directory, name)
    check_link(path, real_path(directory))
    return stat_file(path)


def _stat(path: str, status: os.stat_result) -> FileStat:
    if not S_ISREG(status.st_mode):
        raise SourceError(f"{shown(path)} is not a regular file", hint=LINKS)
    return FileStat(status.st_size, status.st_mtime_ns)


def read_file(path: str, most: int | None = None) -> bytes:
    """All of a file. Raises SourceError for one of more than `most` bytes."""
    with opened(path) as file:
        if most is not None and file.stat.size > most:
            raise damaged(f"{shown(path)} has {file.stat.size} bytes; {most} is the limit")
        return file.read(0, file.stat.size)


def read_pieces(file: OpenFile, offset: int, length: int) -> Iterator[tuple[int, memoryview]]:
    """The bytes of a range, a buffer full at a time; with the offset of each piece in the range."""
    buffer = memoryview(bytearray(min(length, OBJECT_PIECE if urls.is_url(file.path) else PIECE)))
    for at in range(0, length, max(1, len(buffer))):
        raise_if_cancelled()
        part = buffer[: length - at]
        file.read_into(offset + at, part)
        yield at, part


def range_crc(file: OpenFile, offset: int, length: int, crc: int = 0) -> int:
    """CRC-32C of a range of a file, continued from that of bytes before."""
    for _, part in read_pieces(file, offset, length):
        crc = bytes_crc(part, crc)
    return crc


def read_ranges(
    chunks: Sequence[Chunk], expected: Mapping[str, FileStat] = NONE_LISTED, near: bool = False
) -> Iterator[bytes]:
    """The bytes of ranges of files, in their order; those in an object store are read together, at once.

    Memory: one range, and all those that are objects'. `expected`: size and time of files when they were
    listed, by path. `near`: true if short ranges of a file mostly follow each other; one call reads several.
    """
    objects = [chunk for chunk in chunks if chunk.inline is None and urls.is_url(chunk.file)]
    fetched = _fetched(objects, expected) if objects else iter(())
    for path, group in itertools.groupby(chunks, lambda chunk: chunk.file):
        if not path:
            for chunk in group:
                assert chunk.inline is not None
                yield chunk.inline[chunk.offset : chunk.offset + chunk.length]
        elif urls.is_url(path):
            yield from (next(fetched) for _ in group)
        else:
            with opened(path, expected.get(path)) as file:
                read = PagedFile(file, PAGE, 2).read if near else file.read
                yield from (read(chunk.offset, chunk.length) for chunk in group)


def _fetched(chunks: Sequence[Chunk], expected: Mapping[str, FileStat]) -> Iterator[bytes]:
    """Ranges of objects of one store, in the versions that were listed."""
    ranges = []
    for chunk in chunks:
        version = _listed(chunk.file, expected.get(chunk.file)).version
        name = urls.split(chunk.file)[1]
        ranges.append(ByteRange(name, chunk.offset, chunk.offset + chunk.length, version))
    data = store_of(chunks[0].file)[0].read_many(ranges)
    for i in range(len(data)):
        yield data[i]
        data[i] = b""


def read_region(file: OpenFile, offset: int, spec: ArraySpec, region: Region) -> np.ndarray:
    """The elements of `region` of an array that begins at `offset`, native byte order, C order.

    Reads go forwards only. Memory: the region, and at most SPAN_BYTES besides.
    """
    block = np.empty(region.shape, spec.dtype)
    if block.size:
        read_strided(file, *_box(offset, spec, region), block)
    return block


def read_strided(file: OpenFile, start: int, strides: Sequence[int], out: np.ndarray) -> None:
    """Read the elements at the byte `start` + index · strides into `out`, which is not empty.

    In one call where they lie one after another, or where the gaps between them are short; else in parts of
    the axis that spans the most bytes.
    """
    run = _run_bytes(out, strides)
    if run == out.nbytes and out.flags.c_contiguous:
        file.read_into(start, out.reshape(-1).view(np.uint8).data)
        return
    reaches = [(n - 1) * stride for n, stride in zip(out.shape, strides, strict=True)]
    span = sum(reaches) + out.itemsize
    if span <= SPAN_BYTES and run < RUN_BYTES:
        scratch = np.empty(span, np.uint8)
        file.read_into(start, scratch.data)
        out[...] = np.ndarray(out.shape, out.dtype, scratch.data, 0, tuple(strides))
    else:
        axis = reaches.index(max(reaches))
        together = (SPAN_BYTES - (span - reaches[axis])) // strides[axis] + 1
        step, before = max(1, together) if run < RUN_BYTES else 1, (slice(None),) * axis
        for i in range(0, out.shape[axis], step):
            read_strided(file, start + i * strides[axis], strides, out[(*before, slice(i, i + step))])


def _run_bytes(out: np.ndarray, strides: Sequence[int]) -> int:
    """Number of bytes that follow each other without a gap, in the order of the elements."""
    run: int = out.itemsize
    for n, stride in zip(reversed(out.shape), reversed(strides), strict=True):
        if n > 1 and stride != run:
            break
        run *= n
    return run


def write_region(descriptor: int, offset: int, spec: ArraySpec, region: Region, block: np.ndarray) -> None:
    """Write `block` as the elements of `region` of an array that begins at `offset`. Raises OSError."""
    if block.size:
        _write_runs(descriptor, *_box(offset, spec, region), np.asarray(block, order="C"))


def _write_runs(descriptor: int, start: int, strides: Sequence[int], data: np.ndarray) -> None:
    if _run_bytes(data, strides) == data.nbytes:
        write_at(descriptor, start, data.reshape(-1).view(np.uint8).data)
        return
    for i in range(len(data)):
        _write_runs(descriptor, start + i * strides[0], strides[1:], data[i])


def _box(offset: int, spec: ArraySpec, region: Region) -> tuple[int, Sequence[int]]:
    """The offset of a region's first byte, and strides in bytes along its axes."""
    strides = [prod(spec.shape[axis + 1 :]) * spec.dtype.itemsize for axis in range(spec.ndim)]
    return offset + sum(a * s for a, s in zip(region.starts, strides, strict=True)), strides


def write_at(descriptor: int, offset: int, data: memoryview) -> None:
    """Write all bytes at an offset. Raises OSError."""
    done = 0
    while done < len(data):
        raise_if_cancelled()
        done += os.pwrite(descriptor, data[done : done + CALL_BYTES], offset + done)


class PagedFile:
    """Bytes of a file, of which the pages that were used last stay in memory. Not thread-safe."""

    def __init__(self, file: OpenFile, page: int, kept: int):
        self._file = file
        self._page = page
        """Bytes of a page. Longer reads go to the file itself."""
        self._kept = kept
        """Number of pages in memory, at least 2: a short read touches two at most."""
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self._start, self._last = 0, b""
        """Offset and bytes of the page that was used last."""

    def read(self, offset: int, length: int) -> bytes:
        """The `length` bytes from `offset` on."""
        at = offset - self._start
        if at >= 0 and at + length <= len(self._last):
            return self._last[at : at + length]
        if length >= self._page or offset + length > self._file.stat.size:
            return self._file.read(offset, length)
        number, at = divmod(offset, self._page)
        data = self._get(number)[at : at + length]
        return data if len(data) == length else data + self._get(number + 1)[: length - len(data)]

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes from `offset` on; long ones are not copied."""
        if len(buffer) >= self._page:
            self._file.read_into(offset, buffer)
        else:
            buffer[:] = self.read(offset, len(buffer))

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch the pages that these ranges (start, stop) touch: neighbours in one read, of an object all at
        the same time, because a request takes as long as reading megabytes."""
        touched = {n for start, stop in ranges for n in range(start // self._page, -(-stop // self._page))}
        spans: list[tuple[int, int]] = []
        for start, stop in map(self._span, sorted(touched - set(self._pages))):
            joins = spans and spans[-1][1] == start
            spans[-1:] = [(spans[-1][0], stop)] if joins else [*spans[-1:], (start, stop)]
        path, stat = self._file.path, self._file.stat
        if urls.is_url(path):
            fetched = read_ranges([Chunk(path, start, stop - start) for start, stop in spans], {path: stat})
        else:
            fetched = (self._file.read(start, stop - start) for start, stop in spans)
        for (start, _), data in zip(spans, fetched, strict=True):
            for at in range(0, len(data), self._page):
                self._keep((start + at) // self._page, data[at : at + self._page])

    def _get(self, number: int) -> bytes:
        start, stop = self._span(number)
        if number not in self._pages:
            self._keep(number, self._file.read(start, stop - start))
        self._pages.move_to_end(number)
        self._start, self._last = start, self._pages[number]
        return self._last

    def _keep(self, number: int, data: bytes) -> None:
        self._pages[number] = data
        if len(self._pages) > self._kept:
            self._pages.popitem(last=False)

    def _span(self, number: int) -> tuple[int, int]:
        """Start and stop of a page; the last one can be shorter."""
        return number * self._page, min((number + 1) * self._page, self._file.stat.size)
