"""The two checkpoints that are compared, each leaf read once, in blocks, within a memory budget."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.leaves import Leaf, LeafKind, read_block
from ckpt_surgery.functions.arrays import Array, Node, Read, Series
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.inference.expressions.expression_text import keys_and_value
from ckpt_surgery.inference.expressions.formations import Value
from ckpt_surgery.inference.expressions.source_expressions import SourceExpression
from ckpt_surgery.inference.keys.grids import Grid, Places, alike, grids, places_of
from ckpt_surgery.inference.values.fingerprints import (
    Fingerprint,
    Limits,
    common_limits,
    fingerprints,
    kind_of,
)
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Scope
from ckpt_surgery.planner.cutting import side_by_side

SOURCE = "source"
"""Name of the source in drafts."""
AT_ONCE = 256 << 20
"""Maximum bytes for evaluating one region, however large the budget: smaller regions are not slower."""


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints."""

    leaves: Mapping[str, Leaf]
    """Every leaf, by the text of its key."""
    fingerprints: Mapping[str, Mapping[DType, Fingerprint]] = field(default_factory=dict)
    """Fingerprints of the leaves that were read, by dtype: the own one, and those that values were rounded
    to."""
    read: Callable[[Leaf, Region], np.ndarray] | None = None
    """Reads a region of a leaf; None where there are no values."""
    memory: int = 1 << 30
    """Budget in bytes for evaluating expressions over its values."""

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        """The grids of all keys."""
        return grids(self.leaves)

    @cached_property
    def places(self) -> Places:
        """The grid of every key, and its indices there."""
        return places_of(self.grids)

    def alike(self, keys: Container[str] | None = None) -> tuple[Grid, ...]:
        """These leaves, by default all, as grids of one kind, one shape and one dtype."""
        return alike(self.leaves, self.grids, keys)

    def only(self, keys: Iterable[str]) -> "Side":
        """The side with these leaves alone."""
        leaves = {key: self.leaves[key] for key in keys}
        known = {key: self.fingerprints[key] for key in leaves if key in self.fingerprints}
        return replace(self, leaves=leaves, fingerprints=known)

    def is_array(self, key: str) -> bool:
        """True if a leaf is an array or a number, which can be moved about and computed with."""
        return self.leaves[key].kind in (LeafKind.ARRAY, LeafKind.SCALAR)

    def dtype_of(self, key: str) -> DType:
        """The dtype of an array of numbers."""
        spec = self.leaves[key].spec
        assert spec is not None, "only arrays have fingerprints"
        return spec.dtype

    def sums(self, key: str) -> Fingerprint:
        """The fingerprint of an array that was read, by its own dtype."""
        return self.fingerprints[key][self.dtype_of(key)]

    def known(self, key: str) -> Fingerprint | None:
        """The fingerprint of an array by its own dtype; None for what was not read, or is no array."""
        return self.sums(key) if key in self.fingerprints and self.is_array(key) else None

    def repeats(self, key: str) -> bool:
        """True if an array is known to repeat one value."""
        known = self.known(key)
        return known is not None and known.constant

    def limits(self, keys: Iterable[str]) -> Limits:
        """The least and the largest value of these arrays; None if any has no such values."""
        return common_limits(known.limits if known else None for known in map(self.known, keys))

    def as_dtype(self, dtype: DType) -> dict[str, Fingerprint]:
        """The fingerprints after a cast to this dtype, of all leaves of its kind.

        Integers are one kind, with a sign or without: numbers that both can hold have equal hashes.
        """
        kinds = ("i", "u") if kind_of(dtype) in ("i", "u") else (kind_of(dtype),)
        alike = (key for key in self.fingerprints if kind_of(self.dtype_of(key)) in kinds)
        return {key: self.fingerprints[key].get(dtype, self.sums(key)) for key in alike if self.is_array(key)}


def equal_leaves(one_side: Side, one: Leaf, other_side: Side, other: Leaf) -> bool:
    """True if two leaves are known to be the same: arrays by the sums of all slices along every axis."""
    if (one.kind, one.spec, one.string, one.empty) != (other.kind, other.spec, other.string, other.empty):
        return False
    if one.spec is None:
        return True
    if one.key.text not in one_side.fingerprints or other.key.text not in other_side.fingerprints:
        return False
    here, there = one_side.sums(one.key.text), other_side.sums(other.key.text)
    return here.total == there.total and all(map(np.array_equal, here.axes, there.axes))


def fingerprints_of(
    leaves: Mapping[str, Leaf],
    read: Callable[[Leaf, Region], np.ndarray],
    memory: int,
    roundings: Sequence[DType] = (),
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, dict[DType, Fingerprint]]:
    """The fingerprints of all arrays of numbers. `roundings`: dtypes to which values are rounded, too.

    `progress` is called with the bytes of each leaf that was read. Raises SourceError.
    """
    known = {}
    for key, leaf in leaves.items():
        if leaf.spec is not None and kind_of(leaf.spec.dtype):
            known[key] = fingerprints(partial(read, leaf), leaf.spec, read_block(leaf, memory), roundings)
            progress(leaf.nbytes)
    return known


def fingerprint_of(expression: SourceExpression, side: Side, dtype: DType) -> Fingerprint:
    """The fingerprint of an expression over leaves of one side, after a cast to a dtype."""
    keys, value = keys_and_value(expression)
    node = node_of(value, [side.leaves[key] for key in keys])
    block = side_by_side([node], budget(side))
    known = fingerprints(lambda region: evaluated(node, region, side), node.spec, block, [dtype])
    return known.get(dtype, known[node.spec.dtype])


def node_of(value: Value, leaves: Sequence[Leaf]) -> Node:
    """Evaluate an expression, without data, over these leaves of the source.

    Raises SurgeryError if it has no result for their shapes and dtypes.
    """
    arrays = [Array(Read(SOURCE, leaf), leaf.spec.dtype) for leaf in leaves if leaf.spec is not None]
    assert len(arrays) == len(leaves), "only arrays are computed with"
    names: Mapping[str, Any] = {"x": arrays[0], "xs": Series(tuple(arrays), tuple(range(len(arrays))))}
    result = parse(str(value)).evaluate(Scope(names, leaves[0].key.text))
    assert isinstance(result, Array), "values of formations are arrays"
    return result.rounded_to_declared()


def budget(side: Side) -> int:
    """Bytes that evaluating a region of a value over the leaves of one side may take."""
    return min(side.memory, AT_ONCE)


def evaluated(node: Node, region: Region, side: Side) -> np.ndarray:
    """The elements of one region of a value over the leaves of one side."""
    assert side.read is not None, "a side whose values are not known is not read"
    read = side.read
    return evaluate(node, region, lambda _, leaf, part: read(leaf, part))
