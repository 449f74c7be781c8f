"""The keys of the parts of partitioned variables in an index.

Format: tensorflow/tensorflow, core/util/saved_tensor_slice_util.cc and core/lib/strings/ordered_code.cc.
"""

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
    """The number of bytes, then the bytes, most significant first; 0 has none."""
    length = (value.bit_length() + 7) // 8
    return bytes([length]) + value.to_bytes(length, "big")


def _text(text: bytes) -> bytes:
    """A text, escaped and terminated. UTF-8 has no 0xff, which would have to be escaped as well."""
    return text.replace(b"\0", b"\0\xff") + b"\0\1"


def _signed(value: int) -> bytes:
    """A number with as many leading ones (zeros if negative) as bytes, most significant byte first."""
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << length) - 1) << 7 * length
    return (value & ((1 << 8 * length) - 1) ^ header).to_bytes(length, "big")
