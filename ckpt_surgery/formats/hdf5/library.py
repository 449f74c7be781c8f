"""h5py, which reads the structure of files: the file object that it reads through, and its errors as ours.

Every byte that libhdf5 sees comes through `FileView`, so the number of reads has a bound that follows from
the file's size, and of an object in a bucket only the pages are fetched in which the index lies.

h5py is imported where it is needed, as it is an optional dependency. Everything here is single-threaded:
h5py lets one thread at a time into the library.
"""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from struct import Struct
from typing import Any

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.hdf5 import SIGNATURE
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.reading import OpenFile, PagedFile, opened

FILE_PAGE, OBJECT_PAGE = 4 << 10, 64 << 10
"""Bytes that are read together, of a file and of an object in a store."""
KEPT_PAGES = 64
"""Number of pages that stay in memory."""
LEAST_READS = 1000
"""Number of reads that are allowed however small the file is."""
BYTES_PER_READ = 16
"""A read more is allowed for so many bytes of the file: an index has far larger records."""
HEAP_SIGNATURE = b"GCOL"
_HEAP = Struct("<4sB3xQ")
"""Signature, version, bytes of the whole heap."""
_OBJECT = Struct("<HH4xQ")
"""Index, references, bytes; index 0 is free space, whose bytes include this header."""
LIBRARY_ERRORS = (
    *(OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, SystemError),
    *(OverflowError, MemoryError, NotImplementedError),
)
"""Errors that h5py raises for damaged files, by the kind of error that the library reports."""
MOST_CHARACTERS = 300
"""Length to which messages of the library are cut."""


class Positioned(io.RawIOBase):
    """A file object with a position, as h5py uses one. Not thread-safe."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        """Number of bytes."""
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset from the beginning or the end."""
        self._position = offset if whence == os.SEEK_SET else self.size + offset
        return self._position

    def tell(self) -> int:
        return self._position


