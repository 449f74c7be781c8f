"""What arrays of a program can hold: a plan that JAX would narrow is refused."""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ckpt_surgery.core.containers import container_flaws, index_flaws
from ckpt_surgery.core.dtypes import ELEMENT_TYPES, DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.core.text import shown
from ckpt_surgery.live.tree import LiveTree
from ckpt_surgery.planner.target import lost_by_cast

_KINDS = {bool: "b", int: "iu", float: "f"}
"""Kinds of dtypes whose values Python's numbers take."""


@frozen(eq=False)
class LiveEncoder(Encoder):
    """Arrays of JAX, and whatever else a pytree holds."""

    target: LiveTree | None
    """The target, whose shardings fit its shapes; None where there is none. Then arrays that JAX would narrow
    are NumPy's."""

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why these leaves cannot be made: one sentence each, with the key."""
        keys = [leaf.key for leaf in leaves] if self.target is None else []
        of_containers = [*itertools.chain.from_iterable(map(index_flaws, keys)), *container_flaws(keys)]
        narrows = self.target is not None
        of_dtype = cache(lambda dtype: dtype_flaw(dtype, narrows))  # each dtype is tried once
        found = [(leaf, self._flaw(leaf, of_dtype)) for leaf in leaves if leaf.spec is not None]
        return [*(f"`{shown(leaf.key.printed)}`{flaw}" for leaf, flaw in found if flaw), *of_containers]

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """Whether stored bytes can become the leaf as they are: never."""
        return False

    def _flaw(self, leaf: Leaf, of_dtype: Callable[[np.dtype[Any]], str | None]) -> str | None:
        """What is said of a leaf after its key; None where nothing is wrong."""
        assert leaf.spec is not None
        like = None if self.target is None else self.target.values[leaf.key.text]
        if isinstance(like, np.ndarray | np.generic) or (like is None and leaf.kind is LeafKind.SCALAR):
            return None
        if type(like) in _KINDS:
            assert self.target is not None
            wanted = self.target.leaves[leaf.key.text].spec
            return _number_flaw(leaf, type(like), None if wanted is None else wanted.dtype)
        if leaf.kind is LeafKind.PRNG_KEY:
            return self._key_flaw(leaf)
        return of_dtype(leaf.spec.dtype)

    def _key_flaw(self, leaf: Leaf) -> str | None:
        wanted = leaf.prng_impl if self.target is None else self.target.leaves[leaf.key.text].prng_impl
        if leaf.prng_impl == wanted:
            return None
        return f" is a random key of {leaf.prng_impl}, the target has one of {wanted} there"


def _number_flaw(leaf: Leaf, type_: type, wanted: DType | None) -> str | None:
    """Why a leaf cannot be the Python number of this type and dtype that the target has there.

    A cast is suggested only where it loses nothing.
    """
    assert leaf.spec is not None
    name = leaf.spec.dtype.name
    found = ELEMENT_TYPES.get(name)
    if found is not None and found.kind in _KINDS[type_]:
        return None
    given = f" is {name}, the target has a Python {type_.__name__} there"
    lost = "something" if found is None or wanted is None else lost_by_cast(leaf.spec.dtype, wanted)
    if lost is None:
        return f"{given}: cast it, or write `target: {{dtype: target}}`"
    return f"{given}, which would lose {lost}: give the target a number of {name} there"


def dtype_flaw(dtype: np.dtype[Any], narrows: bool = True) -> str | None:
    """Why JAX has no array of this dtype, as a predicate; None where it has.

    `narrows`: whether that it would make a smaller type of it is a reason.
    """
    held = _held_dtype(dtype)
    if held is None:
        return f" is {dtype.name}, which JAX does not have: cast it to another dtype"
    if narrows and held != dtype:
        return (
            f" is {dtype.name}, which JAX would make {held.name}: cast it, or set "
            "`jax.config.update('jax_enable_x64', True)`"
        )
    return None


def _held_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype that JAX gives an array of this one; None where it refuses."""
    import jax

    try:
        held: np.dtype[Any] = np.dtype(jax.device_put(np.zeros((), dtype)).dtype)
    except (TypeError, jax.errors.JaxRuntimeError):
        return None
    return held
