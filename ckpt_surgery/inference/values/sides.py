"""The two checkpoints that are compared, and what has been read of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.inference.keys.grids import Grid, grids
from ckpt_surgery.inference.values.fingerprints import Fingerprint, unsigned_kind

Fingerprints = Mapping[str, Mapping[np.dtype[Any], Fingerprint]]
"""By key and by dtype: the leaf's own dtype, and those that its values were rounded to."""


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints."""

    leaves: Mapping[str, Leaf]
    """Every leaf, by the text of its key."""
    fingerprints: Fingerprints = field(default_factory=dict)
    """Of the leaves whose values were read."""
    read: Callable[[Leaf, Region], np.ndarray] | None = None
    """Reads a region of a leaf; None where there are no values."""
    memory: int = 1 << 30
    """Budget in bytes for evaluating expressions over its values."""

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The grids of all keys."""
        return grids(self.leaves)

    def own(self, dtype: np.dtype[Any]) -> dict[str, Fingerprint]:
        """The fingerprints of the leaves that have this dtype."""
        every = self.fingerprints.items()
        return {k: known[dtype] for k, known in every if self.dtype_of(k) == dtype and self.is_array(k)}

    def is_array(self, key: str) -> bool:
        """Whether a leaf is an array or a number, which can be moved about and computed with."""
        return self.leaves[key].kind in (LeafKind.ARRAY, LeafKind.SCALAR)

    def dtype_of(self, key: str) -> np.dtype[Any]:
        """The dtype of an array of numbers."""
        spec = self.leaves[key].spec
        assert spec is not None, "only arrays have fingerprints"
        return spec.dtype

    def as_dtype(self, dtype: np.dtype[Any]) -> dict[str, Fingerprint]:
        """The fingerprints of all leaves that a cast takes to this dtype, as they are after it."""
        found = ((key, self.after_cast(key, dtype)) for key in self.fingerprints)
        return {key: one for key, one in found if one is not None}

    def after_cast(self, key: str, dtype: np.dtype[Any]) -> Fingerprint | None:
        """The fingerprint of a leaf after a cast to a dtype; None where that changes its kind, or is unknown.

        Integers are one kind, with a sign or without: those that both have are the same.
        """
        known = self.fingerprints.get(key)
        if known is None or not self.is_array(key):
            return None
        own = self.dtype_of(key)
        if dtype in known or unsigned_kind(own) != unsigned_kind(dtype):
            return known.get(dtype)
        return known[own]


def equal_values(one_side: Side, one: Leaf, other_side: Side, other: Leaf) -> bool:
    """Whether two leaves of one spec have the same sums, in the same order along every axis."""
    a = one_side.fingerprints.get(one.key.text)
    b = other_side.fingerprints.get(other.key.text)
    if a is None or b is None or one.spec is None:
        return False
    mine, theirs = a[one.spec.dtype], b[one.spec.dtype]
    return mine.total == theirs.total and all(map(np.array_equal, mine.axes, theirs.axes))
