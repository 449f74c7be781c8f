"""Members of zip archives that are deflated, read forwards, and members read whole; CRC-32s are checked."""

import zlib
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.zip.members import ZipMember, wrong
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.reading import OpenFile

PIECE = 1 << 16
"""Largest number of bytes that are inflated, or produced by inflating, in one call."""


def read_member(file: OpenFile, member: ZipMember, most: int) -> bytes:
    """All of a member. Raises SourceError where it has more than `most` bytes or another CRC-32."""
    if member.size > most:
        raise wrong(file, f"{member.called} has {member.size} bytes; {most} is the limit")
    if member.deflated:
        stream = Inflated(member)
        data = stream.within(file).read(0, member.size)
        stream.finish(file)
        return data
    data = file.read(member.offset, member.size)
    check_crc(file.path, member, zlib.crc32(data))
    return data


def check_crc(path: str, member: ZipMember, crc: int) -> None:
    """Raises SourceError unless the CRC-32 of a member's bytes is what the archive says."""
    if crc != member.crc:
        flaw = f"has the CRC-32 {crc:08x}, where {member.crc:08x} was recorded"
        raise damaged(f"{shown(path)}: {member.called} {flaw}")


class Inflated:
    """A deflated member that is read forwards, in pieces. Holds no file. Not thread-safe."""

    def __init__(self, member: ZipMember):
        self.member = member
        self.position = 0
        """Number of the member's bytes produced so far: reads cannot begin before this offset."""
        self._taken = 0
        """Number of its stored bytes that were read."""
        self._crc = 0
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)

    def read_into(self, file: OpenFile, offset: int, buffer: memoryview) -> None:
        """Fill the buffer with the member's bytes from `offset` on, which is not before `position`.

        Bytes before `offset` are inflated and dropped.
        """
        assert self.position <= offset
        while self.position < offset:
            self._next(file, offset - self.position)
        done = 0
        while done < len(buffer):
            piece = self._next(file, len(buffer) - done)
            buffer[done : done + len(piece)] = piece
            done += len(piece)

    def within(self, file: OpenFile) -> OpenFile:
        """The member as a file that is read forwards. `file`: the archive."""
        return OpenFile(file.path, replace(file.stat, size=self.member.size), partial(self.read_into, file))

    def finish(self, file: OpenFile) -> None:
        """After all bytes were read: raises SourceError unless their number and CRC-32 are right."""
        while not self._stream.eof:
            if self._make(file, 1):
                raise self._wrong(file, "it inflates to more")
        if self._stream.unused_data or self._taken != self.member.stored:
            raise self._wrong(file, "its deflated data ends before its stored bytes do")
        check_crc(file.path, self.member, self._crc)

    def _next(self, file: OpenFile, most: int) -> bytes:
        """The next bytes: at least one, and not more than `most`."""
        while not (piece := self._make(file, most)):
            if self._stream.eof:
                raise self._wrong(file, f"it inflates to {self.position} bytes only")
        return piece

    def _make(self, file: OpenFile, most: int) -> bytes:
        """Inflate one piece, which can produce no byte yet."""
        held = self._stream.unconsumed_tail
        if not held and self._taken < self.member.stored:
            held = file.read(self.member.offset + self._taken, min(PIECE, self.member.stored - self._taken))
            self._taken += len(held)
        try:
            data = self._stream.decompress(held, min(PIECE, most))
        except zlib.error as error:
            raise self._wrong(file, f"it cannot be inflated: {error}") from error
        if not data and not held and not self._stream.eof:
            raise self._wrong(file, "its deflated data breaks off")
        self.position += len(data)
        self._crc = zlib.crc32(data, self._crc)
        return data

    def _wrong(self, file: OpenFile, what: str) -> SourceError:
        return wrong(file, f"{self.member.called} should have {self.member.size} bytes, but {what}")
