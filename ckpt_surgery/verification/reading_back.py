"""Read a checkpoint back: compare stored bytes and values with their checksums.

Everything here collects flaws instead of raising: a damaged checkpoint mostly has more than one.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter, floordiv
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import Digests, bytes_crc, values_crc
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, read_block
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.progress import CHECKING, ByteCounter
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.report.values import is_numeric, without_key
from ckpt_surgery.report.verification import Flaw
from ckpt_surgery.storage.failures import one_line
from ckpt_surgery.storage.reading import OpenFile, opened, range_crc, read_ranges
from ckpt_surgery.system import threads
from ckpt_surgery.system.threads import batches

T = TypeVar("T")
PIECE = 4 << 20
"""Bytes read in one call."""
BATCH_BYTES, BATCH_COUNT = 16 << 20, 4096
"""Limits on the bytes and the number of ranges that one thread reads of one file at once."""


class FlawCollector:
    """Collects flaws and new checksums. Safe to use from several threads."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self.crcs: dict[str, dict[Shape, int]] = {}
        """Checksums of values that had none, by the text of the leaf's key."""
        self.counter = ByteCounter(0, None)
        """Counts the bytes read."""
        self._lock = threading.Lock()

    def add(self, key: str | None, chunk: Shape | None, what: str) -> None:
        """Note a flaw."""
        with self._lock:
            self.flaws.append(Flaw(key, chunk, what))

    def note(self, key: str, chunk: Shape, crc: int) -> None:
        """Add the checksum of values that had none."""
        with self._lock:
            self.crcs.setdefault(key, {})[chunk] = crc


# --- what is to be read -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpectedRange:
    """The place of stored bytes, a chunk or a part of one, and their expected checksum."""

    chunk: Chunk
    crc: int
    key: str
    index: Shape

    @property
    def stop(self) -> int:
        """Offset after the last byte."""
        return self.chunk.offset + self.chunk.length


@dataclass(frozen=True, slots=True)
class ExpectedValues:
    """A region of an array, and the expected checksum of its elements; None: compute it."""

    leaf: Leaf
    region: Region
    index: Shape
    crc: int | None

    @property
    def nbytes(self) -> int:
        assert self.leaf.spec is not None
        return self.region.size * self.leaf.spec.dtype.itemsize


def _expected(
    leaf: Leaf, digests: Digests, findings: FlawCollector
) -> Iterator[ExpectedRange | ExpectedValues]:
    """Yield what is to be read for a leaf's checksums: chunks or values; missing chunks are flaws."""
    assert leaf.spec is not None
    manifest, key = leaf.manifest, leaf.key.text
    plain = manifest is not None and manifest.stores_values
    same_grid = manifest is not None and manifest.chunk_shape == digests.grid
    by_chunk = not digests.of_values or (plain and same_grid)
    for index, crc in digests.crcs.items():
        if by_chunk:
            chunk = None if manifest is None else manifest.chunks.get(index)
            if chunk is None:
                findings.add(key, index, "its stored bytes are missing")
            else:
                yield ExpectedRange(chunk, crc, key, index)
            continue
        starts = tuple(i * n for i, n in zip(index, digests.grid, strict=True))
        ends = zip(starts, digests.grid, leaf.spec.shape, strict=True)
        region = Region(starts, tuple(min(start + n, length) for start, n, length in ends))
        stored = stored_range(manifest, region) if manifest is not None and plain else None
        if stored is None:
            yield ExpectedValues(leaf, region, index, crc)
        else:
            yield ExpectedRange(stored, crc, key, index)


