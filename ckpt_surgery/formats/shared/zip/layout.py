"""The records of zip archives, and the name of the first member. Reading whole archives: `zip.members`."""

from struct import Struct

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
MOST_VERSION = 63
"""Newest version of the format, 6.3, times ten."""
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
