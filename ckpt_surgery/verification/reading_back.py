"""Read a checkpoint back: compare stored bytes and values with checksums, or see whether chunks are whole.

Everything here collects flaws instead of raising: a damaged checkpoint mostly has more than one.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter, floordiv
from typing import TypeVar

import numpy as np

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Region, Shape, chunk_regions, grid_counts, ravelled
from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.digests import Digests, bytes_crc, values_crc
from ckpt_surgery.core.errors import SourceError, in_one_line
from ckpt_surgery.core.file_states import FileState, change
from ckpt_surgery.core.leaves import Leaf, read_block
from ckpt_surgery.core.manifests import Chunk, Manifest
from ckpt_surgery.core.progress import CHECKING, ByteCounter
from ckpt_surgery.core.protocols import AdoptedFile, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.formats.shared.zarr.chunk_checks import chunk_flaw
from ckpt_surgery.report.values import is_numeric, without_key
from ckpt_surgery.report.verification import Flaw
from ckpt_surgery.storage.reading import OBJECT_PIECE, opened, range_crc, read_ranges
from ckpt_surgery.storage.samples import state_of
from ckpt_surgery.system import threads
from ckpt_surgery.system.threads import batches

T = TypeVar("T")
Place = tuple[Leaf, Shape, Chunk]
"""A chunk, its leaf, and its index in the leaf's grid."""


@dataclass(frozen=True, slots=True)
class ExpectedRange:
    """The place of stored bytes, a chunk or a part of one, and their expected checksum."""

    chunk: Chunk
    crc: int
    key: str
    index: Shape


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


