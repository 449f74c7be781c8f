"""New leaves; initializers against JAX itself."""

import inspect
import sys
from typing import Any

import jax
import numpy as np
import pytest
from jax.nn import initializers

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError, MissingLibraryError
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import LeafKey
from ckpt_surgery.functions.create import Init, arange, full, init, leaf_prng_key, zeros
from tests.support.calling import computed
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.slow import slow

F32, F64, BF16, INT8, UINT64 = map(dtype_named, ("float32", "float64", "bfloat16", "int8", "uint64"))


def test_arange() -> None:
    for value, expected in (
        (arange(5, dtype=F32), np.arange(5, dtype=F32)),
        (arange(2, 11, 3, INT8), np.arange(2, 11, 3, INT8)),  # type: ignore[call-overload]
        (arange(5, 2, 1, INT8), np.zeros(0, INT8)),
        (arange(0, 1, 0.1, F64), np.arange(10) * 0.1),
        (arange(1.5, dtype=BF16), np.array([0, 1], BF16)),
        (arange(2**64 - 1, 2**64 - 3, -1, UINT64), np.array([2**64 - 1, 2**64 - 2], UINT64)),
        (arange(2**62, 2**63 - 1, 2**61, np.dtype(np.int64)), np.array([2**62, 2**62 + 2**61])),
    ):
        assert same(computed(value, []), expected)


def made(initializer: str, *shape: int, dtype: Any = F32, seed: int = 7, **options: Any) -> Array:
    return init(initializer, shape, dtype, seed, leaf_key=LeafKey("params/dense/kernel"), **options)


SHAPE, TALL = (4, 8, 3), (4, 6)
"""Most tests share these shapes, because JAX takes a second to compile an initializer for another one."""

