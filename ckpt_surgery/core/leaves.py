"""Descriptions of the leaves of a checkpoint, without their data, and the regions in which they are read."""

import enum
from collections.abc import Iterator
from dataclasses import field

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, chunk_regions, grown
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.text import abridged, bytes_text, shortened, shown


class LeafKind(enum.StrEnum):
    """Kind of a leaf."""

    ARRAY = "array"
    """An array of any shape and dtype."""
    SCALAR = "scalar"
    """A number of Python's or NumPy's, with the shape ()."""
    STRING = "string"
    """A text."""
    PRNG_KEY = "prng_key"
    """A typed array of JAX's random keys."""
    EMPTY = "empty"
    """A place without a value: None, or a container without entries."""
    OBJECT = "object"
    """An object of a tree in memory that no checkpoint holds, such as a tensor of PyTorch."""


@frozen()
class Unreadable:
    """Reason why an array is listed but cannot be read."""

    why: str
    """The reason as a predicate: `is an array of dates`."""
    hint: str
    """Advice, as a sentence."""


MOST_OF_KEY = 120
"""Maximum number of characters of a key, and of what a leaf is, in the representation of a leaf."""


def array_repr(type_name: str, key: str, spec: ArraySpec) -> str:
    """`<LazyArray 'params/w' float32[8,4] 128 B>`: the representation of an array that is somewhere else."""
    return leaf_repr(type_name, key, f"{spec} {bytes_text(spec.nbytes)}")


def leaf_repr(type_name: str, key: str, what: str) -> str:
    """One short line without control characters, however long the key is and what the leaf is.

    An array that nobody has named has an empty key.
    """
    name = f" {shortened(repr(key), MOST_OF_KEY)}" if key else ""
    return f"<{type_name}{name} {shortened(shown(what), MOST_OF_KEY)}>"


@frozen()
class Leaf:
    """A description of one leaf of a checkpoint."""

    key: Key
    kind: LeafKind
    spec: ArraySpec | None = None
    """Shape and dtype of the array; of the raw data for a PRNG key. None for strings and empty nodes."""
    manifest: Manifest | None = field(default=None, repr=False)
    """The locations of the stored bytes. None for strings, empty nodes and leaves that are not written yet,
    and for arrays that are not stored on a regular grid of chunks: these can be read in any regions, but not
    linked."""
    sharding: str | None = None
    """The sharding that a jax.Array was saved with, in Orbax's JSON text."""
    prng_impl: str | None = None
    """Implementation of a typed PRNG key, such as `threefry2x32`. None for other leaves."""
    string: str | None = None
    """Value of a string leaf. None for other leaves."""
    empty: str | None = None
    """Kind of an empty node: `None`, `Dict`, `List`, `Tuple` or `NamedTuple`. None for other leaves."""
    type: str | None = None
    """Name of an object's type, such as `torch.Tensor`. None for other leaves."""
    unreadable: Unreadable | None = None
    """Why the array cannot be read, though it is listed. None where it can."""

    @property
    def stored_type(self) -> str | None:
        """Name of the quantized type that the array is stored in, such as `Q4_K`. None for all others."""
        manifest = self.manifest
        return manifest.codec.name if manifest is not None and manifest.codec.quantized else None

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory; 0 for leaves without an array."""
        return 0 if self.spec is None else self.spec.nbytes

    def __repr__(self) -> str:
        if self.spec is None:
            value = next((v for v in (self.string, self.empty, self.type) if v is not None), "")
            return leaf_repr("Leaf", self.key.text, f"{self.kind.value} {abridged(value)}")
        if self.kind is LeafKind.ARRAY:
            return array_repr("Leaf", self.key.text, self.spec)
        about = "" if self.prng_impl is None else f"({self.prng_impl})"
        return leaf_repr("Leaf", self.key.text, f"{self.kind.value}{about} {self.spec}")


def read_regions(leaf: Leaf, memory: int) -> Iterator[Region]:
    """Disjoint regions that cover the leaf; each has at most an eighth of `memory` bytes, or is one chunk."""
    assert leaf.spec is not None, "only leaves with an array are read"
    return chunk_regions(leaf.spec.shape, read_block(leaf, memory))


def read_block(leaf: Leaf, memory: int) -> Shape:
    """The shape of the regions of `read_regions`: of at most 32 MiB, unless a single chunk is larger."""
    assert leaf.spec is not None
    unit: Shape = (1,) * leaf.spec.ndim  # one element if none is encoded
    if leaf.manifest is not None and leaf.manifest.codec.name != "raw":
        unit = leaf.manifest.chunk_shape
    unit = tuple(min(length, max(1, n)) for length, n in zip(unit, leaf.spec.shape, strict=True))
    return grown(unit, leaf.spec.shape, min(32 << 20, memory // 8) // leaf.spec.dtype.itemsize)