def stored_range(manifest: Manifest, region: Region) -> Chunk | None:
    """Locate a region's elements in a chunk, as a part of it; None: not contiguous there.

    The manifest `stores_values`.
    """
    grid = manifest.chunk_shape
    index = tuple(a // n for a, n in zip(region.starts, grid, strict=True))
    inner = tuple(a % n for a, n in zip(region.starts, grid, strict=True))
    shape = region.shape
    if index not in manifest.chunks or any(a + n > c for a, n, c in zip(inner, shape, grid, strict=True)):
        return None
    cut = next((axis for axis, n in enumerate(shape) if n > 1), len(shape))
    if shape[cut + 1 :] != grid[cut + 1 :]:
        return None
    start = 0
    for at, length in zip(inner, grid, strict=True):
        start = start * length + at
    chunk, itemsize = manifest.chunks[index], manifest.spec.dtype.itemsize
    return Chunk(chunk.file, chunk.offset + start * itemsize, region.size * itemsize, chunk.inline)


# --- reading ----------------------------------------------------------------------------------------------


def read_leaves(
    source: Source,
    known: Iterable[tuple[Leaf, Digests]],
    unknown: Iterable[Leaf],
    findings: FlawCollector,
    means: Means,
) -> dict[str, Digests]:
    """Read leaves and compare them with their checksums; compute those of `unknown`.

    Returns the checksums of `unknown` leaves that could be read, by the texts of their keys.
    """
    ranges, values, grids = list[ExpectedRange](), list[ExpectedValues](), dict[str, Shape]()
    for leaf, digests in known:
        for item in _expected(leaf, digests, findings):
            if isinstance(item, ExpectedRange):
                ranges.append(item)
            else:
                values.append(item)
    for leaf in unknown:
        assert leaf.spec is not None
        grids[leaf.key.text] = grid = read_block(leaf, means.memory)
        values += (
            ExpectedValues(leaf, region, tuple(map(floordiv, region.starts, grid)), None)
            for region in chunk_regions(leaf.spec.shape, grid)
        )
    nbytes = sum(span.chunk.length for span in ranges) + sum(cell.nbytes for cell in values)
    findings.counter = ByteCounter(nbytes, means.progress, CHECKING)
    together = file_batches(ranges, attrgetter("chunk.file", "chunk.offset"), attrgetter("chunk.length"))
    compare = partial(_compare_ranges, findings=findings)
    threads.run_all(compare, together, lambda _: 2 * PIECE, means.memory, means.workers)
    # The rest is for the reader's cache of chunks, and for what the allocator keeps.
    quarter = replace(means, memory=means.memory // 4)
    compare_values(lambda cell: source.read(cell.leaf, cell.region), values, findings, _held, quarter)
    return {key: Digests(grids[key], True, crcs) for key, crcs in findings.crcs.items()}


def file_batches(
    items: Iterable[T], place: Callable[[T], tuple[str, int]], nbytes: Callable[[T], int]
) -> list[list[T]]:
    """Group items by file in the order of offsets; one thread opens the file of a group and reads it."""
    by_file = itertools.groupby(sorted(items, key=place), lambda item: place(item)[0])
    return [batch for _, same in by_file for batch in batches(same, nbytes, BATCH_COUNT, BATCH_BYTES)]


def _held(group: list[ExpectedValues]) -> int:
    """Peak memory in bytes of reading a group: a region, and its chunks both decoded and stored."""
    largest = 0
    for cell in group:
        manifest = cell.leaf.manifest
        chunk = 0 if manifest is None or manifest.supports_partial_reads else manifest.chunk_nbytes
        largest = max(largest, cell.nbytes + 2 * max(cell.nbytes, chunk))
    return largest


def _compare_ranges(batch: list[ExpectedRange], findings: FlawCollector) -> None:
    """Compare ranges of one file, or inline ones, in order."""
    if batch[0].chunk.inline is not None:
        for span, data in zip(batch, read_ranges([span.chunk for span in batch]), strict=True):
            _compare(span, bytes_crc(data), findings)
        return
    try:
        with opened(batch[0].chunk.file) as file:
            buffer = memoryview(bytearray(PIECE))
            for group in _near(batch):
                _compare_near(file, group, buffer, findings)
    except SourceError as error:
        findings.add(batch[0].key, batch[0].index, one_line(error))


def _near(batch: list[ExpectedRange]) -> Iterator[list[ExpectedRange]]:
    """Group ranges that are read in one call: within PIECE bytes, without gaps."""
    group: list[ExpectedRange] = []
    for span in batch:
        if group and (span.stop - group[0].chunk.offset > PIECE or span.chunk.offset > group[-1].stop):
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def _compare_near(
    file: OpenFile, group: list[ExpectedRange], buffer: memoryview, findings: FlawCollector
) -> None:
    begin, stop = group[0].chunk.offset, max(span.stop for span in group)
    if stop > file.stat.size:
        last = next(span for span in group if span.stop > file.stat.size)
        findings.add(last.key, last.index, ends_early(file, last.stop))
    elif len(group) == 1:
        _compare(group[0], range_crc(file, begin, stop - begin, buffer=buffer), findings)
    else:
        file.read_into(begin, buffer[: stop - begin])
        for span in group:
            data = buffer[span.chunk.offset - begin : span.stop - begin]
            _compare(span, bytes_crc(data), findings)


def ends_early(file: OpenFile, stop: int) -> str:
    """Describe a file that ends before byte `stop`."""
    return f"its file ends at byte {file.stat.size}, before byte {stop}"


def compare_file(path: str, name: str, length: int | None, crc: int, findings: FlawCollector) -> None:
    """Compare the first `length` bytes of a file, or all, with their checksum; messages call it `name`."""
    try:
        with opened(path) as file:
            now = range_crc(file, 0, file.stat.size if length is None else length)
    except SourceError as error:
        findings.add(None, None, one_line(error))
        return
    if now != crc:
        findings.add(None, None, f"the file {shown(name)}: {differs(now, crc)}")


def _compare(span: ExpectedRange, crc: int, findings: FlawCollector) -> None:
    if crc != span.crc:
        findings.add(span.key, span.index, differs(crc, span.crc))
    findings.counter.add(span.chunk.length)


def differs(crc: int, recorded: int) -> str:
    """Describe a checksum that differs."""
    return f"its checksum is {crc:08x}, not {recorded:08x} as when it was written"


def compare_values(
    read: Callable[[ExpectedValues], np.ndarray],
    values: Iterable[ExpectedValues],
    findings: FlawCollector,
    held: Callable[[list[ExpectedValues]], int],
    means: Means,
) -> None:
    """Compare elements, which `read` returns, with their checksums.

    `held`: bytes that reading a group of small regions holds at most, of the budget.
    """

    def compare(group: list[ExpectedValues]) -> None:
        for cell in group:
            raise_if_cancelled()
            try:
                crc = values_crc(read(cell))
            except SourceError as error:
                if is_numeric(cell.leaf):  # the others may be objects that only their writer reads
                    findings.add(cell.leaf.key.text, cell.index, without_key(cell.leaf, error))
                continue
            if cell.crc is None:
                findings.note(cell.leaf.key.text, cell.index, crc)
            elif crc != cell.crc:
                findings.add(cell.leaf.key.text, cell.index, differs(crc, cell.crc))
            findings.counter.add(cell.nbytes)

    threads.run_all(compare, batches(values, lambda cell: cell.nbytes), held, means.memory, means.workers)
