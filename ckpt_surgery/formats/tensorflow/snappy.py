"""Decompressing Snappy: literals, and copies of what came before.

Format: google/snappy, format_description.txt, in its raw form without frames, as tables have it.
"""

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.tensorflow.proto import varint
from ckpt_surgery.storage.failures import DAMAGED

MOST_EXPANSION = 22
"""Largest number of bytes per compressed byte: a copy of 64 bytes takes 3."""


def decompress(data: bytes) -> bytes:
    """The decompressed bytes. Raises SourceError where they are malformed, before it takes much memory."""
    size, at = varint(data, 0)
    if size > MOST_EXPANSION * len(data):
        raise SourceError(f"{len(data)} compressed bytes claim to be {size} decompressed ones", hint=DAMAGED)
    out = bytearray()
    while at < len(data):
        length, offset, at = _element(data, at)
        if length > size - len(out) or offset > len(out) or (not offset and length > len(data) - at):
            raise SourceError(f"the compressed data is wrong before its byte {at}", hint=DAMAGED)
        if offset:
            out += _repeated(out, offset, length)
        else:
            out += data[at : at + length]
            at += length
    if len(out) != size:
        raise SourceError(f"{len(out)} bytes were decompressed where {size} were announced", hint=DAMAGED)
    return bytes(out)


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Length, distance to copy from (0: a literal follows), and the offset where the tag ends."""
    tag, kind = data[at], data[at] & 3
    if kind == 0:
        extra = max((tag >> 2) - 59, 0)
        return _number(data, at + 1, extra, tag >> 2) + 1, 0, at + 1 + extra
    width = (0, 1, 2, 4)[kind]
    offset, length = _number(data, at + 1, width, 0), (tag >> 2) + 1
    if kind == 1:
        offset, length = offset | (tag >> 5) << 8, (tag >> 2 & 7) + 4
    if not offset:
        raise SourceError("the compressed data copies from nowhere", hint=DAMAGED)
    return length, offset, at + 1 + width


def _number(data: bytes, at: int, width: int, default: int) -> int:
    """The number of `width` bytes at `at`; `default` where `width` is 0."""
    if width > len(data) - at:
        raise SourceError("the compressed data ends within a tag", hint=DAMAGED)
    return int.from_bytes(data[at : at + width], "little") if width else default


def _repeated(out: bytearray, offset: int, length: int) -> bytearray:
    """`length` bytes from `offset` bytes before the end on; beyond the end they repeat."""
    start = len(out) - offset
    piece = out[start : start + length]
    return piece if len(piece) == length else (piece * (length // offset + 1))[:length]
