"""The layout of an `.npz` file that is to be written: `.npy` files, not compressed, one after another.

Source of the format: `zip_layout`, `npy`, and what NumPy 2.4's `savez` writes and `load` reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.shared.npy import npy_header, npy_string
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.unsupported import metadata_json
from ckpt_surgery.formats.shared.zip_layout import (
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
    MOST_COMMENT_BYTES,
    STORE,
    UTF_8,
    WIDE,
    ZIP64_EXTRA,
)

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


def member_name(text: str) -> bytes:
    """The name in the archive of the leaf with this key."""
    return (text + NPY_SUFFIX).encode()


def comment_of(metadata: Mapping[str, Any]) -> bytes:
    """The archive's comment, which holds the custom metadata as JSON. Raises UsageError."""
    if not metadata:
        return b""
    # Other characters are escaped, so that nothing in it looks like the end of an archive.
    comment = metadata_json(metadata).encode("ascii")
    if len(comment) > MOST_COMMENT_BYTES:
        raise UsageError(
            f"The custom metadata takes {len(comment)} bytes; an .npz file holds {MOST_COMMENT_BYTES}",
            hint="Choose another format.",
        )
    return comment


@dataclass(frozen=True)
class PlannedMember:
    """A member of the archive that is to be written."""

    text: str
    """Text of the leaf's key."""
    header: int
    """Offset of the local header in the archive."""
    begin: bytes
    """The `.npy` file up to the elements of its array."""
    spec: ArraySpec | None
    """The array whose elements follow; None where `begin` is the whole `.npy` file."""

    @property
    def size(self) -> int:
        return len(self.begin) + (0 if self.spec is None else self.spec.nbytes)

    @property
    def raw_name(self) -> bytes:
        return member_name(self.text)

    @property
    def start(self) -> int:
        """Offset of the `.npy` file in the archive."""
        return self.header + LOCAL_FIELDS.size + len(self.raw_name) + len(self.local_extra)

    @property
    def stop(self) -> int:
        return self.start + self.size

    @property
    def local_extra(self) -> bytes:
        return _zip64(self.size, self.size) if self.size >= WIDE_FROM else b""

    def local_header(self, crc: int) -> bytes:
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


def members_of(leaves: Sequence[Leaf]) -> list[PlannedMember]:
    """One member after another, in the order of the leaves."""
    members: list[PlannedMember] = []
    for leaf in leaves:
        header = members[-1].stop if members else 0
        if leaf.string is not None:
            members.append(PlannedMember(leaf.key.text, header, npy_string(leaf.string), None))
        else:
            assert leaf.spec is not None
            members.append(PlannedMember(leaf.key.text, header, npy_header(leaf.spec), leaf.spec))
    return members


def archive_end(members: Sequence[PlannedMember], crcs: Mapping[str, int], comment: bytes) -> bytes:
    """The archive's directory and the records after it. `crcs`: CRC-32 of each member by its text."""
    directory = b"".join(member.entry(crcs[member.text]) for member in members)
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
