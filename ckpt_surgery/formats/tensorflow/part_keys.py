"""The keys under which an index has the parts of partitioned variables."""

from collections.abc import Sequence


def part_key(name: str, extents: Sequence[tuple[int, int]]) -> bytes:
    """The key of a part: an ordered code of 0, the name, the number of axes, and each start and length.

    A length is -1 where the part extends along the whole axis.
    """
    numbers = (number for extent in extents for number in extent)
    return b"".join(
        [_unsigned(0), _text(name.encode()), _unsigned(len(extents)), *(_signed(n) for n in numbers)]
    )


def _unsigned(value: int) -> bytes:
    """Its length in bytes, then the bytes, most significant first; nothing for 0."""
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _text(text: bytes) -> bytes:
    """Escaped and terminated. UTF-8 has no 0xff, which would be escaped as well."""
    return text.replace(b"\0", b"\0\xff") + b"\0\1"


def _signed(value: int) -> bytes:
    """As many bytes as its leading ones (of a negative number: zeros) tell, most significant first."""
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << length) - 1) << 7 * length
    return (value & ((1 << 8 * length) - 1) ^ header).to_bytes(length, "big")
