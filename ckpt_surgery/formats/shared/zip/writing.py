"""Archives that are to be written: members that are not compressed, one after another, at known places.

    places = placed([(b"a", 10), (b"b", 2**33)])     # PlacedMember: `header`, `start`, `stop`
    places[0].local_header(crc)                      # lies at `header`; the member begins at `start`
    archive_end(places, crcs, comment)               # the directory and what follows it, at `places[-1].stop`

Source of the format: `zip_layout`.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ckpt_surgery.formats.shared.zip.layout import (
    CENTRAL,
    CENTRAL_FIELDS,
    END,
    END64,
    END64_FIELDS,
    END_FIELDS,
    LOCAL,
    LOCAL_FIELDS,
    LOCATOR64,
    LOCATOR64_FIELDS,
    STORE,
    UTF_8,
    WIDE,
    ZIP64_EXTRA,
)
from ckpt_surgery.storage.reading import OpenFile

VERSION, VERSION64 = 20, 45
"""Versions of the zip format that a reader of a member needs: 2.0, and 4.5 for zip64."""
DATE = 33
"""1 January 1980, the earliest date that zip has: equal arrays make equal files."""
MODE = 0o600 << 16
"""A file that its owner may read and write, as zipfile says."""
MOST_ENTRIES = 0xFFFF
"""An archive with this many members or more gives their number in a zip64 record."""
WIDE_FROM = WIDE
"""Numbers from this one on are in zip64 fields."""
CRC_AT = 14
"""Offset of the CRC-32 in a local header."""
PIECE = 1 << 18
"""Bytes that are read back in one go."""


@dataclass(frozen=True)
class PlacedMember:
    """A member of the archive that is to be written."""

    raw_name: bytes
    """Its name in UTF-8."""
    header: int
    """Offset of the local header in the archive."""
    size: int
    """Number of bytes."""

    @property
    def start(self) -> int:
        """Offset of the member's first byte in the archive."""
        return self.header + LOCAL_FIELDS.size + len(self.raw_name) + len(self.local_extra)

    @property
    def stop(self) -> int:
        """Offset of the first byte after the member."""
        return self.start + self.size

    @property
    def local_extra(self) -> bytes:
        """The extra field of the local header."""
        return _zip64(self.size, self.size) if self.size >= WIDE_FROM else b""

    def local_header(self, crc: int) -> bytes:
        """What lies before the member, with the CRC-32 of its bytes."""
        size, extra = _narrow(self.size), self.local_extra
        about = (_version(extra), _flags(self.raw_name), STORE, 0, DATE, crc, size, size)
        lengths = (len(self.raw_name), len(extra))
        return LOCAL_FIELDS.pack(LOCAL, *about, *lengths) + self.raw_name + extra

    def entry(self, crc: int) -> bytes:
        """The member's entry in the archive's directory."""
        wide = [n for n in (self.size, self.size, self.header) if n >= WIDE_FROM]
        extra, size = _zip64(*wide) if wide else b"", _narrow(self.size)
        about = (_version(extra), _version(extra), _flags(self.raw_name), STORE, 0, DATE, crc, size, size)
        rest = (len(self.raw_name), len(extra), 0, 0, 0, MODE, _narrow(self.header))
        return CENTRAL_FIELDS.pack(CENTRAL, *about, *rest) + self.raw_name + extra


def _narrow(number: int) -> int:
    """The 32-bit form of a number; for a large one, the mark that it is in the zip64 field instead."""
    return number if number < WIDE_FROM else WIDE


def _zip64(*numbers: int) -> bytes:
    """The extra field with the numbers that need more than 32 bits."""
    data = b"".join(number.to_bytes(8, "little") for number in numbers)
    return ZIP64_EXTRA.to_bytes(2, "little") + len(data).to_bytes(2, "little") + data


def _version(extra: bytes) -> int:
    return VERSION64 if extra else VERSION


def _flags(raw_name: bytes) -> int:
    return 0 if raw_name.isascii() else UTF_8


def placed(members: Iterable[tuple[bytes, int]]) -> list[PlacedMember]:
    """Members with these names, in UTF-8, and sizes in bytes: one after another, in this order."""
    places: list[PlacedMember] = []
    for raw_name, size in members:
        places.append(PlacedMember(raw_name, places[-1].stop if places else 0, size))
    return places


def archive_end(members: Sequence[PlacedMember], crcs: Sequence[int], comment: bytes = b"") -> bytes:
    """The archive's directory and the records after it. `crcs`: CRC-32 of each member."""
    directory = b"".join(member.entry(crc) for member, crc in zip(members, crcs, strict=True))
    count, length = len(members), len(directory)
    offset = members[-1].stop if members else 0
    wide = b""
    if count >= MOST_ENTRIES or offset >= WIDE_FROM or length >= WIDE_FROM:
        numbers = (0, 0, count, count, length, offset)
        wide = END64_FIELDS.pack(END64, END64_FIELDS.size - 12, VERSION64, VERSION64, *numbers)
        wide += LOCATOR64_FIELDS.pack(LOCATOR64, 0, offset + length, 1)
        count, length, offset = min(count, MOST_ENTRIES), _narrow(length), _narrow(offset)
    end = END_FIELDS.pack(END, 0, 0, count, count, length, offset, len(comment))
    return directory + wide + end + comment


def written_crc(file: OpenFile, member: PlacedMember) -> int:
    """CRC-32 of a member that was written, read back in pieces. Raises SourceError."""
    crc, buffer = 0, memoryview(bytearray(min(PIECE, member.size)))
    for at in range(member.start, member.stop, PIECE):
        part = buffer[: member.stop - at]
        file.read_into(at, part)
        crc = zlib.crc32(part, crc)
    return crc