class FileView(Positioned):
    """A file, or a range of `size` bytes of one from `start` on, which h5py reads."""

    def __init__(self, path: str, stat: FileStat, start: int, size: int):
        super().__init__(size)
        self.path = path
        self.start = start
        self.failure: Exception | None = None
        """The first error in reading: the library passes on only that there was one."""
        self._stat = stat
        page = OBJECT_PAGE if urls.is_url(path) else FILE_PAGE
        self._pages = PagedFile(OpenFile(path, replace(stat, size=size), self._read), page, KEPT_PAGES)
        self._left = LEAST_READS + size // BYTES_PER_READ

    def bytes_at(self, offset: int, count: int) -> bytes:
        """The bytes from an offset on. Raises SourceError where they are not all there."""
        buffer = bytearray(min(count, self.size + 1))
        self._fill(offset, memoryview(buffer))
        return bytes(buffer)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes."""
        view = memoryview(buffer).cast("B")
        try:
            self._fill(self._position, view)
            if view[: len(HEAP_SIGNATURE)] == HEAP_SIGNATURE:
                with with_path(self.path):
                    for _ in heap_objects(self, self._position):
                        pass  # each is checked
        except Exception as error:
            self.failure = self.failure or error
            raise
        self._position += len(view)
        return len(view)

    def _fill(self, offset: int, buffer: memoryview) -> None:
        if offset < 0 or offset + len(buffer) > self.size:
            span = f"bytes {offset} to {offset + len(buffer)}, of {self.size}"
            raise damaged(f"{shown(self.path)} refers to {span}")
        self._left -= 1
        if self._left < 0:
            raise damaged(f"{shown(self.path)}: its index refers to itself in circles")
        self._pages.read_into(offset, buffer)

    def _read(self, offset: int, buffer: memoryview) -> None:
        with opened(self.path, self._stat) as file:
            file.read_into(self.start + offset, buffer)


def heap_objects(view: FileView, start: int) -> Iterator[tuple[int, bytes]]:
    """The index and the bytes of each object of the heap at an offset; index 0 is free space.

    Such heaps hold the texts of attributes. libhdf5 1.14 goes through their objects by their sizes, and never
    ends where these are 0 or wrap around, so every heap is checked here before it sees it. Source: the HDF5
    1.14 specification, section III.E; numbers in files that are read here have 8 bytes.
    """
    room = view.size - start
    what = "the heap of the file's texts"
    if room < _HEAP.size:
        raise damaged(f"{what} is cut off")
    signature, _, size = _HEAP.unpack(view.bytes_at(start, _HEAP.size))
    if signature != HEAP_SIGNATURE:
        raise damaged(f"{what} does not begin as one")
    if size > room:
        raise damaged(f"{what} has {size} bytes, of {room}")
    data, at = view.bytes_at(start, size), _HEAP.size
    while size - at >= _OBJECT.size:
        index, _, length = _OBJECT.unpack_from(data, at)
        needed = _OBJECT.size + length + -length % 8 if index else length
        if not _OBJECT.size <= needed <= size - at:
            raise damaged(f"{what} has an object of {needed} bytes in the place of {size - at}")
        yield index, data[at + _OBJECT.size : at + _OBJECT.size + length]
        at += needed


def import_h5py(path: str) -> Any:
    """Import h5py. Raises MissingLibraryError, which names `path`, where it is not installed."""
    with report_missing("h5py", f"{shown(path)}: HDF5 files need the package h5py"):
        import h5py
    return h5py


@contextmanager
def opened_hdf5(view: FileView) -> Iterator[Any]:
    """An HDF5 file as h5py's `FileID`, open for reading.

    What the library reports within this context is raised as SourceError with the file's path; what failed
    in reading its bytes is raised as it was.
    """
    h5py = import_h5py(view.path)
    try:
        with h5py.File(view, "r") as file:
            yield file.id
    except (SurgeryError, *LIBRARY_ERRORS) as error:
        if view.failure is not None and error is not view.failure:
            raise view.failure from error
        if isinstance(error, SurgeryError):
            raise
        raise damaged(f"{shown(view.path)} cannot be read as an HDF5 file: {library_text(error)}") from error


def library_text(error: BaseException) -> str:
    """Message of an error of the library, in one line."""
    said = str(error.args[0]) if error.args else ""  # the text of a KeyError would be in quotes
    return shown(" ".join(said.split())[:MOST_CHARACTERS]) or type(error).__name__


# --- the superblock ---------------------------------------------------------------------------------------
#
# It is checked before libhdf5 1.14 reads it, which adds to addresses without looking whether the sum fits,
# and crashes when the process ends where a block that its superblock refers to is not in the file. Source:
# the HDF5 1.14 specification, section II.A.

WIDTH = 8
"""Bytes of addresses and lengths in all files that current programs write."""
NOWHERE = 2**64 - 1
"""Address of what there is not."""
_OLD, _NEW = Struct("<Q16xQ8xQ"), Struct("<QQ8xQ")
"""Addresses of the base, of the driver's settings or of the superblock's extension, and of the root."""
_PLACES = {0: (13, 24, _OLD), 1: (13, 28, _OLD), 2: (9, 12, _NEW), 3: (9, 12, _NEW)}
"""By version: offset of the widths of addresses and of lengths, offset and form of the addresses."""
MOST_BYTES = 28 + _OLD.size


def check_superblock(view: FileView) -> None:
    """Raise SourceError unless a file begins with a superblock that libhdf5 can read safely."""
    data = view.bytes_at(0, min(MOST_BYTES, view.size)).ljust(MOST_BYTES, b"\0")
    if not data.startswith(SIGNATURE):
        raise damaged("it does not begin with the signature of HDF5 files")
    version = data[8]
    if version not in _PLACES:
        raise damaged(f"it is in version {version} of the format, which is not known")
    widths_at, at, form = _PLACES[version]
    base, settings, root = form.unpack_from(data, at)
    widths = data[widths_at : widths_at + 2]
    if set(widths) != {WIDTH}:
        widths_text = f"{widths[0]} and {widths[1]} bytes instead of {WIDTH}"
        raise damaged(f"its addresses and lengths have {widths_text}", "Write it again with h5py.")
    if form is _OLD and settings != NOWHERE:
        raise damaged("it is a part of a file that was written in several", "Write it again with h5py.")
    for address in (base - view.start, root, *(() if settings == NOWHERE else (settings,))):
        if address >= view.size:
            raise damaged(f"its superblock refers to byte {address}, of {view.size}")
