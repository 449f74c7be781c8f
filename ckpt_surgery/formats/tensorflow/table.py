"""LevelDB's tables: sorted keys with values, in blocks that have checksums.

Format: google/leveldb, doc/table_format.md; google/snappy, format_description.txt, in its raw form without
frames. TensorFlow's tables differ only in their file names.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import google_crc32c

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.tensorflow.detect import FOOTER_BYTES, is_table
from ckpt_surgery.formats.tensorflow.proto import varint
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.reading import OpenFile

TRAILER_BYTES = 5
"""Bytes after each block: its compression, and a checksum."""
RAW, SNAPPY = 0, 1
MOST_EXPANSION = 22
"""Largest number of bytes per compressed byte: a copy of 64 bytes takes 3."""
MOST_KEYS = 32
"""Limit on the bytes of the keys of a block per byte of it; more than 1, because keys share prefixes."""

Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Handle:
    """Span of a block, without its trailer."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset after the trailer."""
        return self.offset + self.size + TRAILER_BYTES


def mask(crc: int) -> int:
    """A CRC-32C in the masked form that these files store, for data that may hold CRCs itself."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def table_entries(file: OpenFile) -> Iterator[Pair]:
    """Keys and values, in the order of the keys; one block is held at a time.

    Raises SourceError where anything is malformed; then the entries before are unreliable too.
    """
    end, previous = 0, None
    for _, place in _in_block(file, _index(file)):
        handle, _ = _handle(place, 0)
        if handle.offset < end:
            raise damaged("the blocks of its table overlap")
        end = handle.end
        for key, value in _in_block(file, handle):
            if previous is not None and key <= previous:
                raise damaged("the keys of its table are out of order")
            previous = key
            yield key, value


def _index(file: OpenFile) -> Handle:
    """The handle of the block that lists all others."""
    if not is_table(file):
        raise _no_table(file)
    footer = file.read(file.stat.size - FOOTER_BYTES, FOOTER_BYTES)
    _, at = _handle(footer, 0)  # the metaindex, which is not needed
    return _handle(footer, at)[0]


def _no_table(file: OpenFile) -> SourceError:
    if file.read(0, min(8, file.stat.size)) == b"version ":
        return SourceError(
            "it is a Git LFS pointer, not the file itself", hint="Fetch the real file: `git lfs pull`."
        )
    return SourceError(
        f"its {file.stat.size} bytes do not end as those of a table do",
        hint="It is cut short, or not an index of a TensorFlow checkpoint.",
    )


def _handle(data: bytes, at: int) -> tuple[Handle, int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return Handle(offset, size), at


def _block(file: OpenFile, handle: Handle) -> bytes:
    """The contents of a block, checked and decompressed."""
    room = file.stat.size - FOOTER_BYTES
    if handle.end > room:
        raise damaged(f"a block of its table ends at byte {handle.end} of {room}")
    stored = file.read(handle.offset, handle.size + TRAILER_BYTES)
    data, compression = stored[: handle.size], stored[handle.size]
    wanted, crc = struct.unpack("<I", stored[-4:])[0], mask(google_crc32c.value(stored[:-4]))
    if crc != wanted:
        raise damaged(
            f"the block at byte {handle.offset} has the checksum {crc:08x} where {wanted:08x} is recorded"
        )
    if compression not in (RAW, SNAPPY):
        raise damaged(f"the block at byte {handle.offset} has the unknown compression {compression}")
    return decompress(data) if compression == SNAPPY else data


def _in_block(file: OpenFile, handle: Handle) -> Iterator[Pair]:
    """The entries of a block. A key is stored as the length of the prefix that it shares, and the rest."""
    block = _block(file, handle)
    end, most = _end_of_entries(block), MOST_KEYS * handle.size
    at, key, total = 0, b"", 0
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or own + size > end - at:
            raise damaged(f"an entry before byte {at} of a block extends beyond it")
        key = key[:shared] + block[at : at + own]
        total += len(key)
        if total > most:
            raise damaged(f"the keys of a block have more than {most} bytes, beyond its own size")
        at += own + size
        yield key, block[at - size : at]


def _end_of_entries(block: bytes) -> int:
    """The offset where the entries end and the offsets for a binary search begin."""
    restarts = struct.unpack("<I", block[-4:])[0] if len(block) >= 4 else 0
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise damaged(f"a block of {len(block)} bytes has {restarts} restarts")
    return end


# --- Snappy: literals, and copies of what came before -----------------------------------------------------


def decompress(data: bytes) -> bytes:
    """The decompressed bytes. Raises SourceError where they are malformed, before it takes much memory."""
    size, at = varint(data, 0)
    if size > MOST_EXPANSION * len(data):
        raise damaged(f"{len(data)} compressed bytes claim to be {size} decompressed ones")
    out = bytearray()
    while at < len(data):
        length, offset, at = _element(data, at)
        if length > size - len(out) or offset > len(out) or (not offset and length > len(data) - at):
            raise damaged(f"the compressed data is wrong before its byte {at}")
        if offset:
            out += _repeated(out, offset, length)
        else:
            out += data[at : at + length]
            at += length
    if len(out) != size:
        raise damaged(f"{len(out)} bytes were decompressed where {size} were announced")
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
        raise damaged("the compressed data copies from nowhere")
    return length, offset, at + 1 + width


def _number(data: bytes, at: int, width: int, default: int) -> int:
    """The number of `width` bytes at `at`; `default` where `width` is 0."""
    if width > len(data) - at:
        raise damaged("the compressed data ends within a tag")
    return int.from_bytes(data[at : at + width], "little") if width else default


def _repeated(out: bytearray, offset: int, length: int) -> bytearray:
    """`length` bytes from `offset` bytes before the end on; beyond the end they repeat."""
    start = len(out) - offset
    piece = out[start : start + length]
    return piece if len(piece) == length else (piece * (length // offset + 1))[:length]
