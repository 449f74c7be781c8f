"""The values in the metadata of a GGUF file, as JSON has them.

Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A text is a length of 8 bytes
and so many bytes of UTF-8; an array is the number of a type, a length of 8 bytes, and its values.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.gguf.cursor import Cursor
from ckpt_surgery.storage.failures import DAMAGED

MOST_NAME_BYTES = 2**16 - 1
"""Longest name of an entry by the format; ggml itself allows tensors 63 bytes."""
MOST_TEXT_BYTES = 2**16
"""Longest text in the metadata that is read; chat templates have some thousand bytes."""
MOST_ITEMS = 256
"""Longest array in the metadata that is read: an entry for each layer. The words of a tokenizer are more."""
MOST_DEPTH = 4
"""Arrays within arrays; ggml itself reads none."""

_NUMBERS: Mapping[int, tuple[str, str]] = {
    0: ("B", "uint8"),
    1: ("b", "int8"),
    2: ("H", "uint16"),
    3: ("h", "int16"),
    4: ("I", "uint32"),
    5: ("i", "int32"),
    6: ("f", "float32"),
    7: ("B", "bool"),
    10: ("Q", "uint64"),
    11: ("q", "int64"),
    12: ("d", "float64"),
}
"""Types of numbers in the metadata: letters of `struct`, and names."""
UINT32 = 4
_BOOL, _TEXT, _ARRAY = 7, 8, 9


def number(cursor: Cursor, letter: str) -> Any:
    """The number that comes next, by its letter of `struct`."""
    return struct.unpack(f"<{letter}", cursor.take(struct.calcsize(f"<{letter}"), "bytes"))[0]


def name_text(cursor: Cursor) -> str:
    """The name that comes next."""
    length = number(cursor, "Q")
    cursor.check(length, "bytes of text")
    if length > MOST_NAME_BYTES:
        raise SourceError(f"it has a name of {length} bytes; {MOST_NAME_BYTES} is the limit", hint=DAMAGED)
    return _decoded(cursor.take(length, "bytes of text"))


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"its text {text[:100]!r} is not UTF-8", hint=DAMAGED) from error


def value(cursor: Cursor, name: str, type: int) -> Any:
    """The value that comes next, as JSON has it: for what is long, its type and length.

    `name` is that of the entry, for messages; `type` the number of its type.
    """
    if type == _TEXT:
        return _text_value(cursor)
    if type == _ARRAY:
        return _array(cursor, name, 0)
    return _numbers(cursor, name, type, 1)[0]


def _text_value(cursor: Cursor) -> Any:
    length = number(cursor, "Q")
    if length > MOST_TEXT_BYTES:
        cursor.skip(length, "bytes of text")
        return _long("string", length)
    return _decoded(cursor.take(length, "bytes of text"))


def _array(cursor: Cursor, name: str, depth: int) -> Any:
    type, count = number(cursor, "I"), number(cursor, "Q")
    if depth == MOST_DEPTH:
        raise SourceError(f"`{shown(name[:200])}` has arrays more than {MOST_DEPTH} deep", hint=DAMAGED)
    if type == _ARRAY:
        cursor.check(count, "arrays", 12)
        for _ in range(count):
            _array(cursor, name, depth + 1)
        return _long("array", count)
    if type == _TEXT:
        return _texts(cursor, count)
    if count <= MOST_ITEMS:
        return _numbers(cursor, name, type, count)
    letter, type_name = _number_type(name, type)
    cursor.check(count, "numbers", struct.calcsize(letter))
    cursor.skip(count * struct.calcsize(letter), "bytes of numbers")
    return _long(type_name, count)


def _texts(cursor: Cursor, count: int) -> Any:
    cursor.check(count, "texts", 8)
    if count > MOST_ITEMS:
        cursor.skip_texts(count)
        return _long("string", count)
    return [_text_value(cursor) for _ in range(count)]


def _long(type: str, length: int) -> dict[str, Any]:
    """What stands for a long array, or for the bytes of a long text."""
    return {"type": type, "length": length}


def _number_type(name: str, type: int) -> tuple[str, str]:
    if type not in _NUMBERS:
        raise SourceError(f"`{shown(name[:200])}` has a value of the unknown type {type}", hint=DAMAGED)
    return _NUMBERS[type]


def _numbers(cursor: Cursor, name: str, type: int, count: int) -> list[Any]:
    letter, type_name = _number_type(name, type)
    stored = cursor.take(count * struct.calcsize(letter), "bytes of numbers")
    values = struct.unpack(f"<{count}{letter}", stored)
    if type == _BOOL:
        if max(values, default=0) > 1:
            raise SourceError(f"`{shown(name[:200])}` is a boolean with the byte {max(values)}", hint=DAMAGED)
        return list(map(bool, values))
    return [_finite(value, type_name) for value in values] if type_name.startswith("float") else list(values)


def _finite(value: float, type_name: str) -> float | str:
    """A float as JSON has it: `1e-05` and not what float32 has in its place; NaN and infinities as text."""
    if not math.isfinite(value):
        return str(value)
    return float(str(np.float32(value))) if type_name == "float32" else value