QUICK = {"lecun_normal", "glorot_uniform", "orthogonal", "uniform"}
"""One initializer of each kind; the others differ in numbers only, and some are among the options."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else slow(name)
        for name, factory in vars(initializers).items()
        if inspect.isfunction(factory) and name not in ("zeros", "ones", "constant", "variance_scaling")
    ],
)
def test_every_initializer_is_jaxs_with_the_leafs_key(name: str) -> None:
    # It is for convolutions, of which the last axis is not the shorter one.
    shape = (3, 4, 8) if name == "delta_orthogonal" else SHAPE
    expected = getattr(initializers, name)()(leaf_prng_key(7, "params/dense/kernel"), shape, F32)
    assert same(computed(made(name, *shape), []), np.asarray(expected))


def test_options_are_the_initializers_own() -> None:
    for name, options in (
        ("normal", {"stddev": 0.5}),
        ("constant", {"value": 3.5}),
        ("variance_scaling", {"scale": 2.0, "mode": "fan_avg", "distribution": "uniform"}),
        ("lecun_normal", {"in_axis": (0, 1), "out_axis": 2}),
    ):
        expected = getattr(initializers, name)(**options)(leaf_prng_key(7, "params/dense/kernel"), SHAPE, F32)
        assert same(computed(made(name, *SHAPE, **options), []), np.asarray(expected))


@pytest.mark.slow("compiles every initializer")
def test_float64_is_computed_in_float64() -> None:
    with jax.enable_x64(True):
        expected = np.asarray(initializers.normal()(leaf_prng_key(7, "params/dense/kernel"), (5,), F64))
    found = computed(made("normal", 5, dtype=F64), [])
    assert same(found, expected)
    assert not np.array_equal(found, found.astype(F32).astype(F64))
    assert jax.numpy.zeros(1).dtype == F32  # the setting is left as it was


def test_narrow_floats_are_computed_in_float32_and_rounded_once() -> None:
    wide = computed(made("lecun_normal", *SHAPE), [])
    assert same(computed(made("lecun_normal", *SHAPE, dtype=BF16), []), wide.astype(BF16))


def test_values_depend_on_seed_and_leaf_and_on_nothing_else() -> None:
    def values(key: str, seed: int) -> list[float]:
        return evaluate(Init("normal", TALL, F32, key, seed), []).ravel().tolist()  # type: ignore[no-any-return]

    assert values("a", 0) == values("a", 0)
    assert len({tuple(values(key, seed)) for key in ("a", "b", "a/b") for seed in (0, 1)}) == 6


def test_the_key_of_a_leaf_stays_what_it_is() -> None:
    # SHA-256 of "a" begins ca978112 ca1bbdca; a change here would change every checkpoint made so far.
    key = jax.random.key(3, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, np.uint32(0xCA978112)), np.uint32(0xCA1BBDCA))
    assert jax.random.key_data(leaf_prng_key(3, "a")).tolist() == jax.random.key_data(key).tolist()


def test_what_is_refused_before_anything_is_made() -> None:
    for make, message in (
        (lambda: full((2,), 0.5, INT8), "0.5 is not an integer, but the array is int8"),
        (lambda: zeros(3, dtype_named("float8_e8m0fnu")), "float8_e8m0fnu cannot represent 0"),
        (lambda: zeros((2, -1), F32), "`zeros`: the shape has the negative length -1"),
        (lambda: arange(3), "`arange` needs an integer or float `dtype`"),
        (lambda: arange(0, 3, 0, F32), "`arange` from 0 to 3 in steps of 0 has no end"),
        (lambda: arange(0, float("inf"), 1, F32), "has no end"),
        (lambda: arange(0, 3, 0.5, INT8), "`arange` of int8 needs integers, not 0, 3, 0.5"),
        (lambda: arange(200, dtype=INT8), "199 is out of range of int8"),
        (lambda: made("lecun_normal", 2), "`init`: `lecun_normal` for shape [2]: Can't compute"),
        (lambda: made("lecun_normal", 2, 2, in_axis=5), "`in_axis` is 5, but the shape [2, 2] has 2 axes"),
        (lambda: made("he_uniform", 2, 2, 2, batch_axis=(0, 3)), "`init`: `batch_axis` is 3, but"),
        (lambda: made("normal", 2, std=1.0), "`init`: `normal` has no option `std`; did you mean `stddev`?"),
        (lambda: made("normal", 2, dtype=INT8), "`init` needs a float dtype, not int8"),
        (lambda: made("ones", 2, value=1.0), "`init`: `ones` has no option `value`"),
        (lambda: made("constant", 2), "missing 1 required positional argument: 'value'"),
        (lambda: made("variance_scaling", 2, 2, scale=1.0, mode="fan", distribution="normal"), "fan"),
        (lambda: made("normal", 2, seed=-1), "seed should be from 0 to 4294967295, not -1"),
    ):
        with pytest.raises(FunctionError) as caught:
            make()
        assert message in str(caught.value)


def test_values_that_are_not_finite_are_refused() -> None:
    for value, message in (
        (made("constant", 2, value=1e39), "magnitudes up to inf, which float32 cannot represent"),
        (made("normal", *TALL, stddev=1e39), "`normal` gives magnitudes up to inf, which float32 cannot"),
        (made("constant", 2, dtype=BF16, value=1e39), "magnitudes up to inf, which bfloat16 cannot"),
        (made("constant", 2, dtype=dtype_named("float16"), value=7e4), "up to 70000.0, which float16 cannot"),
        (made("constant", 2, dtype=dtype_named("float4_e2m1fn"), value=9.0), "up to 9.0, which float4"),
        (
            made("constant", 2, value=float("nan")),
            "magnitudes up to nan, which float32 cannot",
        ),
    ):
        with pytest.raises(DataError) as caught:
            computed(value, [])
        assert message in str(caught.value)
        assert "cast" not in str(caught.value)


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingLibraryError, match="is not installed") as caught:
        Init("normal", (3, 17), F32, "a").infer([])
    assert caught.value.problems[0].hint == "Install it: `pip install jax`."
