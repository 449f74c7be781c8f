"""Reading the beginning of a GGUF file forwards, in bounded memory, with every length checked beforehand."""

import struct

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.failures import DAMAGED
from ckpt_surgery.storage.reading import OpenFile

MOST_HEADER_BYTES = 2**26
"""Longest beginning of a file, before the tensors: tokenizers take some ten megabytes of it."""
WINDOW = 2**17
"""Bytes that are read at once."""
_LENGTH = struct.Struct("<Q")


class Cursor:
    """A place in the beginning of a file. It only moves forwards."""

    def __init__(self, file: OpenFile):
        self._file = file
        self._window = b""
        self._start = 0
        """Offset of the window in the file."""
        self.at = 0
        """Offset of the next byte."""

    @property
    def left(self) -> int:
        """Number of bytes that can follow here: to the end of the file, or of the longest header."""
        return min(self._file.stat.size, MOST_HEADER_BYTES) - self.at

    def check(self, count: int, what: str, least: int = 1) -> None:
        """Raise SourceError unless `count` things of at least `least` bytes can follow."""
        if count * least <= self.left:
            return
        if count * least <= self._file.stat.size - self.at:
            raise SourceError(
                f"its {what} end beyond byte {MOST_HEADER_BYTES}, where no header is that long", hint=DAMAGED
            )
        raise SourceError(
            f"it claims {count} {what} at byte {self.at}, and has {self._file.stat.size} bytes", hint=DAMAGED
        )

    def skip(self, count: int, what: str) -> None:
        """Move on by so many bytes, without reading them. Raises SourceError where they are not there."""
        self.check(count, what)
        self.at += count

    def take(self, count: int, what: str) -> bytes:
        """The next bytes. Raises SourceError where they are not there."""
        self.check(count, what)
        self._fill(count)
        begin = self.at - self._start
        self.at += count
        return self._window[begin : begin + count]

    def skip_texts(self, count: int) -> None:
        """Move on by texts: a length of 8 bytes, then so many bytes. Raises SourceError."""
        self.check(count, "texts", _LENGTH.size)
        while count:
            self.check(_LENGTH.size, "bytes")
            self._fill(_LENGTH.size)
            window, at = self._window, self.at - self._start
            end = len(window) - _LENGTH.size
            while count and at <= end:
                at += _LENGTH.size + _LENGTH.unpack_from(window, at)[0]
                count -= 1
            self.skip(self._start + at - self.at, "bytes of texts")

    def _fill(self, count: int) -> None:
        """Read on until the window has the next `count` bytes, which are known to be there."""
        begin = self.at - self._start
        if begin + count <= len(self._window):
            return
        length = max(count, min(WINDOW, self.left))
        self._window, self._start = self._file.read(self.at, length), self.at
