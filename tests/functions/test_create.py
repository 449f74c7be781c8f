"""New leaves; initializers against JAX itself."""

import inspect
import sys
from typing import Any

import jax
import numpy as np
import pytest
from jax.nn import initializers

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError, MissingLibraryError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Arange, Full, Init, Ones, Zeros, leaf_prng_key
from tests.support.comparing import same
from tests.support.evaluation import evaluate

F32, F64, BF16, INT8 = map(dtype_named, ("float32", "float64", "bfloat16", "int8"))


@pytest.mark.parametrize("name", ["int4", "bfloat16", "float8_e4m3fn", "bool", "complex64"])
def test_constant_arrays(name: str) -> None:
    dtype = dtype_named(name)
    assert same(evaluate(Zeros((2, 3), dtype), []), np.zeros((2, 3), dtype))
    assert same(evaluate(Ones(4, dtype), []), np.ones(4, dtype))
    assert same(evaluate(Full((), 1, dtype), []), np.full((), 1, dtype))
    assert Full((), 1, dtype).declared_dtype([]) == dtype


def test_zeros_of_a_dtype_without_zero() -> None:
    """Bits that are all zero mean 2**-127 there."""
    with pytest.raises(FunctionError, match="float8_e8m0fnu cannot represent 0"):
        Zeros(3, dtype_named("float8_e8m0fnu")).infer([])


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Arange(5, dtype=F32), np.arange(5, dtype=F32)),
        (Arange(2, 11, 3, INT8), np.arange(2, 11, 3, INT8)),  # type: ignore[call-overload]
        (Arange(5, -5, -2, INT8), np.arange(5, -5, -2, INT8)),  # type: ignore[call-overload]
        (Arange(5, 2, 1, INT8), np.zeros(0, INT8)),
        (Arange(0, 1, 0.1, F64), np.arange(10) * 0.1),
        (Arange(1.5, dtype=BF16), np.array([0, 1], BF16)),
        (
            Arange(2**64 - 1, 2**64 - 4, -1, np.dtype(np.uint64)),
            np.array([2**64 - 1, 2**64 - 2, 2**64 - 3], np.uint64),
        ),
        (Arange(2**62, 2**63 - 1, 2**61, np.dtype(np.int64)), np.array([2**62, 2**62 + 2**61])),
    ],
    ids=str,
)
def test_arange(function: Function, expected: np.ndarray) -> None:
    assert same(evaluate(function, []), expected)


def made(initializer: str, *shape: int, dtype: Any = F32, **options: Any) -> Init:
    return Init(initializer, shape, dtype, "params/dense/kernel", 7, tuple(options.items()))


SHAPE, TALL = (4, 8, 3), (4, 6)
"""Most tests share these shapes, because JAX takes a second to compile an initializer for another one."""

