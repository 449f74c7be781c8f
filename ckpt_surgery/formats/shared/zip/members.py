"""The members of zip archives, strictly checked, and where their bytes lie.

A member that is not `deflated` lies at `member.offset` as it is: `stored == size` bytes, which are within
the file and belong to no other member. Every flaw is a SourceError with the path. Nothing is allocated that
the size of the file does not justify.

Refused are archives that two programs could read differently: data before the first member, between
the directory and its end record, or after it; repeated names; members that overlap; local headers that
disagree with the directory. Refused too: encryption, methods other than store and deflate, several disks.

Source of the format: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5, and what Python's zipfile and torch's
miniz write: local headers with zip64 sizes for every member, or with a data descriptor after it (flag bit 3).
"""

import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from struct import Struct, unpack_from

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED, damaged
from ckpt_surgery.storage.reading import OpenFile

LOCAL = b"PK\x03\x04"
"""Signature of a member's local header."""
LOCAL_FIELDS = Struct("<4s5H3I2H")
"""Signature, version, flags, method, time, date, CRC-32, stored bytes, bytes, lengths of name and extra."""
MOST_NAME_BYTES = MOST_COMMENT_BYTES = 0xFFFF
"""The format's limits for names and comments."""
CENTRAL, END = b"PK\x01\x02", b"PK\x05\x06"
"""Signatures of a member's entry in the directory, and of the record that ends an archive."""
END64, LOCATOR64 = b"PK\x06\x06", b"PK\x06\x07"
"""Signatures of the zip64 end record, and of the record that says where that is."""
CENTRAL_FIELDS = Struct("<4s6H3I5H2I")
"""Signature, versions (2), flags, method, time, date, CRC-32, stored bytes, bytes, lengths of name, extra and
comment, disk, attributes (2), offset of the local header."""
END_FIELDS = Struct("<4s4H2IH")
"""Signature, disks (2), entries (2), bytes and offset of the directory, length of the comment."""
END64_FIELDS = Struct("<4sQ2H2I4Q")
"""Signature, bytes that follow, versions (2), disks (2), entries (2), bytes and offset of the directory."""
LOCATOR64_FIELDS = Struct("<4sIQI")
"""Signature, disk, offset of the wide end record, number of disks."""
STORE, DEFLATE = 0, 8
"""Compression methods."""
DESCRIPTOR, UTF_8 = 1 << 3, 1 << 11
"""Flags: sizes follow the member and are optional in the local header; the name is UTF-8, not CP437."""
ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13
"""Flags of encrypted members and directories."""
PATCH = 1 << 5
"""Flag of members that are patches of others."""
WIDE = 0xFFFFFFFF
"""Value that marks a number as being in the zip64 extra field."""
ZIP64_EXTRA = 1
"""Number of the zip64 extra field."""


def first_name(file: OpenFile) -> str | None:
    """The name of the member at the beginning of a file; None where there is none."""
    head = file.read(0, min(file.stat.size, LOCAL_FIELDS.size + MOST_NAME_BYTES))
    if len(head) < LOCAL_FIELDS.size or not head.startswith(LOCAL):
        return None
    end = LOCAL_FIELDS.size + LOCAL_FIELDS.unpack_from(head)[9]
    return None if end > len(head) else head[LOCAL_FIELDS.size : end].decode("utf-8", "replace")


# --- archives ---------------------------------------------------------------------------------------------

MOST_DIRECTORY_BYTES = 100_000_000
MOST_GAIN = 1032
"""Largest number of bytes that one deflated byte can become: 258 for every two bits."""


@frozen()
class ZipMember:
    """One file of an archive."""

    name: str
    offset: int
    """Offset of its first byte in the archive's file."""
    stored: int
    """Number of bytes in the archive."""
    size: int
    """Number of bytes once it is inflated."""
    crc: int
    """CRC-32 of these bytes."""
    deflated: bool

    @property
    def called(self) -> str:
        """The name as messages quote it."""
        return f"`{shown(self.name[:200])}`"


class Archive(dict[str, ZipMember]):
    """The checked members of an archive by name, in its directory's order, without empty directories."""

    comment = b""


