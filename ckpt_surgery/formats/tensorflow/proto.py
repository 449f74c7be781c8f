"""Reading small messages in the wire format of Protocol Buffers.

Format: protobuf.dev/programming-guides/encoding. A message is a sequence of numbered fields. Of a field that
is not repeated the last value counts, and a value of zero is usually left out.
"""

from dataclasses import dataclass

from ckpt_surgery.storage.failures import damaged

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    number: int
    value: int | bytes
    """Bytes where the field is a text, bytes or a message, else an unsigned number."""


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


def fields(message: bytes) -> list[Field]:
    """The fields of a message in their order."""
    message_fields = []
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            number, at = varint(message, at)
            message_fields.append(Field(tag >> 3, number))
            continue
        if kind not in (BYTES, *_FIXED):
            raise damaged(f"a message has a field of the unknown kind {kind}")
        size, at = varint(message, at) if kind == BYTES else (_FIXED[kind], at)
        if size > len(message) - at:
            raise damaged(f"a field of {size} bytes begins where {len(message) - at} are left")
        value, at = message[at : at + size], at + size
        message_fields.append(Field(tag >> 3, value if kind == BYTES else int.from_bytes(value, "little")))
    return message_fields


def integer(parts: list[Field], number: int) -> int:
    """The value of a field that is a number, 0 where it is left out."""
    return optional_integer(parts, number) or 0


def optional_integer(parts: list[Field], number: int) -> int | None:
    """The value of a field that is a number, None where it is left out."""
    values = [field.value for field in parts if field.number == number]
    if not values:
        return None
    if not isinstance(values[-1], int):
        raise damaged(f"field {number} of a message is not a number")
    return values[-1]


def messages(parts: list[Field], number: int) -> list[list[Field]]:
    """Messages in a field that may be repeated."""
    values = [field.value for field in parts if field.number == number]
    if not all(isinstance(value, bytes) for value in values):
        raise damaged(f"field {number} of a message is not a message")
    return [fields(value) for value in values if isinstance(value, bytes)]


def message(parts: list[Field], number: int) -> list[Field]:
    """The fields of a message in a field that is not repeated: empty where it is left out."""
    return [field for part in messages(parts, number) for field in part]
