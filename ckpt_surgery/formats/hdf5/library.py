"""h5py, which reads the structure of files: the file object it reads through, its errors, and attributes.

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

import numpy as np

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.text import is_unicode, shown
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
    what, room = "the heap of the file's texts", view.size - start
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


# --- attributes -------------------------------------------------------------------------------------------
#
# Texts of any length are read without libhdf5. Its version 1.14 allocates as much memory as such an attribute
# says that its text takes, before it looks for it; where that fails it leaves types open that refer to the
# closed file, and crashes when the process ends. So the attribute's message in the header of its object is
# found here, and the text in the heap that it refers to. The attributes of objects with very many of them
# are in another place; they are not found, and left out. Source: the HDF5 1.14 specification, sections IV.A.1
# (headers), IV.A.2.m (attributes) and III.E (heaps).

ATTRIBUTE, CONTINUATION = 0x0C, 0x10
"""Types of messages in headers of objects."""
SHARED = 2
"""Flag of a message that is in another place."""
HEADER, HEADER_MORE = b"OHDR", b"OCHK"
"""First bytes of headers of version 2, and of their continuations."""
_HEADER_1 = Struct("<BxHII4x")
"""Version, messages, references, bytes of messages."""
_MESSAGE_1, _MESSAGE_2 = Struct("<HHB3x"), Struct("<BHB")
"""Type, bytes, flags."""
_ATTRIBUTE = Struct("<BBHHH")
"""Version, flags; bytes of the name, the type and the space."""
_TEXT = Struct("<IQI")
"""Bytes of the text, address of its heap, index in it."""
MOST_BLOCKS = 10_000
"""Largest number of pieces of one header."""
MOST_METADATA_BYTES = 64 << 20
"""Total size of the texts that are taken as custom metadata; the attributes after that are left out."""


def root_attributes(file: Any, view: FileView) -> dict[str, Any]:
    """The attributes of the root of h5py's `FileID` that are a text, a number or a truth value, by name."""
    from h5py import h5a, h5g

    root, attributes, left = h5g.open(file, b"/"), {}, MOST_METADATA_BYTES
    for i in range(h5a.get_num_attrs(root)):
        attribute = h5a.open(root, index=i)
        name, value = _decoded(attribute.name), value_of(attribute, root, view)
        left -= len(value) if isinstance(value, str) else 0
        if left < 0:
            break
        if name is not None and value is not None:
            attributes[name] = value
    return attributes


def value_of(attribute: Any, owner: Any, view: FileView) -> str | float | None:
    """The value of an attribute without axes, as Python's; None for what is not a text, number or truth."""
    from h5py import h5s, h5t

    stored, kind = attribute.get_type(), attribute.get_type().get_class()
    simple = attribute.get_space().get_simple_extent_type() == h5s.SCALAR
    if not simple or kind not in (h5t.STRING, h5t.INTEGER, h5t.FLOAT, h5t.ENUM):
        return None
    if kind == h5t.STRING and stored.is_variable_str():
        return _decoded(_text(view, owner, attribute.name))
    read = np.zeros((), attribute.dtype)
    attribute.read(read)
    value = read.item()
    return value if isinstance(value, int | float) else _decoded(value)


def _decoded(value: Any) -> str | None:
    """A text of UTF-8; None where it is not valid."""
    # Bytes that are not UTF-8 become halves of surrogate pairs, which are no Unicode.
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return text if isinstance(text, str) and is_unicode(text) else None


def _text(view: FileView, owner: Any, name: bytes) -> bytes | None:
    """The text of an attribute without axes of h5py's `owner`; None where it is not in the header."""
    from h5py import h5o

    messages = _messages(view, h5o.get_info(owner).addr)
    data = next(filter(None, (_attribute(message, name) for message in messages)), None)
    if data is None:
        return None
    length, address, index = _TEXT.unpack_from(data)
    if not length:
        return b""
    stored = dict(heap_objects(view, address)).get(index, b"") if index else b""
    if len(stored) < length:
        raise damaged(f"the text of an attribute has {length} bytes, which are missing")
    return stored[:length].split(b"\0")[0]


def _messages(view: FileView, at: int) -> Iterator[bytes]:
    """The attributes in the header at an offset, as their messages."""
    head = view.bytes_at(at, _HEADER_1.size)
    old, flags = not head.startswith(HEADER), head[5]
    if old:
        first, size = at + _HEADER_1.size, _HEADER_1.unpack(head)[3]
    else:
        width = 1 << (flags & 3)
        first = at + 6 + 16 * bool(flags & 0x20) + 4 * bool(flags & 0x10) + width
        size = int.from_bytes(view.bytes_at(first - width, width), "little")
    blocks = [(first, size)]
    for start, size in blocks:
        data = view.bytes_at(start, size)
        if not old and start != first:
            data = data[len(HEADER_MORE) : -4]  # without the checksum
        struct, at = _MESSAGE_1 if old else _MESSAGE_2, 0
        begin = struct.size + (0 if old or not flags & 4 else 2)  # with the order of creation
        while at + begin <= len(data):
            kind, size, marks = struct.unpack_from(data, at)
            body = data[at + begin : at + begin + size]
            at += begin + size
            if kind == ATTRIBUTE and not marks & SHARED:
                yield body
            elif kind == CONTINUATION and not marks & SHARED and len(body) >= 16:
                offset, length = (int.from_bytes(body[i : i + 8], "little") for i in (0, 8))
                if len(blocks) < MOST_BLOCKS:
                    blocks.append((offset, length))


def _attribute(message: bytes, name: bytes) -> bytes | None:
    """The data of an attribute of that name, at least as long as a text's; None for others."""
    if len(message) < _ATTRIBUTE.size:
        return None
    version, _, *sizes = _ATTRIBUTE.unpack_from(message)
    at = _ATTRIBUTE.size + (version == 3)
    if message[at : at + sizes[0]].split(b"\0")[0] != name:
        return None
    unit = 8 if version == 1 else 1
    data = message[at + sum(-(-size // unit) * unit for size in sizes) :]
    return data if len(data) >= _TEXT.size else None
