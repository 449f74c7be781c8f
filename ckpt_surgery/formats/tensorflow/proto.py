"""Reading small messages in the wire format of Protocol Buffers.

Format: protobuf.dev/programming-guides/encoding. A message is a sequence of numbered fields. Of a field that
is not repeated the last value counts, and a value of zero is usually left out.
"""

from ckpt_surgery.storage.failures import damaged

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


Fields = dict[int, list[int | bytes]]
"""The values of a message's fields by their numbers: bytes for texts, bytes and messages, else unsigned."""


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


def signed(value: int) -> int:
    """An unsigned number of 64 bits, read as two's complement."""
    return value - (1 << 64) if value >> 63 else value


def fields(message: bytes) -> Fields:
    """The fields of a message, the values of each in their order."""
    values: Fields = {}
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(message, at)
            values.setdefault(number, []).append(value)
            continue
        if kind not in (BYTES, *_FIXED):
            raise damaged(f"a message has a field of the unknown kind {kind}")
        size, at = varint(message, at) if kind == BYTES else (_FIXED[kind], at)
        if size > len(message) - at:
            raise damaged(f"a field of {size} bytes begins where {len(message) - at} are left")
        stored, at = message[at : at + size], at + size
        values.setdefault(number, []).append(stored if kind == BYTES else int.from_bytes(stored, "little"))
    return values


def integer(parts: Fields, number: int) -> int:
    """The value of a field that is a number, 0 where it is left out."""
    return optional_integer(parts, number) or 0


def optional_integer(parts: Fields, number: int) -> int | None:
    """The value of a field that is a number, None where it is left out."""
    value = parts[number][-1] if number in parts else None
    if isinstance(value, bytes):
        raise damaged(f"field {number} of a message is not a number")
    return value


def messages(parts: Fields, number: int) -> list[Fields]:
    """Messages in a field that may be repeated."""
    return [fields(value) for value in _texts(parts, number)]


def message(parts: Fields, number: int) -> Fields:
    """The fields of a message in a field that is not repeated: empty where it is left out."""
    return fields(b"".join(_texts(parts, number)))


def _texts(parts: Fields, number: int) -> list[bytes]:
    values = [value for value in parts.get(number, ()) if isinstance(value, bytes)]
    if len(values) != len(parts.get(number, ())):
        raise damaged(f"field {number} of a message is not a message")
    return values
