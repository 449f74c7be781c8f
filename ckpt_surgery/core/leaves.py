"""The leaves of a checkpoint, without their data."""

import enum
from dataclasses import field

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.manifests import Manifest


class LeafKind(enum.StrEnum):
    ARRAY = "array"
    SCALAR = "scalar"
    STRING = "string"
    PRNG_KEY = "prng_key"
    EMPTY = "empty"


@frozen()
class Leaf:
    """One leaf of a checkpoint, without its data."""

    key: Key
    kind: LeafKind
    spec: ArraySpec | None = None
    """Shape and dtype; for a PRNG key, of its raw data. None for strings and empty nodes."""
    manifest: Manifest | None = field(default=None, repr=False)
    """Where the bytes are. None for strings, empty nodes and leaves that are yet to be written, and for
    arrays that are no grid of chunks: those are read in regions of any form, and cannot be linked."""
    sharding: str | None = None
    """Orbax's JSON text of the sharding that a jax.Array was saved with."""
    prng_impl: str | None = None
    """`threefry2x32`, …: of a typed PRNG key."""
    string: str | None = None
    """The value of a string leaf."""
    empty: str | None = None
    """What an empty leaf is: `None`, `Dict`, `List`, `Tuple`, `NamedTuple`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory; 0 without one."""
        return 0 if self.spec is None else self.spec.nbytes
