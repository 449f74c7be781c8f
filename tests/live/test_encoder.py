"""What cannot be made of a plan's leaves is refused before anything is read."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import DTYPES
from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.live.encoder import LiveEncoder
from ckpt_surgery.live.tree import live_tree

NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def _is_known(dtype: str) -> bool:
    """Whether this version of jax makes arrays of that dtype."""
    try:
        jax.device_put(np.zeros((), DTYPES[dtype]))
    except (TypeError, jax.errors.JaxRuntimeError):
        return False
    return True


UNKNOWN = {dtype for dtype in DTYPES if dtype not in NARROWED and not _is_known(dtype)}


def leaf(dtype: str, *shape: int, kind: LeafKind = LeafKind.ARRAY, impl: str | None = None) -> Leaf:
    return Leaf(Key.parse("a/b"), kind, ArraySpec(shape, DTYPES[dtype]), prng_impl=impl)


def said(like: Any, made: Leaf) -> list[str]:
    """What is said of a leaf where the target holds `like`; None: no target is given."""
    tree = None if like is None else live_tree({"a": {"b": like}})
    return LiveEncoder(tree).unsupported([made])


@pytest.mark.parametrize("like", [None, jax.ShapeDtypeStruct((2,), jnp.float32)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_that_jax_would_narrow_or_does_not_have_are_refused(dtype: str, like: Any) -> None:
    found = said(like, leaf(dtype, 2))
    if dtype in NARROWED and like is None:
        assert found == []  # it becomes an array of NumPy
    elif dtype in NARROWED:
        assert found == [
            f"`a/b` is {dtype}, which JAX would make {NARROWED[dtype]}: cast it, or set "
            "`jax.config.update('jax_enable_x64', True)`"
        ]
    elif dtype in UNKNOWN:
        assert found == [f"`a/b` is {dtype}, which JAX does not have: cast it to another dtype"]
    else:
        assert found == []


@pytest.mark.parametrize("like", [np.zeros(2), np.float64(1)])
@pytest.mark.parametrize("dtype", ["int64", "float6_e2m3fn"])
def test_numpy_holds_every_dtype(dtype: str, like: Any) -> None:
    assert said(like, leaf(dtype, *np.shape(like))) == []


NUMBERS = {
    bool: {"bool"},
    int: {name for name in DTYPES if "int" in name},
    float: {name for name in DTYPES if "float" in name},
}


@pytest.mark.parametrize("number", [True, 3, 2.5])
def test_a_number_takes_what_has_its_kind(number: Any) -> None:
    held = {name for name in DTYPES if not said(number, leaf(name, kind=LeafKind.SCALAR))}
    assert held == NUMBERS[type(number)]


@pytest.mark.parametrize(
    ("number", "value", "is_suggested"),
    [(1, np.float32(2.5), False), (True, 2.5, False), (1, np.complex64(1 + 2j), False), (1.5, 3, True)],
    ids=repr,
)
def test_a_cast_is_suggested_if_it_loses_nothing(number: Any, value: Any, is_suggested: bool) -> None:
    source, target = {"a": value, "b": np.ones(2, np.float32)}, {"a": number, "b": np.ones(2, np.float32)}
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.restore({"version": 1, "target": {"dtype": "source"}}, source, target=target)
    assert ("would lose" in str(caught.value)) is not is_suggested
    assert ("`target: {dtype: target}`" in str(caught.value)) is is_suggested
    if is_suggested:
        restored = ckpt_surgery.restore({"version": 1, "target": {"dtype": "target"}}, source, target=target)
        assert (restored["a"], type(restored["a"])) == (value, type(number))


def test_a_random_key_of_another_implementation_is_told() -> None:
    key = leaf("uint32", 4, kind=LeafKind.PRNG_KEY, impl="rbg")
    assert said(jax.random.key(0, impl="rbg"), key) == []
    assert said(None, key) == []
    assert said(jax.random.key(0, impl="threefry2x32"), key) == [
        "`a/b` is a random key of rbg, the target has one of threefry2x32 there"
    ]
