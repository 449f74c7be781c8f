"""Reading MessagePack documents as Flax writes them: the whole tree, with arrays by their places in the file.

`read_tree(file)` reads a document that fills a file, `read_value(file, start, end)` one that others follow,
`first_path(file)` only the path of its first leaf. Nodes are

- `dict[str | int, Node]` and `list[Node]`: maps and arrays of MessagePack. Flax turns lists and tuples into
  maps with the keys `'0'`, `'1'`, …; those stay maps here;
- `ArrayAt` and `BytesAt`: NumPy arrays and scalars, also in pieces, and byte strings, by their places;
- `str`, `bool`, `int`, `float`, `complex`, `None`: themselves.

Elements and byte strings are skipped and never read, so that the time does not depend on their size. What is
damaged, or too deep, is a SourceError with the path.

Source of the format: https://github.com/msgpack/msgpack/blob/master/spec.md, and flax 0.12.8's
`flax.serialization`: extension type 1 is an array, 2 a complex number, 3 a NumPy scalar; the payload of 1 and
3 is the MessagePack array (shape, dtype name, elements in C order), little endian. Larger arrays are maps
`{'__msgpack_chunked_array__': True, 'shape': {'0': …}, 'chunks': {'0': array of one axis, …}}`.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.limits import MOST_AXES, beyond_memory
from ckpt_surgery.storage.failures import DAMAGED, damaged, with_path
from ckpt_surgery.storage.reading import OpenFile, PagedFile

CHUNKED = "__msgpack_chunked_array__"
"""Key that marks a map as an array in pieces."""
ARRAY, COMPLEX, SCALAR = 1, 2, 3
"""Numbers of Flax's extension types: an array, a complex number, a NumPy scalar."""


@dataclass(frozen=True, slots=True)
class BytesAt:
    """A byte string, by its place in the file."""

    offset: int
    """Offset from the beginning of the file."""
    length: int


@dataclass(frozen=True, slots=True)
class ArrayAt:
    """An array, and where its elements are."""

    spec: ArraySpec
    pieces: tuple[BytesAt, ...]
    """The pieces of the array in C order, each of whole elements; one unless Flax cut the array."""
    scalar: bool = False
    """Whether it was a NumPy scalar, not an array without axes."""


Plain: TypeAlias = str | bool | int | float | complex | None

Node: TypeAlias = "dict[str | int, Node] | list[Node] | ArrayAt | BytesAt | Plain"


# --- headers ----------------------------------------------------------------------------------------------

PAGE_BYTES = 4096
"""Bytes read in one call; between arrays there are hardly more than a hundred bytes of headers."""


class HeadKind(enum.Enum):
    """Content that a header announces, in the words of messages."""

    PLAIN = "a number, a boolean or nil"
    TEXT = "a string"
    BYTES = "a byte string"
    LIST = "a list"
    MAP = "a map"
    EXTENSION = "an extension"


class ValueHead(NamedTuple):
    """A header that has been read."""

    kind: HeadKind
    value: Any
    """The value of PLAIN, the number of members of LIST and MAP, the number of bytes that follow any other;
    the byte with an extension's type is not counted."""


_SHORT = {
    **{n % 256: ValueHead(HeadKind.PLAIN, n) for n in range(-32, 128)},
    **{0x80 + n: ValueHead(HeadKind.MAP, n) for n in range(16)},
    **{0x90 + n: ValueHead(HeadKind.LIST, n) for n in range(16)},
    **{0xA0 + n: ValueHead(HeadKind.TEXT, n) for n in range(32)},
    0xC0: ValueHead(HeadKind.PLAIN, None),
    0xC2: ValueHead(HeadKind.PLAIN, False),
    0xC3: ValueHead(HeadKind.PLAIN, True),
    **{0xD4 + n: ValueHead(HeadKind.EXTENSION, 2**n) for n in range(5)},
}
"""Headers of one byte."""
_NUMBERS = {0xCA + i: Struct(">" + code) for i, code in enumerate("fdBHIQbhiq")}
_SIZED = {
    first + i: (kind, Struct(">" + code))
    for first, kind, codes in (
        *((0xC4, HeadKind.BYTES, "BHI"), (0xC7, HeadKind.EXTENSION, "BHI"), (0xD9, HeadKind.TEXT, "BHI")),
        *((0xDC, HeadKind.LIST, "HI"), (0xDE, HeadKind.MAP, "HI")),
    )
    for i, code in enumerate(codes)
}