QUICK = {"lecun_normal", "glorot_uniform", "orthogonal", "uniform"}
"""One initializer of each kind; the others differ in numbers only, and some are among the options."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name, factory in vars(initializers).items()
        if inspect.isfunction(factory) and name not in ("zeros", "ones", "constant", "variance_scaling")
    ],
)
def test_every_initializer_is_jaxs_with_the_leafs_key(name: str) -> None:
    # It is for convolutions, of which the last axis is not the shorter one.
    shape = (3, 4, 8) if name == "delta_orthogonal" else SHAPE
    expected = getattr(initializers, name)()(leaf_prng_key(7, "params/dense/kernel"), shape, F32)
    assert same(evaluate(made(name, *shape), []), np.asarray(expected))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("normal", {"stddev": 0.5}),
        ("truncated_normal", {"stddev": 1.0, "lower": -1.0, "upper": 0.5}),
        ("constant", {"value": 3.5}),
        ("variance_scaling", {"scale": 2.0, "mode": "fan_avg", "distribution": "uniform"}),
        ("lecun_normal", {"in_axis": (0, 1), "out_axis": 2}),
    ],
)
def test_options_are_the_initializers_own(name: str, options: dict[str, Any]) -> None:
    expected = getattr(initializers, name)(**options)(leaf_prng_key(7, "params/dense/kernel"), SHAPE, F32)
    assert same(evaluate(made(name, *SHAPE, **options), []), np.asarray(expected))


def test_zeros_and_ones_are_initializers_themselves() -> None:
    assert same(evaluate(made("ones", 2, 3), []), np.ones((2, 3), F32))
    assert same(evaluate(made("zeros", 2), []), np.zeros(2, F32))


def test_float64_is_computed_in_float64() -> None:
    with jax.enable_x64(True):
        expected = np.asarray(initializers.normal()(leaf_prng_key(7, "params/dense/kernel"), (5,), F64))
    found = evaluate(made("normal", 5, dtype=F64), [])
    assert same(found, expected)
    assert not np.array_equal(found, found.astype(F32).astype(F64))
    assert jax.numpy.zeros(1).dtype == F32  # the setting is left as it was


def test_narrow_floats_are_computed_in_float32_and_rounded_once() -> None:
    wide = evaluate(made("lecun_normal", *SHAPE), [])
    assert same(evaluate(made("lecun_normal", *SHAPE, dtype=BF16), []), wide.astype(BF16))


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


def test_regions_of_two_leaves_in_turn() -> None:
    first, second = Init("normal", TALL, F32, "a"), Init("normal", TALL, F32, "b")
    whole = [evaluate(function, []) for function in (first, second)]
    for _ in range(2):
        for function, expected in zip((first, second), whole, strict=True):
            region = Region((1, 2), (3, 6))
            assert same(evaluate(function, [], region), expected[region.slices])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Full((2,), 0.5, INT8), "0.5 is not an integer, but the array is int8"),
        (Zeros((2, -1), F32), "`zeros`: the shape has the negative length -1"),
        (Arange(3), "`arange` needs an integer or float `dtype`"),
        (Arange(0, 3, 0, F32), "`arange` from 0 to 3 in steps of 0 has no end"),
        (Arange(0, float("inf"), 1, F32), "has no end"),
        (Arange(0, 3, 0.5, INT8), "`arange` of int8 needs integers, not 0, 3, 0.5"),
        (Arange(200, dtype=INT8), "199 is out of range of int8"),
        (Arange(2**70, 2**70 + 2, 1, np.dtype(np.int64)), "is out of range of int64"),
        (
            made("lecun_norml", 2, 2),
            "no initializer `lecun_norml` in jax.nn.initializers; did you mean `lecun_n",
        ),
        (
            made("lecun_normal", 2),
            "`init`: `lecun_normal` for shape [2]: Can't compute input and output sizes",
        ),
        (made("lecun_normal", 2, 2, in_axis=5), "`init`: `in_axis` is 5, but the shape [2, 2] has 2 axes"),
        (made("lecun_normal", 2, 2, out_axis=-3), "`init`: `out_axis` is -3, but"),
        (made("he_uniform", 2, 2, 2, batch_axis=(0, 3)), "`init`: `batch_axis` is 3, but"),
        (made("orthogonal", 2, 2, column_axis=2), "`init`: `column_axis` is 2, but"),
        (made("normal", 2, std=1.0), "`init`: `normal` has no option `std`; did you mean `stddev`?"),
        (made("normal", 2, dtype=INT8), "`init` needs a float dtype, not int8"),
        (made("normal", -2), "the shape has the negative length -2"),
        (made("ones", 2, value=1.0), "`init`: `ones` has no option `value`"),
        (made("constant", 2), "missing 1 required positional argument: 'value'"),
        (made("variance_scaling", 2, 2, scale=1.0, mode="fan", distribution="normal"), "fan"),
        (Init("normal", (2,), F32, "a", -1), "seed should be from 0 to 4294967295, not -1"),
    ],
    ids=str,
)
def test_what_is_refused_before_anything_is_made(function: Function, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        function.infer([])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            made("constant", 2, value=1e39),
            "`constant` gives magnitudes up to inf, which float32 cannot represent",
        ),
        (
            made("normal", *TALL, stddev=1e39),
            "`normal` gives magnitudes up to inf, which float32 cannot represent",
        ),
        (made("constant", 2, dtype=BF16, value=1e39), "magnitudes up to inf, which bfloat16 cannot"),
        (
            made("constant", 2, dtype=dtype_named("float16"), value=70000.0),
            "`constant` gives magnitudes up to 70000.0, which float16 cannot represent\n  Change the options",
        ),
        (
            made("constant", 2, dtype=dtype_named("float4_e2m1fn"), value=9.0),
            "up to 9.0, which float4",
        ),
        (made("constant", 2, value=float("nan")), "`constant` gives NaN, which float32 cannot represent"),
    ],
    ids=str,
)
def test_values_that_are_not_finite_are_refused(function: Function, message: str) -> None:
    with pytest.raises(DataError) as caught:
        evaluate(function, [])
    assert message in str(caught.value)
    assert "cast" not in str(caught.value)


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingLibraryError, match="is not installed") as caught:
        Init("normal", (3, 17), F32, "a").infer([])
    assert caught.value.problems[0].hint == "Install it: `pip install jax`."
