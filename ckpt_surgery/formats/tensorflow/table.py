"""LevelDB's tables: sorted keys with values, in blocks that have checksums.

Format: google/leveldb, doc/table_format.md; google/snappy, format_description.txt, in its raw form without
frames. TensorFlow's tables differ only in their file names.
"""

import struct
from collections.abc import Iterator

import google_crc32c

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.tensorflow import FOOTER_BYTES, is_table
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


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number of at most 64 bits that begins at `at`, and where it ends."""
    if at < len(data) and data[at] < 0x80:  # most are this short
        return data[at], at + 1
    value = 0
    for i, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80 and value < 1 << 64:
            return value, at + i + 1
    raise damaged("a number has no end")


def mask(crc: int) -> int:
    """A CRC-32C in the masked form that these files store, for data that may hold CRCs itself."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def table_entries(file: OpenFile) -> Iterator[Pair]:
    """Keys and values, in the order of the keys; one block is held at a time.

    Raises SourceError where anything is malformed; then the entries before are unreliable too.
    """
    if not is_table(file):
        if file.read(0, min(8, file.stat.size)) == b"version ":
            hint = "Fetch the real file: `git lfs pull`."
            raise SourceError("it is a Git LFS pointer, not the file itself", hint=hint)
        hint = "It is cut short, or not an index of a TensorFlow checkpoint."
        raise SourceError(f"its {file.stat.size} bytes do not end as those of a table do", hint=hint)
    footer = file.read(file.stat.size - FOOTER_BYTES, FOOTER_BYTES)
    _, _, at = _handle(footer, 0)  # the metaindex, which is not needed
    index, index_size, _ = _handle(footer, at)
    end, previous = 0, None
    for _, place in _in_block(file, index, index_size):
        offset, size, _ = _handle(place, 0)
        if offset < end:
            raise damaged("the blocks of its table overlap")
        end = offset + size + TRAILER_BYTES
        for key, value in _in_block(file, offset, size):
            if previous is not None and key <= previous:
                raise damaged("the keys of its table are out of order")
            previous = key
            yield key, value


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Offset and size of a block, without its trailer, by its handle at `at`; and where the handle ends."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return offset, size, at


def _block(file: OpenFile, offset: int, size: int) -> bytes:
    """The contents of a block, checked and decompressed."""
    end, room = offset + size + TRAILER_BYTES, file.stat.size - FOOTER_BYTES
    if end > room:
        raise damaged(f"a block of its table ends at byte {end} of {room}")
    stored = file.read(offset, size + TRAILER_BYTES)
    data, compression = stored[:size], stored[size]
    wanted, crc = struct.unpack("<I", stored[-4:])[0], mask(google_crc32c.value(stored[:-4]))
    if crc != wanted:
        raise damaged(f"the block at byte {offset} has the checksum {crc:08x} where {wanted:08x} is recorded")
    if compression not in (RAW, SNAPPY):
        raise damaged(f"the block at byte {offset} has the unknown compression {compression}")
    return decompress(data) if compression == SNAPPY else data


def _in_block(file: OpenFile, offset: int, size: int) -> Iterator[Pair]:
    """The entries of a block. A key is stored as the length of the prefix that it shares, and the rest.

    After them come offsets for a binary search, and their number.
    """
    block, most = _block(file, offset, size), MOST_KEYS * size
    restarts = struct.unpack("<I", block[-4:])[0] if len(block) >= 4 else 0
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise damaged(f"a block of {len(block)} bytes has {restarts} restarts")
    at, key, total = 0, b"", 0
    while at < end:
        shared, at = varint(block, at)
        own, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or own + length > end - at:
            raise damaged(f"an entry before byte {at} of a block extends beyond it")
        key = key[:shared] + block[at : at + own]
        total += len(key)
        if total > most:
            raise damaged(f"the keys of a block have more than {most} bytes, beyond its own size")
        at += own + length
        yield key, block[at - length : at]


def decompress(data: bytes) -> bytes:
    """Decompress Snappy. Raises SourceError where it is malformed, before it takes much memory."""
    size, at = varint(data, 0)
    if size > MOST_EXPANSION * len(data):
        raise damaged(f"{len(data)} compressed bytes claim to be {size} decompressed ones")
    out = bytearray()
    while at < len(data):
        tag, kind = data[at], data[at] & 3
        more = (max((tag >> 2) - 59, 0), 1, 2, 4)[kind]  # bytes of a number after the tag
        if more > len(data) - at - 1:
            raise damaged("the compressed data ends within a tag")
        number = int.from_bytes(data[at + 1 : at + 1 + more], "little")
        at += 1 + more
        distance, length = number, (tag >> 2) + 1
        if kind == 0:
            distance, length = 0, number + 1 if more else length
        elif kind == 1:
            distance, length = number | (tag >> 5) << 8, (tag >> 2 & 7) + 4
        if kind and not distance:
            raise damaged("the compressed data copies from nowhere")
        if length > size - len(out) or distance > len(out) or (not kind and length > len(data) - at):
            raise damaged(f"the compressed data is wrong before its byte {at}")
        if kind:
            start = len(out) - distance
            piece = out[start : start + length]
            out += (piece * (length // len(piece) + 1))[:length]  # beyond the end they repeat
        else:
            out += data[at : at + length]
            at += length
    if len(out) != size:
        raise damaged(f"{len(out)} bytes were decompressed where {size} were announced")
    return bytes(out)