# --- documents ------------------------------------------------------------------------------------------

MOST_DEPTH = 100
"""Deepest nesting of containers that is read."""
MOST_VALUES = 2**19
"""Largest number of values in one document: far more than any checkpoint has, and read in about a second."""
MOST_TEXT_BYTES = 2**24
"""Longest string that is read."""
T5X_ROOT = {"version", "optimizer"}
"""All names at the root of a T5X file; files of version 0 have others."""


def read_tree(file: OpenFile) -> Node:
    """The document that fills a file."""
    node, end = read_value(file, 0, file.stat.size)
    if end != file.stat.size:
        with with_path(file.path):
            raise damaged(f"the document ends at byte {end}, and {file.stat.size - end} more bytes follow")
    return node


def read_value(file: OpenFile, start: int, end: int) -> tuple[Node, int]:
    """The document that begins at `start`, and the offset where it ends, which is at most `end`."""
    with with_path(file.path):
        walk = _Walk(file, start, end)
        return walk.value(0), walk.at


def has_t5x_root(file: OpenFile) -> bool:
    """Whether a file has T5X's root: it is read until a name is another one. False for damage before that."""
    walk = _Walk(file, 0, file.stat.size)
    seen: set[str | int] = set()
    try:
        kind, count = walk.head()
        for _ in range(count if kind is HeadKind.MAP else 0):
            seen.add(walk.key())
            if not seen <= T5X_ROOT:
                return False
            walk.value(1)
    except SourceError:
        return False
    return seen == T5X_ROOT


def first_path(file: OpenFile) -> list[str] | None:
    """The keys on the way to the first node that is not a map with members; None for other documents."""
    with with_path(file.path):
        walk = _Walk(file, 0, file.stat.size)
        head = walk.head()
        if head.kind is not HeadKind.MAP or (not head.value and file.stat.size > walk.at):
            return None
        path: list[str] = []
        while head.kind is HeadKind.MAP and head.value and len(path) < MOST_DEPTH:
            path.append(str(walk.key()))
            head = walk.head()
        if head.kind is HeadKind.EXTENSION:
            walk.extension(head.value)
        return path


def starts_stream(file: OpenFile) -> bool:
    """Whether a file begins with a stream's record: a list of a key, text or list, and a byte string."""
    walk = _Walk(file, 0, file.stat.size)
    try:
        key = walk.value(1) if walk.head() == (HeadKind.LIST, 2) else None
        valid = isinstance(key, str | list) and bool(key) and all(type(part) in (str, int) for part in key)
        return valid and walk.head().kind is HeadKind.BYTES
    except SourceError:
        return False


