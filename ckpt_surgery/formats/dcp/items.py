"""The archives that `torch.save` wrote one after another into the files of a checkpoint, opened one by one.

Each is a zip archive, whose headers lie at its beginning and its end. The end of one and the beginning of the
next are read together, and so are archives that are short.
"""

from collections.abc import Iterator, Sequence

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.dcp.index import Place
from ckpt_surgery.formats.shared.torch.archive import Saved, read_saved
from ckpt_surgery.formats.shared.zip.layout import LOCAL
from ckpt_surgery.formats.shared.zip.members import read_archive
from ckpt_surgery.storage.failures import DAMAGED, with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.paged import PagedFile
from ckpt_surgery.storage.reading import OpenFile

END_BYTES = 1024
"""Bytes at both ends of an archive that are fetched: torch 2.13 puts 700 before a tensor, 810 behind."""
SHORT_BYTES = 4 * END_BYTES
"""Archives up to this size are fetched whole."""
PAGE_BYTES = 4 * END_BYTES
"""Bytes that are read together: the end of an archive, and the beginning of the next one."""
TOGETHER = 1024
"""Archives of which the ends are fetched at the same time."""


def read_items(file: OpenFile, places: Sequence[Place]) -> Iterator[tuple[int, Saved]]:
    """The number of each place in `places`, and its archive, by increasing offset.

    Offsets of storages are those in the file. Raises SourceError, with the offset of the archive, for one
    that is not whole; the caller has checked that all lie within the file.
    """
    pages = PagedFile(file, PAGE_BYTES, kept=3 * TOGETHER)
    order = sorted(range(len(places)), key=lambda i: (places[i].offset, places[i].length))
    for begin in range(0, len(order), TOGETHER):
        batch = order[begin : begin + TOGETHER]
        pages.prefetch(end for number in batch for end in _ends(places[number]))
        for number in batch:
            with with_path(f"{file.path} from byte {places[number].offset} on"):
                yield number, _read_item(file, pages, places[number])


def _read_item(file: OpenFile, pages: PagedFile, place: Place) -> Saved:
    def fill(at: int, buffer: memoryview) -> None:
        pages.read_into(place.offset + at, buffer)

    # Its path is in the context of the error already.
    item = OpenFile("its archive", FileStat(place.length, file.stat.modified, file.stat.version), fill)
    if item.read(0, min(len(LOCAL), place.length)) != LOCAL:
        raise SourceError("is not a zip archive, as `torch.save` writes it", hint=DAMAGED)
    saved = read_saved(item, read_archive(item, most_comment=0))
    return Saved(saved.pickle, lambda storage: place.offset + saved.offset_of(storage))


def _ends(place: Place) -> Iterator[tuple[int, int]]:
    """Start and stop of the beginning and of the end of an archive, or of all of a short one."""
    start, stop = place.offset, place.offset + place.length
    if place.length <= SHORT_BYTES:
        yield start, stop
    else:
        yield start, start + END_BYTES
        yield stop - END_BYTES, stop
