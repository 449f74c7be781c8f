"""Complete a target from its plan: shapes, dtypes and kinds that the target leaves to the source."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.live.results import is_narrowed
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.live.wanted import Wanted
from ckpt_surgery.planner.plan import Plan, Step


def settled(tree: LiveTree, plan: Plan, sources: Mapping[str, Source]) -> LiveTree:
    """Replace each `Wanted` of a target that the plan gives a value by a description of this value.

    Arrays of JAX become ShapeDtypeStructs. Where the target has `...`, arrays are of NumPy if those that they
    are made of are, or if JAX would narrow them. A leaf of a tree that is only moved stays the same array.
    """
    leaves, values = dict(tree.leaves), dict(tree.values)
    for step in plan.steps:
        text = step.leaf.key.text
        if isinstance(value := values[text], Wanted):
            leaves[text], values[text] = step.leaf, _settled(value, step, sources)
    return replace(tree, leaves=leaves, values=values)


def struct_of(leaf: Leaf) -> Any:
    """`jax.ShapeDtypeStruct` of an array, or of typed PRNG keys."""
    import jax

    assert leaf.spec is not None
    struct = jax.ShapeDtypeStruct(leaf.spec.shape, leaf.spec.dtype)  # type: ignore[no-untyped-call]
    if leaf.kind is not LeafKind.PRNG_KEY:
        return struct
    wrap: Callable[[Any], Any] = lambda data: jax.random.wrap_key_data(data, impl=leaf.prng_impl)  # noqa: E731
    return jax.eval_shape(wrap, struct)


def _settled(wanted: Wanted, step: Step, sources: Mapping[str, Source]) -> Any:
    import jax

    if wanted.type is jax.Array:
        return struct_of(step.leaf)
    if wanted.type is not None:
        return wanted
    given = values_read(step, sources)
    if isinstance(step.value, Read) and given:
        (moved,) = given
        if isinstance(moved, np.ndarray | np.generic | bool | int | float):
            return moved
        if isinstance(moved, jax.Array) and moved.committed:
            return jax.ShapeDtypeStruct(moved.shape, moved.dtype, sharding=moved.sharding)  # type: ignore[no-untyped-call]
    of_numpy = bool(given) and all(isinstance(value, np.ndarray | np.generic) for value in given)
    if step.leaf.kind is LeafKind.SCALAR and of_numpy:
        return Wanted(np.generic, step.leaf.kind)
    if step.leaf.kind not in (LeafKind.ARRAY, LeafKind.PRNG_KEY):
        return None  # as without a target
    if of_numpy or is_narrowed(step.leaf):
        return Wanted(np.ndarray, step.leaf.kind)
    return struct_of(step.leaf)


def values_read(step: Step, sources: Mapping[str, Source]) -> Sequence[Any]:
    """Values of trees in memory that a step reads."""
    read = [(sources[name], key) for name, key in step.sources]
    return [source.tree.values[key] for source, key in read if isinstance(source, TreeSource)]