def read_archive(file: OpenFile, most_comment: int = MOST_COMMENT_BYTES) -> Archive:
    """The members of an archive: two short reads for each.

    `most_comment`: bytes of the comment at its end at most, which are read with the end.
    """
    count, directory, length, comment = _read_end(file, END_FIELDS.size + most_comment)
    entries = list(_entries(file, file.read(directory, length)))
    if len(entries) != count:
        raise wrong(file, f"its end record says {count} members, but its directory has {len(entries)}")
    placed = sorted(entries, key=lambda entry: entry[0].offset)
    starts = [*(header.offset for header, _ in placed), directory]
    if starts[0] != 0:
        raise wrong(file, f"{starts[0]} bytes lie before its first member")
    # Each must end before the next one begins.
    at = {
        header.offset: _located(file, header, flags, limit)
        for (header, flags), limit in zip(placed, starts[1:], strict=True)
    }
    members = [at[header.offset] for header, _ in entries]
    for name, times in Counter(member.name for member in members).items():
        if times > 1:
            raise wrong(file, f"`{shown(name[:200])}` occurs {times} times")
    archive = Archive({m.name: m for m in members if m.size or not m.name.endswith("/")})
    archive.comment = comment
    return archive


# --- the end, the directory -------------------------------------------------------------------------------


def _read_end(file: OpenFile, longest: int) -> tuple[int, int, int, bytes]:
    """The end record: number of entries, offset and length of the directory before it, and comment."""
    size = file.stat.size
    tail = file.read(size - min(size, longest), min(size, longest))
    at = tail.rfind(END)
    if at < 0 or len(tail) - at < END_FIELDS.size:
        raise wrong(file, "it has no end of a zip archive: it is cut off, or no zip archive")
    _, disk, first_disk, here, entries, length, offset, commented = END_FIELDS.unpack_from(tail, at)
    comment = tail[at + END_FIELDS.size :]
    if len(comment) != commented:
        raise wrong(file, f"{len(comment)} bytes follow the end of the archive, {commented} belong there")
    position = size - len(tail) + at
    wide = _read_wide_end(file, position)
    if wide:
        position, disk, first_disk, here, entries, length, offset = wide
    if disk or first_disk or here != entries:
        raise wrong(file, "it is one of several disks of an archive", "Join them first.")
    if offset + length != position:
        raise wrong(file, f"its directory is at byte {offset} and has {length} bytes, but ends at {position}")
    if length > MOST_DIRECTORY_BYTES:
        raise wrong(file, f"its directory has {length} bytes; {MOST_DIRECTORY_BYTES} is the limit")
    return entries, offset, length, comment


def _read_wide_end(file: OpenFile, end: int) -> tuple[int, ...] | None:
    """Position, disks, entries, length and offset from a zip64 record before `end`; None without one."""
    at = end - LOCATOR64_FIELDS.size
    start = at - END64_FIELDS.size
    if start < 0:
        return None
    signature, disk, offset, disks = LOCATOR64_FIELDS.unpack(file.read(at, LOCATOR64_FIELDS.size))
    if signature != LOCATOR64:
        return None
    record = END64_FIELDS.unpack(file.read(start, END64_FIELDS.size))
    if record[0] != END64 or offset != start or record[1] != END64_FIELDS.size - 12:
        raise wrong(file, f"its zip64 record should be at byte {start}, but the archive says {offset}")
    if disk or disks > 1:
        raise wrong(file, "it is one of several disks of an archive", "Join them first.")
    return start, *record[4:]


def _entries(file: OpenFile, directory: bytes) -> Iterator[tuple[ZipMember, int]]:
    """The entries of the directory, each valid in itself: a member at the offset of its header, and flags."""
    at, fields = 0, CENTRAL_FIELDS.size
    while at < len(directory):
        if not directory.startswith(CENTRAL, at) or len(directory) - at < fields:
            raise wrong(file, f"byte {at} of its directory is not the beginning of an entry")
        numbers = CENTRAL_FIELDS.unpack_from(directory, at)
        _, _, version, flags, method, _, _, crc, stored, size, *rest = numbers
        named, extra, commented, disk, _, _, header = rest
        start = at + fields
        at = start + named + extra + commented
        if at > len(directory):
            raise wrong(file, "its directory ends within an entry")
        raw_name, more = directory[start : start + named], directory[start + named : start + named + extra]
        size, stored, header = _widened(file, more, (size, stored, header))
        try:
            name = raw_name.decode("utf-8" if flags & UTF_8 else "cp437")
        except UnicodeDecodeError as error:
            raise wrong(file, f"the name {raw_name[:200]!r} is not valid UTF-8") from error
        member = ZipMember(name, header, stored, size, crc, method == DEFLATE)
        _check_entry(file, member, flags, method, version & 0xFF, disk)
        yield member, flags


