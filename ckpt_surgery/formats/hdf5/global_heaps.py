"""The heaps that hold texts of attributes: their objects, and a check before libhdf5 reads them.

libhdf5 1.14 goes through the objects of such a heap by their sizes, and never ends where these are 0 or wrap
around. Source: the HDF5 1.14 specification, section III.E; numbers in files that are read here have 8 bytes.
"""

from collections.abc import Callable, Iterator
from struct import Struct

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.failures import DAMAGED

SIGNATURE = b"GCOL"
_HEADER = Struct("<4sB3xQ")
"""Signature, version, bytes of the whole heap."""
_OBJECT = Struct("<HH4xQ")
"""Index, references, bytes; index 0 is free space, whose bytes include this header."""
ALIGNMENT = 8


def check_heap(read: Callable[[int, int], bytes], room: int) -> None:
    """Raise SourceError unless the objects of a heap follow each other up to its end.

    `read` gives bytes by offset in the heap, and length; `room` is the number of bytes from its beginning to
    the end of the file.
    """
    for _ in _objects(read, room):
        pass


def heap_object(read: Callable[[int, int], bytes], room: int, wanted: int) -> bytes | None:
    """The object of a heap with an index, which is not 0; None without one. For the rest as `check_heap`."""
    found = dict(_objects(read, room))
    return found.get(wanted) if wanted else None


def _objects(read: Callable[[int, int], bytes], room: int) -> Iterator[tuple[int, bytes]]:
    """The index and the bytes of each object."""
    if room < _HEADER.size:
        raise _flaw("is cut off")
    signature, _, size = _HEADER.unpack(read(0, _HEADER.size))
    if signature != SIGNATURE:
        raise _flaw("does not begin as one")
    if size > room:
        raise _flaw(f"has {size} bytes, of {room}")
    data, at = read(0, size), _HEADER.size
    while size - at >= _OBJECT.size:
        index, _, length = _OBJECT.unpack_from(data, at)
        needed = _OBJECT.size + length + -length % ALIGNMENT if index else length
        if not _OBJECT.size <= needed <= size - at:
            raise _flaw(f"has an object of {needed} bytes in the place of {size - at}")
        yield index, data[at + _OBJECT.size : at + _OBJECT.size + length]
        at += needed


def _flaw(what: str) -> SourceError:
    return SourceError(f"the heap of the file's texts {what}", hint=DAMAGED)
