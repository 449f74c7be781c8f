"""How a zip archive begins: enough to tell what its first member is called. The rest: `zip_members`."""

from struct import Struct

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.reading import opened

LOCAL = b"PK\x03\x04"
"""How a member begins."""
LOCAL_FIELDS = Struct("<4s5H3I2H")
"""Signature, version, flags, method, time, date, CRC-32, stored bytes, bytes, lengths of name and extra."""
MOST_NAME_BYTES = MOST_COMMENT_BYTES = 0xFFFF
"""The format's limits."""


def first_name(path: str) -> str | None:
    """The name of the member that begins a file; None where it begins otherwise or cannot be read."""
    try:
        with opened(path) as file:
            head = file.read(0, min(file.stat.size, LOCAL_FIELDS.size + MOST_NAME_BYTES))
    except SourceError:
        return None
    if len(head) < LOCAL_FIELDS.size or not head.startswith(LOCAL):
        return None
    end = LOCAL_FIELDS.size + LOCAL_FIELDS.unpack_from(head)[9]
    return None if end > len(head) else head[LOCAL_FIELDS.size : end].decode("utf-8", "replace")
