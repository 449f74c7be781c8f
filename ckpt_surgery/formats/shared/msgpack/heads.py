"""The headers of MessagePack: what comes next in a file, and how much of it."""

import enum
from struct import Struct
from typing import Any, NamedTuple

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.paged import PagedFile
from ckpt_surgery.storage.reading import OpenFile

PAGE_BYTES = 4096
"""Bytes read in one call; between arrays there are hardly more than a hundred bytes of headers."""


class Kind(enum.Enum):
    """What a header announces, in the words of messages."""

    PLAIN = "a number, a boolean or nil"
    TEXT = "a string"
    BYTES = "a byte string"
    LIST = "a list"
    MAP = "a map"
    EXTENSION = "an extension"


class Head(NamedTuple):
    """A header that has been read."""

    kind: Kind
    value: Any
    """The value of PLAIN, the number of members of LIST and MAP, the number of bytes that follow any other;
    the byte with an extension's type is not counted."""


_SHORT = {
    **{n % 256: Head(Kind.PLAIN, n) for n in range(-32, 128)},
    **{0x80 + n: Head(Kind.MAP, n) for n in range(16)},
    **{0x90 + n: Head(Kind.LIST, n) for n in range(16)},
    **{0xA0 + n: Head(Kind.TEXT, n) for n in range(32)},
    0xC0: Head(Kind.PLAIN, None),
    0xC2: Head(Kind.PLAIN, False),
    0xC3: Head(Kind.PLAIN, True),
    **{0xD4 + n: Head(Kind.EXTENSION, 2**n) for n in range(5)},
}
"""Headers of one byte."""
_NUMBERS = {
    0xCA + i: Struct(">" + code) for i, code in enumerate(("f", "d", "B", "H", "I", "Q", "b", "h", "i", "q"))
}
_SIZED = {
    0xC4: (Kind.BYTES, Struct(">B")),
    0xC5: (Kind.BYTES, Struct(">H")),
    0xC6: (Kind.BYTES, Struct(">I")),
    0xC7: (Kind.EXTENSION, Struct(">B")),
    0xC8: (Kind.EXTENSION, Struct(">H")),
    0xC9: (Kind.EXTENSION, Struct(">I")),
    0xD9: (Kind.TEXT, Struct(">B")),
    0xDA: (Kind.TEXT, Struct(">H")),
    0xDB: (Kind.TEXT, Struct(">I")),
    0xDC: (Kind.LIST, Struct(">H")),
    0xDD: (Kind.LIST, Struct(">I")),
    0xDE: (Kind.MAP, Struct(">H")),
    0xDF: (Kind.MAP, Struct(">I")),
}


class Reader:
    """Reads the headers of a document from front to back."""

    def __init__(self, file: OpenFile, start: int, end: int):
        self._pages = PagedFile(file, PAGE_BYTES, kept=2)
        self.at = start
        """Offset of the next byte in the file."""
        self._end = end
        self._path: list[str] = []
        """Keys of the containers around the next byte."""

    def wrong(self, what: str, hint: str = DAMAGED) -> SourceError:
        """The error to raise, with the key and the offset."""
        key = "/".join(self._path)
        place = f"`{shown(key[:200])}` (byte {self.at})" if key else f"byte {self.at}"
        return SourceError(f"{place}: {shown(what)}", hint=hint)

    def take(self, count: int) -> bytes:
        """The next few bytes."""
        if count > self._end - self.at:
            raise self.wrong(f"{count} bytes belong here, and {self._end - self.at} are left")
        self.at += count
        return self._pages.read(self.at - count, count)

    def head(self) -> Head:
        """Read a header. Raises SourceError where it counts more than the bytes that are left can hold."""
        first = self.take(1)[0]
        head = _SHORT.get(first) or self._long_head(first)
        kind, count = head
        # A member of a map takes two bytes at least.
        if kind is not Kind.PLAIN and (2 * count if kind is Kind.MAP else count) > self._end - self.at:
            unit = "members" if kind in (Kind.LIST, Kind.MAP) else "bytes"
            raise self.wrong(
                f"{kind.value} says that it has {count} {unit}, and {self._end - self.at} bytes are left"
            )
        return head

    def _long_head(self, first: int) -> Head:
        if first in _NUMBERS:
            number = _NUMBERS[first]
            return Head(Kind.PLAIN, number.unpack(self.take(number.size))[0])
        if first in _SIZED:
            kind, size = _SIZED[first]
            return Head(kind, size.unpack(self.take(size.size))[0])
        raise self.wrong(f"the byte {first:#x} begins nothing in MessagePack")