def _check_entry(file: OpenFile, member: ZipMember, flags: int, method: int, version: int, disk: int) -> None:
    name, stored, size = member.called, member.stored, member.size
    if flags & ENCRYPTED:
        raise wrong(file, f"{name} is encrypted", "Decrypt it first.")
    if method not in (STORE, DEFLATE) or flags & PATCH:
        what = f"{name} is compressed with method {method}; only store and deflate are read"
        raise wrong(file, what, "Write it again without compression.")
    if version > 63:  # 6.3, the newest
        raise wrong(file, f"{name} needs version {version / 10} of the zip format, which is not known")
    if disk:
        raise wrong(file, f"{name} is on disk {disk} of an archive", "Join the disks first.")
    if method == STORE and stored != size:
        raise wrong(file, f"{name} is stored as it is, in {stored} bytes for {size}")
    if size > stored * MOST_GAIN:
        raise wrong(file, f"{name} claims {size} bytes, deflated to {stored}")


def _widened(file: OpenFile, extra: bytes, numbers: Sequence[int]) -> tuple[int, ...]:
    """The numbers, with those that are in the zip64 extra field filled in."""
    at = 0
    while WIDE in numbers and at + 4 <= len(extra):
        kind, length = unpack_from("<2H", extra, at)
        field = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if kind == ZIP64_EXTRA:
            wide = iter([int.from_bytes(field[i : i + 8], "little") for i in range(0, len(field) - 7, 8)])
            if len(field) // 8 < numbers.count(WIDE):
                raise wrong(file, "a zip64 field lacks a number")
            return tuple(next(wide) if number == WIDE else number for number in numbers)
    return tuple(numbers)


def _located(file: OpenFile, member: ZipMember, flags: int, limit: int) -> ZipMember:
    """The member with the offset of its bytes in place of its header's.

    Raises SourceError unless its own header agrees with the directory and its bytes end by `limit`.
    """

    def disagrees(what: str) -> SourceError:
        said = f"({member.size} bytes in {member.stored}, CRC-32 {member.crc:08x})"
        return wrong(file, f"{member.called} is not what the directory says {said}: {what}")

    fields = LOCAL_FIELDS.unpack(file.read(member.offset, LOCAL_FIELDS.size))
    signature, _, own_flags, method, _, _, crc, stored, size, named, extra = fields
    start = member.offset + LOCAL_FIELDS.size
    offset = start + named + extra
    if signature != LOCAL:
        raise disagrees("no header is at its offset")
    if (end := offset + member.stored) > limit:
        raise wrong(file, f"{member.called} would end at byte {end}, but what follows it begins at {limit}")
    rest = file.read(start, named + extra)
    size, stored = _widened(file, rest[named:], (size, stored))
    same_flags = not (own_flags ^ flags) & (UTF_8 | ENCRYPTED | PATCH)
    if not same_flags or rest[:named] != member.name.encode("utf-8" if flags & UTF_8 else "cp437"):
        raise disagrees(f"its own header calls it {rest[: min(named, 200)]!r}")
    if method != (DEFLATE if member.deflated else STORE):
        raise disagrees(f"its own header says method {method}")
    later = own_flags & DESCRIPTOR and (crc, stored, size) == (0, 0, 0)
    if not later and (crc, stored, size) != (member.crc, member.stored, member.size):
        raise disagrees(f"its own header says {size} bytes in {stored}, CRC-32 {crc:08x}")
    return replace(member, offset=offset)


def wrong(file: OpenFile, what: str, hint: str = DAMAGED) -> SourceError:
    return SourceError(f"{shown(file.path)}: {what}", hint=hint)


# --- reading members --------------------------------------------------------------------------------------

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
