"""Reading the values of both checkpoints, within a budget of memory: each leaf once, in blocks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf, read_block
from ckpt_surgery.functions.arrays import Array, Node, Read, Series
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.inference.expressions.formations import Value
from ckpt_surgery.inference.expressions.holder_text import written
from ckpt_surgery.inference.expressions.holders import Holder
from ckpt_surgery.inference.values.fingerprints import Fingerprint, fingerprints, kind_of, least_common
from ckpt_surgery.inference.values.sides import Side
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Scope
from ckpt_surgery.planner.cutting import side_by_side

SOURCE = "source"
"""Name of the source in drafts."""
AT_ONCE = 256 << 20
"""Bytes that evaluating one region takes at most, of a larger budget: smaller regions are not slower."""


def fingerprints_of(
    leaves: Mapping[str, Leaf],
    read: Callable[[Leaf, Region], np.ndarray],
    memory: int,
    roundings: Sequence[np.dtype[Any]] = (),
    progress: Callable[[int], None] | None = None,
) -> dict[str, dict[np.dtype[Any], Fingerprint]]:
    """The fingerprints of all arrays of numbers. `roundings`: dtypes to which values are rounded, too.

    `progress` is called with the bytes of each leaf that was read. Raises SourceError.
    """
    found = {}
    for key, leaf in leaves.items():
        spec = leaf.spec
        if spec is None or not kind_of(spec.dtype):
            continue
        wanted = least_common(roundings, spec.dtype)
        block = read_block(leaf, memory)
        found[key] = fingerprints(partial(read, leaf), spec, block, wanted)
        if progress is not None:
            progress(leaf.nbytes)
    return found


def fingerprint_of(holder: Holder, side: Side, dtype: np.dtype[Any]) -> Fingerprint:
    """The fingerprint of an expression over leaves of one side, as it is after a cast to a dtype."""
    keys, value = written(holder)
    node = node_of(value, [side.leaves[key] for key in keys])
    spec = node.spec
    wanted = [] if spec.dtype == dtype else least_common([dtype], spec.dtype)
    block = side_by_side([node], budget(side))
    found = fingerprints(lambda region: evaluated(node, region, side), spec, block, wanted)
    return found[dtype] if dtype in found else found[spec.dtype]


def node_of(value: Value, leaves: Sequence[Leaf]) -> Node:
    """What an expression is for these leaves of the source.

    Raises SurgeryError where it has no result for their shapes and dtypes.
    """
    arrays = [_array(leaf) for leaf in leaves]
    names: Mapping[str, Any] = {"x": arrays[0], "xs": Series(tuple(arrays), tuple(range(len(arrays))))}
    found = parse(str(value)).evaluate(Scope(names, leaves[0].key.text))
    assert isinstance(found, Array), "values of formations are arrays"
    return found.rounded_to_declared()


def _array(leaf: Leaf) -> Array:
    assert leaf.spec is not None, "only arrays are computed with"
    return Array(Read(SOURCE, leaf), leaf.spec.dtype)


def budget(side: Side) -> int:
    """Bytes that evaluating a region of a value over the leaves of one side may take."""
    return min(side.memory, AT_ONCE)


def evaluated(node: Node, region: Region, side: Side) -> np.ndarray:
    """The elements of one region of a value over the leaves of one side."""
    assert side.read is not None, "a side whose values are not known is not read"
    read = side.read
    return evaluate(node, region, lambda _, leaf, part: read(leaf, part))
