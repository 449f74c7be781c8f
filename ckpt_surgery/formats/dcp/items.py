"""The archives that `torch.save` wrote one after another into the files of a checkpoint, opened one by one.

Each is a zip archive, whose headers lie at its beginning and its end. The end of one and the beginning of the
next are read together, and so are archives that are short.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.dcp.index import Place
from ckpt_surgery.formats.shared.torch.archive import Saved, read_saved
from ckpt_surgery.formats.shared.zip.layout import LOCAL
from ckpt_surgery.formats.shared.zip.members import read_archive
from ckpt_surgery.storage.failures import DAMAGED, about
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile
from ckpt_surgery.storage.store import Range
from ckpt_surgery.storage.stores import store_of

END_BYTES = 1024
"""Bytes at both ends of an archive that are read with it: torch 2.13 puts 700 before a tensor, 810 behind."""
GAP_BYTES = 2 * END_BYTES
"""Bytes between two ends that are read with them."""
SPAN_BYTES = 2**16
"""Limit on the bytes that are read together."""
_KEPT_SPANS = 4


def read_items(file: OpenFile, places: Sequence[Place]) -> Iterator[tuple[int, Saved]]:
    """The number of each place in `places`, and its archive, by increasing offset.

    Offsets of storages are those in the file. Raises SourceError, with the offset of the archive, for one
    that is not whole; the caller has checked that all lie within the file.
    """
    ends = _Ends(file, places)
    for number in sorted(range(len(places)), key=lambda i: (places[i].offset, places[i].length)):
        with about(f"{file.path} from byte {places[number].offset} on"):
            yield number, _read_item(file, ends, places[number])


def _read_item(file: OpenFile, ends: "_Ends", place: Place) -> Saved:
    def fill(at: int, buffer: memoryview) -> None:
        ends.fill(place.offset + at, buffer)

    # Its path is in the context of the error already.
    item = OpenFile("its archive", FileStat(place.length, file.stat.modified, file.stat.version), fill)
    if item.read(0, min(len(LOCAL), place.length)) != LOCAL:
        raise SourceError("is not a zip archive, as `torch.save` writes it", hint=DAMAGED)
    saved = read_saved(item, read_archive(item, most_comment=0))
    return Saved(saved.pickle, lambda storage: place.offset + saved.offset_of(storage))


class _Ends:
    """The beginnings and ends of the archives in a file, read in spans."""

    def __init__(self, file: OpenFile, places: Sequence[Place]):
        self._file = file
        self._spans = _spans(places)
        self._starts = [start for start, _ in self._spans]
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._fetched = self._fetch() if urls.is_url(file.path) else None

    def fill(self, at: int, buffer: memoryview) -> None:
        """Fill a buffer with the file's bytes from `at` on. Raises SourceError where they cannot be read."""
        number = bisect_right(self._starts, at) - 1
        start, stop = self._spans[number]
        if at + len(buffer) > stop:
            self._file.read_into(at, buffer)
        else:
            buffer[:] = self._span(number)[at - start : at - start + len(buffer)]

    def _span(self, number: int) -> bytes:
        if self._fetched is not None:
            return self._fetched[number]
        if number not in self._kept:
            start, stop = self._spans[number]
            self._kept[number] = self._file.read(start, stop - start)
            if len(self._kept) > _KEPT_SPANS:
                self._kept.popitem(last=False)
        return self._kept[number]

    def _fetch(self) -> list[bytes]:
        """All spans of an object, at the same time: each request takes as long as reading megabytes."""
        store, name = store_of(self._file.path)
        version = self._file.stat.version
        return list(store.read_many([Range(name, start, stop, version) for start, stop in self._spans]))


def _spans(places: Sequence[Place]) -> list[tuple[int, int]]:
    """Where ends of archives are read together: starts and stops, in order; they overlap if archives do."""
    ends = set()
    for place in places:
        stop = place.offset + place.length
        ends.add((place.offset, min(stop, place.offset + END_BYTES)))
        ends.add((max(place.offset, stop - END_BYTES), stop))
    spans: list[tuple[int, int]] = []
    for start, stop in sorted(ends):
        before, last = spans[-1] if spans else (0, -GAP_BYTES - 1)
        if start - last <= GAP_BYTES and stop - before <= SPAN_BYTES:
            spans[-1] = (before, max(last, stop))
        else:
            spans.append((start, stop))
    return spans