class Checker:
    """Checks a checkpoint, and collects flaws and new checksums. Safe to use from several threads."""

    def __init__(self, means: Means) -> None:
        self.flaws: list[Flaw] = []
        self._means = means
        self._crcs: dict[str, dict[Shape, int]] = {}
        """Checksums of values that had none, by the text of the leaf's key."""
        self._counter = ByteCounter(0, None)
        """Counts the bytes read."""
        self._lock = threading.Lock()

    def add(self, key: str | None, chunk: Shape | None, what: str) -> None:
        """Note a flaw."""
        with self._lock:
            self.flaws.append(Flaw(key, chunk, what))

    def _compare(self, key: str, chunk: Shape, crc: int, recorded: int, nbytes: int) -> None:
        if crc != recorded:
            self.add(key, chunk, _differs(crc, recorded))
        self._counter.add(nbytes)

    def _run(self, work: Callable[[T], object], items: Iterable[T], weight: Callable[[T], int]) -> None:
        """Run `work` in threads within the memory budget."""
        threads.run_all(work, items, weight, self._means.memory, self._means.workers)

    # --- stored bytes and values --------------------------------------------------------------------------

    def read_leaves(
        self, source: Source, known: Iterable[tuple[Leaf, Digests]], unknown: Iterable[Leaf]
    ) -> dict[str, Digests]:
        """Read leaves and compare them with their checksums; compute those of `unknown`.

        Returns the checksums of `unknown` leaves that could be read, by the texts of their keys.
        """
        ranges, values, grids = list[ExpectedRange](), list[ExpectedValues](), dict[str, Shape]()
        for leaf, digests in known:
            for item in self._expected(leaf, digests):
                if isinstance(item, ExpectedRange):
                    ranges.append(item)
                else:
                    values.append(item)
        for leaf in unknown:
            assert leaf.spec is not None
            grids[leaf.key.text] = grid = read_block(leaf, self._means.memory)
            for region in chunk_regions(leaf.spec.shape, grid):
                values.append(ExpectedValues(leaf, region, tuple(map(floordiv, region.starts, grid)), None))
        nbytes = sum(span.chunk.length for span in ranges) + sum(cell.nbytes for cell in values)
        self._counter = ByteCounter(nbytes, self._means.progress, CHECKING)
        together = _by_file(ranges, attrgetter("chunk.file", "chunk.offset"), attrgetter("chunk.length"))
        self._run(self._compare_ranges, together, lambda _: OBJECT_PIECE)
        self.compare_values(lambda cell: source.read(cell.leaf, cell.region), values, _held)
        return {key: Digests(grids[key], True, crcs) for key, crcs in self._crcs.items()}

    def _expected(self, leaf: Leaf, digests: Digests) -> Iterator[ExpectedRange | ExpectedValues]:
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
                    self.add(key, index, "its stored bytes are missing")
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

    def _compare_ranges(self, batch: list[ExpectedRange]) -> None:
        """Compare ranges of one file, or inline ones, in order; a single one may be of any length."""
        span, chunk = batch[0], batch[0].chunk
        try:
            if len(batch) == 1 and chunk.inline is None:
                with opened(chunk.file) as file:
                    crc = range_crc(file, chunk.offset, chunk.length)
                self._compare(span.key, span.index, crc, span.crc, chunk.length)
                return
            contents = read_ranges([span.chunk for span in batch], near=True)
            for span in batch:
                data = next(contents)
                self._compare(span.key, span.index, bytes_crc(data), span.crc, len(data))
        except SourceError as error:
            self.add(span.key, span.index, in_one_line(error))

    def compare_values(
        self,
        read: Callable[[ExpectedValues], np.ndarray],
        values: Iterable[ExpectedValues],
        held: Callable[[list[ExpectedValues]], int],
    ) -> None:
        """Compare elements, which `read` returns, with their checksums.

        `held`: share of the budget in bytes for reading a group of small regions.
        """

        def compare(group: list[ExpectedValues]) -> None:
            for cell in group:
                raise_if_cancelled()
                key = cell.leaf.key.text
                try:
                    crc = values_crc(read(cell))
                except SourceError as error:
                    if is_numeric(cell.leaf):  # the others may be objects that only their writer reads
                        self.add(key, cell.index, without_key(cell.leaf, error))
                    continue
                if cell.crc is None:
                    with self._lock:
                        self._crcs.setdefault(key, {})[cell.index] = crc
                self._compare(key, cell.index, crc, crc if cell.crc is None else cell.crc, cell.nbytes)

        self._run(compare, batches(values, lambda cell: cell.nbytes), held)

    def compare_file(self, path: str, name: str, length: int | None, crc: int) -> None:
        """Compare the first `length` bytes of a file, or all, with their checksum; messages name `name`."""
        try:
            with opened(path) as file:
                now = range_crc(file, 0, file.stat.size if length is None else length)
        except SourceError as error:
            self.add(None, None, in_one_line(error))
            return
        if now != crc:
            self.add(None, None, f"the file {shown(name)}: {_differs(now, crc)}")

    # --- whole files and chunks ---------------------------------------------------------------------------

    def check_chunks(self, leaves: Iterable[Leaf]) -> None:
        """Check that the chunks of these leaves are whole, by a few bytes of each; opens each file once."""
        places: list[Place] = []
        for leaf in leaves:
            chunks = {} if leaf.manifest is None else leaf.manifest.chunks
            places += ((leaf, index, chunk) for index, chunk in chunks.items())
        together = _by_file(places, lambda place: (place[2].file, place[2].offset), lambda _: 0)
        self._run(self._check_batch, together, lambda _: OBJECT_PIECE)

    def _check_batch(self, batch: list[Place]) -> None:
        leaf, index, chunk = batch[0]
        try:
            with opened(chunk.file) if chunk.file else nullcontext() as file:
                for leaf, index, chunk in batch:
                    assert leaf.manifest is not None
                    stop = chunk.offset + chunk.length
                    if file is not None and stop > file.stat.size:
                        what = f"its file ends at byte {file.stat.size}, before byte {stop}"
                        self.add(leaf.key.text, index, what)
                    elif (flaw := chunk_flaw(leaf.manifest, chunk, file)) is not None:
                        self.add(leaf.key.text, index, flaw)
        except SourceError as error:
            self.add(leaf.key.text, index, in_one_line(error))

    def check_grid(self, leaf: Leaf) -> None:
        """Note the first chunk of the grid that has no stored bytes."""
        manifest = leaf.manifest
        if manifest is None or manifest.complete:
            return
        counts = grid_counts(manifest.spec.shape, manifest.chunk_shape)
        for region in chunk_regions(counts, (1,) * len(counts)):
            if region.starts not in manifest.chunks:
                self.add(leaf.key.text, region.starts, "its stored bytes are missing")
                return

    def check_copies(self, directory: str, files: Iterable[AdoptedFile]) -> None:
        """Compare whole files that were copied with their checksums; names are relative to `directory`."""
        for copy in files:
            if copy.crc32c is not None:
                self.compare_file(os.path.join(directory, copy.name), copy.name, None, copy.crc32c)

    def check_shared(self, directory: str, files: Sequence[AdoptedFile]) -> list[AdoptedFile]:
        """Compare sizes and samples of adopted whole files with those in the record.

        Returns the hard links whose time alone differs: they were copied, touched, or rewritten outside their
        samples.
        """
        retimed: list[AdoptedFile] = []

        def check(batch: Sequence[AdoptedFile]) -> None:
            for file in batch:
                raise_if_cancelled()
                try:
                    now = state_of(os.path.join(directory, file.name), of_objects=True)
                except SourceError as error:
                    self.add(None, None, in_one_line(error))
                    continue
                before = FileState(file.size, file.modified, now.version, file.sample)
                shared, what = file.how is LinkMode.HARDLINK, change(before, now, times=False)
                if what:
                    why = f", which it shares with {shown(file.source)}," if shared else ""
                    message = f"its file {shown(file.name)}{why} has changed since it was written: {what}"
                    self.add(None, None, message)
                elif shared and now.modified != file.modified:
                    retimed.append(file)

        self._run(check, batches(files, lambda _: 0, most=16), lambda _: OBJECT_PIECE)
        return retimed


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
    chunk, itemsize = manifest.chunks[index], manifest.spec.dtype.itemsize
    return Chunk(
        chunk.file, chunk.offset + ravelled(inner, grid) * itemsize, region.size * itemsize, chunk.inline
    )


def _by_file(
    items: Iterable[T], place: Callable[[T], tuple[str, int]], nbytes: Callable[[T], int]
) -> list[list[T]]:
    """Group items by file in the order of offsets; one thread opens the file of a group and reads it."""
    by_file = itertools.groupby(sorted(items, key=place), lambda item: place(item)[0])
    return [batch for _, same in by_file for batch in batches(same, nbytes, 4096, OBJECT_PIECE)]


def _held(group: list[ExpectedValues]) -> int:
    """Four times the peak memory in bytes of reading a group: a region, and its chunks decoded and stored.

    The rest is for the reader's cache of chunks, and for what the allocator keeps.
    """
    largest = 0
    for cell in group:
        manifest = cell.leaf.manifest
        chunk = 0 if manifest is None or manifest.supports_partial_reads else manifest.chunk_nbytes
        largest = max(largest, cell.nbytes + 2 * max(cell.nbytes, chunk))
    return 4 * largest


def _differs(crc: int, recorded: int) -> str:
    return f"its checksum is {crc:08x}, not {recorded:08x} as when it was written"