class _Walk:
    """Reads the headers and nodes of a document from front to back."""

    def __init__(self, file: OpenFile, start: int, end: int):
        self._pages = PagedFile(file, PAGE_BYTES, kept=2)
        self.at = start
        """Offset of the next byte in the file."""
        self._end = end
        self._path: list[str] = []
        """Keys of the containers around the next byte."""
        self._values = 0

    def wrong(self, what: str, hint: str = DAMAGED) -> SourceError:
        """The error to raise, with the key and the offset."""
        key = "/".join(self._path)
        place = f"`{shown(key[:200])}` (byte {self.at})" if key else f"byte {self.at}"
        return SourceError(f"{place}: {shown(what)}", hint=hint)

    def take(self, count: int) -> bytes:
        """The next few bytes."""
        if count > self._end - self.at:
            raise self.wrong(f"{count} bytes belong here, and {self._end - self.at} are left")
        self.at += count
        return self._pages.read(self.at - count, count)

    def head(self) -> ValueHead:
        """Read a header. Raises SourceError where it counts more than the bytes that are left can hold."""
        first = self.take(1)[0]
        if first in _SHORT:
            head = _SHORT[first]
        elif first in _NUMBERS:
            number = _NUMBERS[first]
            head = ValueHead(HeadKind.PLAIN, number.unpack(self.take(number.size))[0])
        elif first in _SIZED:
            kind, size = _SIZED[first]
            head = ValueHead(kind, size.unpack(self.take(size.size))[0])
        else:
            raise self.wrong(f"the byte {first:#x} begins nothing in MessagePack")
        kind, count = head
        # A member of a map takes two bytes at least.
        least = 0 if kind is HeadKind.PLAIN else 2 * count if kind is HeadKind.MAP else count
        if least > self._end - self.at:
            unit = "members" if kind in (HeadKind.LIST, HeadKind.MAP) else "bytes"
            left = f"{self._end - self.at} bytes are left"
            raise self.wrong(f"{kind.value} says that it has {count} {unit}, and {left}")
        return head

    def expect(self, what: str, *kinds: HeadKind) -> int:
        """Read a header of one of these kinds, and return its size. `what`: name of the value in messages."""
        kind, size = self.head()
        if kind not in kinds:
            raise self.wrong(f"{what}: {kind.value} where {kinds[0].value} belongs")
        return int(size)

    def value(self, depth: int) -> Node:
        """Read the next node, whatever it is."""
        self._values += 1
        if self._values > MOST_VALUES:
            raise self.wrong(f"there are more than {MOST_VALUES} values, which no checkpoint has")
        kind, size = self.head()
        match kind:
            case HeadKind.PLAIN:
                plain: Node = size
                return plain
            case HeadKind.TEXT:
                return self._text(size)
            case HeadKind.BYTES:
                return self._skipped(size)
            case HeadKind.EXTENSION:
                return self.extension(size)
        if depth >= MOST_DEPTH:
            raise self.wrong(f"it is nested more than {MOST_DEPTH} deep")
        if kind is HeadKind.MAP:
            return self._map(size, depth)
        members: list[Node] = []
        for i in range(size):
            self._path.append(str(i))
            members.append(self.value(depth + 1))
            self._path.pop()
        return members

    def _text(self, length: int) -> str:
        if length > MOST_TEXT_BYTES:
            raise self.wrong(f"a string has {length} bytes; {MOST_TEXT_BYTES} is the limit")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.wrong(f"a string is not valid UTF-8: {error.reason}") from error

    def _skipped(self, length: int) -> BytesAt:
        """Skip bytes, which a header has checked to exist."""
        place = BytesAt(self.at, length)
        self.at += length
        return place

    def _map(self, count: int, depth: int) -> Node:
        members: dict[str | int, Node] = {}
        for _ in range(count):
            key = self.key()
            self._path.append(str(key))
            if key in members:
                raise self.wrong("this key comes twice")
            members[key] = self.value(depth + 1)
            self._path.pop()
        return self._joined(members) if CHUNKED in members else members

    def key(self) -> str | int:
        """Read the key of a map's next member."""
        kind, size = self.head()
        if kind is HeadKind.TEXT:
            return self._text(size)
        if kind is HeadKind.PLAIN and type(size) is int:
            return size
        kind_text = repr(size) if kind is HeadKind.PLAIN else kind.value
        raise self.wrong(f"a key is {kind_text} where a string or an integer belongs")

    def extension(self, length: int) -> Node:
        """Read the contents of an extension after its header."""
        code = self.take(1)[0]
        end = self.at + length
        if length > self._end - self.at:
            raise self.wrong(f"an extension says that it has {length} bytes, one more than are left")
        if code not in (ARRAY, COMPLEX, SCALAR):
            raise self.wrong(f"it has the extension type {code}, which Flax does not use")
        if code == COMPLEX:
            parts = self._numbers(2, "a complex number")
            if len(parts) != 2:
                raise self.wrong(f"a complex number has {len(parts)} parts")
            node: Node = complex(*parts)
        else:
            node = self._array(end, code == SCALAR)
        if self.at != end:
            raise self.wrong(f"its extension ends at byte {end}, but its contents do not")
        return node

    def _numbers(self, most: int, what: str) -> list[int | float]:
        count = self.expect(what, HeadKind.LIST)
        if count > most:
            raise self.wrong(f"{what}: a list of {count}, where {most} is the limit")
        heads = [self.head() for _ in range(count)]
        if any(head.kind is not HeadKind.PLAIN or type(head.value) not in (int, float) for head in heads):
            raise self.wrong(f"{what}: not all numbers")
        return [head.value for head in heads]

    def _array(self, end: int, scalar: bool) -> ArrayAt:
        """The contents of an array's extension, which ends at `end`."""
        if self.expect("an array", HeadKind.LIST) != 3:
            raise self.wrong("an array is not a list of shape, type and elements")
        shape = self._numbers(MOST_AXES, "the shape of an array")
        length = self.expect("the type of an array", HeadKind.TEXT, HeadKind.BYTES)
        name = self.take(min(length, 100)).decode("utf-8", "backslashreplace")
        if name not in DTYPES:
            raise self.wrong(f"it has the type `{name}`, which is not supported", "Store it as another type.")
        spec = self._spec(shape, DTYPES[name])
        length = self.expect("the elements of an array", HeadKind.BYTES, HeadKind.TEXT)
        if length > end - self.at:
            raise self.wrong(f"its elements have {length} bytes, and {end - self.at} are left of the array")
        if length != spec.nbytes:
            raise self.wrong(f"it is {spec}, which takes {spec.nbytes} bytes, but it has {length}")
        return ArrayAt(spec, (self._skipped(length),), scalar and not spec.shape)

    def _spec(self, shape: list[Any], dtype: np.dtype[Any]) -> ArraySpec:
        if not all(type(length) is int and length >= 0 for length in shape):
            raise self.wrong(f"it has the shape {repr(shape)}, not all of it integers from 0 on")
        if beyond_memory(shape, dtype.itemsize):
            raise self.wrong(f"it has a shape beyond all memory: {shape}")
        return ArraySpec(tuple(shape), dtype)

    def _joined(self, members: Mapping[str | int, Node]) -> ArrayAt:
        """The array that Flax cut into pieces, which are the members of a map."""
        shape, pieces = self._counted(members, "shape"), self._counted(members, "chunks")
        arrays = [piece for piece in pieces if isinstance(piece, ArrayAt) and piece.spec.ndim == 1]
        dtypes = {array.spec.dtype for array in arrays}
        if len(arrays) != len(pieces) or len(dtypes) != 1 or len(shape) > MOST_AXES:
            raise self.wrong("an array in pieces is not made of arrays of one axis and one type")
        spec = self._spec(shape, dtypes.pop())
        size = sum(array.spec.size for array in arrays)
        if size != spec.size:
            raise self.wrong(f"it is {spec}, which has {spec.size} elements, but its pieces have {size}")
        return ArrayAt(spec, tuple(place for array in arrays for place in array.pieces))

    def _counted(self, members: Mapping[str | int, Node], name: str) -> list[Node]:
        """A tuple as Flax stores it: a map with the keys `'0'`, `'1'`, …, in any order."""
        parts = members.get(name)
        if not isinstance(parts, dict) or set(parts) != {str(i) for i in range(len(parts))}:
            raise self.wrong(f"an array in pieces needs `{name}` with the keys 0, 1, …")
        return [parts[str(i)] for i in range(len(parts))]
