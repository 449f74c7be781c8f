"""Reading a file in pages: for the many short reads of a header or an index."""

from collections import OrderedDict
from collections.abc import Iterable

from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.urls import is_url
from ckpt_surgery.storage.reading import OpenFile, read_ranges


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
        if is_url(path):
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
