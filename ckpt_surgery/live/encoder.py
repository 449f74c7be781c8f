"""Check what arrays of a program can hold, and complete a target from its plan."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import ELEMENT_TYPES, DType, lost_by_cast
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import container_flaws, index_flaws
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.live.results import is_narrowed
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.live.wanted import Wanted, type_of
from ckpt_surgery.planner.plan import Plan, Step

_KINDS = {bool: "b", int: "iu", float: "f"}
"""Kinds of dtypes whose values fit each type of Python's numbers."""


@frozen(eq=False)
class LiveEncoder(Encoder):
    """Encoder for arrays of JAX, and whatever else a pytree holds."""

    target: LiveTree | None
    """The target, whose shardings fit its shapes; None where there is none. Then arrays that JAX would narrow
    are NumPy's."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Reasons why leaves cannot be made: one sentence each, with the key."""
        keys = [leaf.key for leaf in leaves] if self.target is None else []
        of_containers = [*itertools.chain.from_iterable(map(index_flaws, keys)), *container_flaws(keys)]
        narrows = self.target is not None
        of_dtype = cache(lambda dtype: dtype_flaw(dtype, narrows))  # each dtype is tried once
        flaws = [(leaf, self._flaw(leaf, of_dtype)) for leaf in leaves if leaf.spec is not None]
        return [*(f"`{shown(leaf.key.printed)}`{flaw}" for leaf, flaw in flaws if flaw), *of_containers]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """False: stored bytes never become an array as they are."""
        return False

    def _flaw(self, leaf: Leaf, of_dtype: Callable[[np.dtype[Any]], str | None]) -> str | None:
        """Flaw of a leaf, as a predicate to its key; None if it can be made."""
        assert leaf.spec is not None
        like = None if self.target is None else self.target.values[leaf.key.text]
        type_ = type_of(like)
        if issubclass(type_, np.ndarray | np.generic) or (like is None and leaf.kind is LeafKind.SCALAR):
            return None
        if type_ in _KINDS:
            assert self.target is not None
            spec = self.target.leaves[leaf.key.text].spec
            return _number_flaw(leaf, type_, None if spec is None else spec.dtype)
        if leaf.kind is LeafKind.PRNG_KEY:
            wanted = leaf.prng_impl if self.target is None else self.target.leaves[leaf.key.text].prng_impl
            if isinstance(like, Wanted) or leaf.prng_impl == wanted:
                return None
            return f" is a random key of {leaf.prng_impl}, the target has one of {wanted} there"
        if isinstance(like, Wanted) and like.type is None:  # NumPy has what JAX would narrow
            return dtype_flaw(leaf.spec.dtype, narrows=False)
        return of_dtype(leaf.spec.dtype)


def _number_flaw(leaf: Leaf, type_: type, wanted: DType | None) -> str | None:
    """Reason why a leaf cannot become the target's number. Only casts that lose nothing are suggested."""
    assert leaf.spec is not None
    name = leaf.spec.dtype.name
    element = ELEMENT_TYPES.get(name)
    if element is not None and element.kind in _KINDS[type_]:
        return None
    given = f" is {name}, the target has a Python {type_.__name__} there"
    lost = "something" if element is None or wanted is None else lost_by_cast(leaf.spec.dtype, wanted)
    if lost is None:
        return f"{given}: cast it, or write `target: {{dtype: target}}`"
    return f"{given}, which would lose {lost}: give the target a number of {name} there"


def dtype_flaw(dtype: np.dtype[Any], narrows: bool = True) -> str | None:
    """Reason why JAX has no array of this dtype or, with `narrows`, a smaller one; a predicate, else None."""
    import jax

    try:
        held = np.dtype(jax.device_put(np.zeros((), dtype)).dtype)
    except (TypeError, jax.errors.JaxRuntimeError):
        return f" is {dtype.name}, which JAX does not have: cast it to another dtype"
    if not narrows or held == dtype:
        return None
    return (
        f" is {dtype.name}, which JAX would make {held.name}: cast it, or set "
        "`jax.config.update('jax_enable_x64', True)`"
    )


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
