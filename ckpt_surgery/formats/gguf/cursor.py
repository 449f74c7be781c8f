"""Reading the beginning of a GGUF file forwards, in bounded memory, with every length checked beforehand."""

import struct

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.paged import PagedFile
from ckpt_surgery.storage.reading import OpenFile

MOST_HEADER_BYTES = 2**26
"""Longest beginning of a file, before the tensors: tokenizers take some ten megabytes of it."""
PAGE = 2**17
"""Bytes that are read at once."""
TEXTS_BYTES = 2**20
"""The same of texts that are skipped: the words of a tokenizer."""
_LENGTH = struct.Struct("<Q")


class Cursor:
    """A place in the beginning of a file. It only moves forwards."""

    def __init__(self, file: OpenFile):
        self._size = file.stat.size
        self._pages = PagedFile(file, PAGE, kept=2)
        self.at = 0
        """Offset of the next byte."""

    @property
    def left(self) -> int:
        """Number of bytes that can follow here: to the end of the file, or of the longest header."""
        return min(self._size, MOST_HEADER_BYTES) - self.at

    def check(self, count: int, what: str, least: int = 1) -> None:
        """Raise SourceError unless `count` things of at least `least` bytes can follow."""
        if count * least <= self.left:
            return
        if count * least <= self._size - self.at:
            raise SourceError(
                f"its {what} end beyond byte {MOST_HEADER_BYTES}, where no header is that long", hint=DAMAGED
            )
        raise SourceError(
            f"it claims {count} {what} at byte {self.at}, and has {self._size} bytes", hint=DAMAGED
        )

    def skip(self, count: int, what: str) -> None:
        """Move on by so many bytes, without reading them."""
        self.check(count, what)
        self.at += count

    def take(self, count: int, what: str) -> bytes:
        """The next bytes."""
        self.check(count, what)
        self.at += count
        return self._pages.read(self.at - count, count)

    def skip_texts(self, count: int) -> None:
        """Move on by texts: a length of 8 bytes, then so many bytes."""
        self.check(count, "texts", _LENGTH.size)
        while count:
            self.check(_LENGTH.size, "bytes")
            window = self._pages.read(self.at, min(TEXTS_BYTES, self.left))
            at, end = 0, len(window) - _LENGTH.size
            while count and at <= end:
                at += _LENGTH.size + _LENGTH.unpack_from(window, at)[0]
                count -= 1
            self.skip(at, "bytes of texts")
