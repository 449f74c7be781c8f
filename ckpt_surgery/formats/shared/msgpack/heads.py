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


class HeadKind(enum.Enum):
    """Content that a header announces, in the words of messages."""

    PLAIN = "a number, a boolean or nil"
    TEXT = "a string"
    BYTES = "a byte string"
    LIST = "a list"
    MAP = "a map"
    EXTENSION = "an extension"


class ValueHead(NamedTuple):
    """A header that has been read."""

    kind: HeadKind
    value: Any
    """The value of PLAIN, the number of members of LIST and MAP, the number of bytes that follow any other;
    the byte with an extension's type is not counted."""


_SHORT = {
    **{n % 256: ValueHead(HeadKind.PLAIN, n) for n in range(-32, 128)},
    **{0x80 + n: ValueHead(HeadKind.MAP, n) for n in range(16)},
    **{0x90 + n: ValueHead(HeadKind.LIST, n) for n in range(16)},
    **{0xA0 + n: ValueHead(HeadKind.TEXT, n) for n in range(32)},
    0xC0: ValueHead(HeadKind.PLAIN, None),
    0xC2: ValueHead(HeadKind.PLAIN, False),
    0xC3: ValueHead(HeadKind.PLAIN, True),
    **{0xD4 + n: ValueHead(HeadKind.EXTENSION, 2**n) for n in range(5)},
}
"""Headers of one byte."""
_NUMBERS = {
    0xCA + i: Struct(">" + code) for i, code in enumerate(("f", "d", "B", "H", "I", "Q", "b", "h", "i", "q"))
}
_SIZED = {
    0xC4: (HeadKind.BYTES, Struct(">B")),
    0xC5: (HeadKind.BYTES, Struct(">H")),
    0xC6: (HeadKind.BYTES, Struct(">I")),
    0xC7: (HeadKind.EXTENSION, Struct(">B")),
    0xC8: (HeadKind.EXTENSION, Struct(">H")),
    0xC9: (HeadKind.EXTENSION, Struct(">I")),
    0xD9: (HeadKind.TEXT, Struct(">B")),
    0xDA: (HeadKind.TEXT, Struct(">H")),
    0xDB: (HeadKind.TEXT, Struct(">I")),
    0xDC: (HeadKind.LIST, Struct(">H")),
    0xDD: (HeadKind.LIST, Struct(">I")),
    0xDE: (HeadKind.MAP, Struct(">H")),
    0xDF: (HeadKind.MAP, Struct(">I")),
}


class HeadReader:
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

    def head(self) -> ValueHead:
        """Read a header. Raises SourceError where it counts more than the bytes that are left can hold."""
        first = self.take(1)[0]
        head = _SHORT.get(first) or self._long_head(first)
        kind, count = head
        # A member of a map takes two bytes at least.
        if (
            kind is not HeadKind.PLAIN
            and (2 * count if kind is HeadKind.MAP else count) > self._end - self.at
        ):
            unit = "members" if kind in (HeadKind.LIST, HeadKind.MAP) else "bytes"
            raise self.wrong(
                f"{kind.value} says that it has {count} {unit}, and {self._end - self.at} bytes are left"
            )
        return head

    def _long_head(self, first: int) -> ValueHead:
        if first in _NUMBERS:
            number = _NUMBERS[first]
            return ValueHead(HeadKind.PLAIN, number.unpack(self.take(number.size))[0])
        if first in _SIZED:
            kind, size = _SIZED[first]
            return ValueHead(kind, size.unpack(self.take(size.size))[0])
        raise self.wrong(f"the byte {first:#x} begins nothing in MessagePack")
