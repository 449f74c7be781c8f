"""Archives that are to be written: files that are not compressed, one after another, at known places.

Source of the format: `zip.members`.
"""

import zlib
from collections.abc import Sequence
from struct import pack

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.formats.registry import FilePlan
from ckpt_surgery.formats.shared.zip import members as layout
from ckpt_surgery.storage.reading import OpenFile, read_pieces
from ckpt_surgery.storage.regions import Pieces, PlacedArray

VERSION, VERSION64 = 20, 45
"""Versions of the zip format that a reader of a member needs: 2.0, and 4.5 for zip64."""
DATE = 33
"""1 January 1980, the earliest date that zip has: equal arrays make equal files."""
MOST_ENTRIES = 0xFFFF
"""An archive with this many members or more gives their number in a zip64 record."""
WIDE_FROM = layout.WIDE
"""Numbers from this one on are in zip64 fields."""


@frozen()
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
        return self.header + len(self.local_header(0))

    @property
    def stop(self) -> int:
        """Offset of the first byte after the member."""
        return self.start + self.size

    def local_header(self, crc: int) -> bytes:
        """Header before a member, with the CRC-32 of its bytes."""
        about, extra = self._about(crc, self.size, self.size)
        return layout.LOCAL_FIELDS.pack(layout.LOCAL, *about) + self.raw_name + extra

    def entry(self, crc: int) -> bytes:
        """The member's entry in the archive's directory."""
        about, extra = self._about(crc, self.size, self.size, self.header)
        mode = 0o600 << 16  # a file that its owner may read and write, as zipfile says
        rest = (0, 0, 0, mode, _narrow(self.header))
        made_by = about[0]  # the version of the writer: what readers need
        return layout.CENTRAL_FIELDS.pack(layout.CENTRAL, made_by, *about, *rest) + self.raw_name + extra

    def _about(self, crc: int, *numbers: int) -> tuple[tuple[int, ...], bytes]:
        """Common part of header and entry, and the extra field with numbers that are too large."""
        wide = [number.to_bytes(8, "little") for number in numbers if number >= WIDE_FROM]
        extra = pack("<2H", layout.ZIP64_EXTRA, 8 * len(wide)) + b"".join(wide) if wide else b""
        version, flags = VERSION64 if extra else VERSION, 0 if self.raw_name.isascii() else layout.UTF_8
        size = _narrow(self.size)
        lengths = (len(self.raw_name), len(extra))
        return (version, flags, layout.STORE, 0, DATE, crc, size, size, *lengths), extra


def _narrow(number: int) -> int:
    """The 32-bit form of a number; for a large one, the mark that it is in the zip64 field instead."""
    return number if number < WIDE_FROM else layout.WIDE


def archived(name: str, members: Sequence[FilePlan], comment: bytes = b"") -> FilePlan:
    """The archive of these files, one after another. Sealing reads them back for their CRC-32."""
    places: list[PlacedMember] = []
    pieces: list[tuple[int, bytes | bytearray]] = []
    arrays: dict[str, PlacedArray] = {}
    for member in members:
        place = PlacedMember(member.name.encode(), places[-1].stop if places else 0, member.size)
        places.append(place)
        start = place.start
        pieces.append((place.header, place.local_header(0)))
        pieces.extend((start + offset, data) for offset, data in member.pieces)
        arrays |= {text: array.moved(start) for text, array in member.arrays.items()}
    directory, end = _archive_end(places, [0] * len(places), comment)
    size = directory + len(end)
    return FilePlan(name, size, pieces, arrays, lambda written: _seal(written, places, comment))


def _seal(written: OpenFile, places: Sequence[PlacedMember], comment: bytes) -> Pieces:
    """The checksums of all members, and the end of the archive."""
    crcs = []
    for place in places:
        crc = 0
        for _, part in read_pieces(written, place.start, place.size):
            crc = zlib.crc32(part, crc)
        crcs.append(crc)
    at = [place.header + 14 for place in places]  # the CRC-32 in the local header
    fields = [(offset, crc.to_bytes(4, "little")) for offset, crc in zip(at, crcs, strict=True)]
    return [*fields, _archive_end(places, crcs, comment)]


def _archive_end(members: Sequence[PlacedMember], crcs: Sequence[int], comment: bytes) -> tuple[int, bytes]:
    """Offset of the archive's directory; the directory and the records after it. `crcs`: of each member."""
    directory = b"".join(member.entry(crc) for member, crc in zip(members, crcs, strict=True))
    count, length = len(members), len(directory)
    start = offset = members[-1].stop if members else 0
    wide = b""
    if count >= MOST_ENTRIES or offset >= WIDE_FROM or length >= WIDE_FROM:
        numbers = (0, 0, count, count, length, offset)
        wide = layout.END64_FIELDS.pack(
            layout.END64, layout.END64_FIELDS.size - 12, VERSION64, VERSION64, *numbers
        )
        wide += layout.LOCATOR64_FIELDS.pack(layout.LOCATOR64, 0, offset + length, 1)
        count, length, offset = min(count, MOST_ENTRIES), _narrow(length), _narrow(offset)
    end = layout.END_FIELDS.pack(layout.END, 0, 0, count, count, length, offset, len(comment))
    return start, directory + wide + end + comment
