"""The nodes of a MessagePack document as Flax writes them: values, and arrays by their places in the file."""

from dataclasses import dataclass
from typing import TypeAlias

from ckpt_surgery.core.arrays import ArraySpec

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
