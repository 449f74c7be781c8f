"""The names in the index of a TensorFlow checkpoint: just enough to read a real one.

Format: tensorflow/core/util/tensor_bundle (google's LevelDB table format, Snappy, Protocol Buffers).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

DTYPES = {1: "float32", 3: "int32", 9: "int64", 14: "bfloat16"}
FOOTER = 48
SNAPPY = 1


def listed(index: Path) -> dict[str, str]:
    """Name → `dtype[shape]` of every variable."""
    table = index.read_bytes()
    footer = table[-FOOTER:]
    _, at = _handle(footer, 0)
    top, _ = _handle(footer, at)
    found = {}
    for _, handle in _entries(_block(table, *top)):
        for name, entry in _entries(_block(table, *_handle(handle, 0)[0])):
            if name:  # the entry without a name is the header
                found[name.decode()] = _described(entry)
    return found


def _described(entry: bytes) -> str:
    fields = dict(_fields(entry))
    shape = fields.get(2, b"")
    assert isinstance(shape, bytes)
    sizes = [
        dict(_fields(dim))[1] for number, dim in _fields(shape) if number == 2 and isinstance(dim, bytes)
    ]
    return f"{DTYPES[fields[1]]}[{','.join(map(str, sizes))}]"


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(table: bytes, offset: int, size: int) -> bytes:
    data = table[offset : offset + size]
    return _unpacked(data) if table[offset + size] == SNAPPY else data


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values; each key shares its beginning with the one before."""
    (restarts,) = struct.unpack("<I", block[-4:])
    at, key = 0, b""
    while at < len(block) - 4 - 4 * restarts:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        size, at = _varint(block, at)
        key = key[:shared] + block[at : at + own]
        at += own + size
        yield key, block[at - size : at]


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        size, at = (4, at) if tag & 7 == 5 else _varint(message, at)
        yield tag >> 3, message[at : at + size]
        at += size


def _unpacked(data: bytes) -> bytes:
    """Snappy: literals, and copies of what came before."""
    size, at = _varint(data, 0)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            extra = max((tag >> 2) - 59, 0)
            length = (int.from_bytes(data[at : at + extra], "little") if extra else tag >> 2) + 1
            at += extra + length
            out += data[at - length : at]
            continue
        width = (0, 1, 2, 4)[tag & 3]
        offset = int.from_bytes(data[at : at + width], "little")
        length = (tag >> 2) + 1
        if width == 1:
            offset, length = offset | (tag >> 5) << 8, (tag >> 2 & 7) + 4
        at += width
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)
