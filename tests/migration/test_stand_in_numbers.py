"""Recorded expressions against the functions that they are made of, called with arrays: the same bits.

JAX compiles each of its functions anew for each dtype, so it is tried with few of them.
"""

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.errors import DataError, SurgeryError, UsageError
from ckpt_surgery.migration.shaped_calls import SHAPED
from tests.migration.stand_ins import (
    DTYPES,
    check,
    computed,
    dtype_called,
    expression_of,
    named,
    sample,
    traced,
    whole_numbers,
)

Function = Callable[..., Any]


def fails_or_agrees(function: Function, *arrays: np.ndarray, units: int = 0) -> None:
    """Check, where the function has a result; where it raises, so does the traced one."""
    try:
        with np.errstate(all="ignore"):
            function(*arrays)
    except (TypeError, ValueError, OverflowError) as error:
        with pytest.raises((type(error), UsageError, DataError)):
            result, recorder = traced(function, *arrays)
            for value in jax.tree.leaves(result):
                computed(value, recorder, named(arrays))
        return
    try:
        check(function, *arrays, units=units)
    except DataError as error:  # the language refuses what wraps around, and division of integers by zero
        told = str(error)
        assert "out of range" in told or "divided by zero" in told or "negative power" in told


def powers_agree(function: Function, *arrays: np.ndarray) -> None:
    """The same; powers of 16 bits are refused."""
    try:
        fails_or_agrees(function, *arrays)
    except UsageError as error:
        assert "16 rounds in another way" in str(error)


def of_jax(name: str, *more: Any, **keywords: Any) -> Function:
    """A function that calls JAX's of this name."""
    return lambda *arrays: getattr(jnp, name)(*arrays, *more, **keywords)


OPERATORS = [
    getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "eq")
]


@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_numpy_promotes_two_arrays(first: str, second: str) -> None:
    a, b = sample(first, (4, 6), 1), sample(second, (4, 6), 2)
    for function in (*OPERATORS, np.minimum, np.maximum):
        fails_or_agrees(function, a, b)
    powers_agree(np.power, a, b)
    fails_or_agrees(lambda a, b: np.where(a > 1, a, b), a, b)
    fails_or_agrees(lambda a, b: np.concatenate([a, b, a], axis=1), a, b)
    fails_or_agrees(lambda a, b: np.stack([b, a]), a, b)


@pytest.mark.parametrize(
    ("first", "second"), [("float32", "bfloat16"), ("bfloat16", "int32"), ("uint8", "int8")]
)
def test_jax_promotes_two_arrays(first: str, second: str) -> None:
    a, b = sample(first, (4, 6), 1), sample(second, (4, 6), 2)
    for name in ("add", "divide", "less"):
        fails_or_agrees(of_jax(name), a, b)
    fails_or_agrees(lambda a, b: jnp.where(a > 1, a, b), a, b)
    fails_or_agrees(lambda a, b: jnp.concatenate([a, b]) * 2, a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 0.3, True, -1, 2.0])
def test_numbers_of_python_are_weak(dtype: str, number: Any) -> None:
    a = sample(dtype, (4, 6), 3)
    for function in OPERATORS:
        fails_or_agrees(lambda a, f=function: f(a, number), a)
        fails_or_agrees(lambda a, f=function: f(number, a), a)
    powers_agree(lambda a: a**number, a)
    powers_agree(lambda a: number**a, a)
    if dtype == "bfloat16":
        fails_or_agrees(lambda a: jnp.asarray(a) * number, a)
        fails_or_agrees(lambda a: jnp.asarray(a) < number, a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_operands(dtype: str) -> None:
    a = sample(dtype, (4, 6), 4)
    fails_or_agrees(lambda a: a * np.float32(1.1), a)
    fails_or_agrees(lambda a: np.arange(6) + a, a)
    fails_or_agrees(lambda a: np.where(a > 1, a, -np.inf), a)
    fails_or_agrees(lambda a: jnp.arange(6) + a, a)
    fails_or_agrees(lambda a: [abs(a), a > np.float16(0.5)], a)
    if dtype != "uint8":  # of which the language has no negative
        fails_or_agrees(lambda a: -a, a)
    fails_or_agrees(lambda a: sum([a, a]), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["sqrt", "exp", "log", "absolute", "square", "sign", "sin", "cos", "logical_not", "isnan"]
)
def test_functions_of_one_array(dtype: str, name: str) -> None:
    a = sample(dtype, (4, 7), 5)
    if (dtype, name) in _OTHER_BITS:
        with pytest.raises(UsageError, match="rounds in another way"):
            traced(getattr(np, name), a)
    else:
        fails_or_agrees(getattr(np, name), a)
    if dtype in ("bfloat16", "int32") and name in ("sqrt", "absolute", "square"):
        fails_or_agrees(of_jax(name), a)


_OTHER_BITS = [  # of 8 bits NumPy makes float16
    (d, n) for d in ("float16", "int8", "uint8", "bool") for n in ("exp", "log", "sin", "cos")
]


@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos", "arccos", "sign"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_functions_of_every_narrow_float(dtype: str, name: str) -> None:
    """With every value that has a finite result: the language refuses others."""
    found = dtype_called(dtype)
    every = np.arange(1 << 8 * found.itemsize, dtype=f"u{found.itemsize}").view(found)
    with np.errstate(all="ignore"):
        result = getattr(np, name)(every).astype(np.float32)
    check(getattr(np, name), every[np.isfinite(result)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")
def test_casts(dtype: str, other: str) -> None:
    a = np.abs(sample(dtype, (3, 5), 6)) * (1 if dtype == "bool" else dtype_called(dtype).type(7))
    fails_or_agrees(lambda a: a.astype(dtype_called(other)), a)
    fails_or_agrees(lambda a: np.asarray(a, dtype=dtype_called(other)), a)
    if dtype in ("int32", "bfloat16"):
        fails_or_agrees(lambda a: jnp.asarray(a).astype(dtype_called(other)), a)


def test_casts_to_bfloat16_round_as_ml_dtypes_does() -> None:
    close = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 3 + 2**-7 + 2**-30], np.float64)
    check(lambda a: a.astype(ml_dtypes.bfloat16), close)
    check(
        lambda a: a.astype(ml_dtypes.bfloat16), np.array([2**24 + 2**16 + 1, -(2**30) - 2**22 - 1], np.int32)
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_narrow_number(dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype_called(dtype))
    finite = every[np.isfinite(every.astype(np.float32))]
    for function in (
        np.sqrt,
        np.negative,
        np.absolute,
        lambda a: a * 0.5,
        lambda a: a / 3,
        lambda a: a + a[::-1] * 0,
    ):
        check(function, finite)
    check(
        lambda a: jnp.asarray(a) / 3 if dtype == "bfloat16" else a,
        finite[np.abs(finite.astype(float)) > 1e-6],
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_reductions(dtype: str, name: str) -> None:
    """Whole numbers, whose sums are exact in any order: dtypes and division are what is tried."""
    a = whole_numbers(dtype, (4, 6), 7)
    for library in (np, jnp) if dtype in ("bfloat16", "uint8") else (np,):
        if library is np and name in ("sum", "mean") and (dtype, name) in _ROUNDED_EACH_TIME:
            with pytest.raises(UsageError, match="partial sum"):
                traced(getattr(np, name), a)
            continue
        fails_or_agrees(lambda a, m=library: getattr(m, name)(a), a)
        fails_or_agrees(lambda a, m=library: getattr(m, name)(a, axis=0), a)
        fails_or_agrees(lambda a, m=library: getattr(m, name)(a, axis=(0, 1), keepdims=True), a)


_ROUNDED_EACH_TIME = [("bfloat16", "sum"), ("bfloat16", "mean"), ("float16", "sum")]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products(dtype: str) -> None:
    a, b = whole_numbers(dtype, (4, 6), 8), whole_numbers(dtype, (4, 6), 9)
    for library in (np, jnp) if dtype == "bfloat16" else (np,):
        narrow = dtype == "bfloat16" and library is np
        functions: list[Function] = [
            lambda a, b, f=library: f.matmul(a, b.T),
            lambda a, b, f=library: f.outer(a, b),
        ]
        products: list[Function] = [
            lambda a, b, f=library: f.einsum("ij,ij->i", a, b),
            lambda a, b, f=library: f.einsum("...j,kj->...k", a, b),
            lambda a, b, f=library: f.einsum("ij,kj", a, b),
            lambda a, b, f=library: f.dot(a, b.T),
            lambda a, b, f=library: f.tensordot(a, b, axes=([0], [0])),
            lambda a, b, f=library: f.inner(a, b),
        ]
        for function in (*functions, *([] if narrow else products)):
            fails_or_agrees(function, a, b)


def test_sums_of_fractions_differ_in_their_order_alone() -> None:
    """Neither library has a fixed order, and the engine has one that does not depend on chunks."""
    a, b = sample("float32", (40, 60), 1), sample("float32", (60, 5), 2)
    for function in (np.sum, np.mean, of_jax("sum"), of_jax("mean")):
        check(function, a, units=16)
    for product in (np.matmul, of_jax("matmul"), lambda a, b: np.einsum("ij,jk->ik", a, b)):
        check(product, a, b, units=64)


def test_arrays_of_numpy_are_averaged_in_their_order() -> None:
    arrays = [sample("float32", (4, 6), seed) for seed in range(8)]
    check(lambda *a: np.mean(np.stack([*a, *a]), axis=0), *arrays)
    check(lambda *a: np.stack(a).sum(axis=0), *arrays)
    check(lambda *a: sum(a) / len(a), *arrays)
    expression = expression_of(traced(lambda a, b: np.mean([a, b], axis=0), *arrays[:2])[0])
    assert expression == "mean([source['a'], source['b']])"


def test_jax_divides_by_what_is_broadcast_with_a_reciprocal() -> None:
    a, b = sample("float32", (50, 60), 1), sample("float32", (60,), 2)
    check(lambda a, b: jnp.divide(a, 3), a, b)
    check(lambda a, b: jnp.divide(a, b), a, b)
    check(lambda a, b: jnp.divide(2.5, b), a, b)
    check(lambda a, b: jnp.divide(a.astype("float16"), 3), a, b)


LAYOUT: list[Function] = [
    lambda a, b, m: [a[1:100], a[::-1], a[-1], a[..., 0], a[None, 1:1], a[3:0:-2, 2], a[2:100:3, -3:]],
    lambda a, b, m: [*m.unstack(a, axis=1), *m.split(a, 2, axis=1)],
    lambda a, b, m: [*m.array_split(a, 4), *m.split(a, [1, 3])],
    lambda a, b, m: [m.reshape(a, (2, -1)), m.ravel(a), m.transpose(a)],
    lambda a, b, m: m.transpose(m.stack([a, b]), (2, 0, 1)),
    lambda a, b, m: [m.swapaxes(a, 0, 1), m.moveaxis(m.stack([a, b]), 0, -1), m.matrix_transpose(a)],
    lambda a, b, m: [m.vstack([a, b[0]]), m.hstack([a, b]), m.dstack([a, b]), m.column_stack([a[:, 0], b])],
    lambda a, b, m: [m.pad(a, ((1, 2), (0, 3)), constant_values=1), m.pad(a, 1, mode="edge"), m.pad(a, 2)],
    lambda a, b, m: [m.pad(a, 2, mode="reflect"), m.roll(a, 1, 0), m.roll(a, -3), m.flip(a, 1), m.fliplr(a)],
    lambda a, b, m: [m.repeat(a, 2, axis=1), m.repeat(a, 2), m.tile(a, (2, 1))],
    lambda a, b, m: m.take(a, np.array([[0, 2], [1, 1]]), axis=1),
    lambda a, b, m: [m.broadcast_to(a[0], (3, 6)), m.expand_dims(a, 1), m.squeeze(a[:1]), m.atleast_3d(a)],
    lambda a, b, m: [m.tril(a), m.triu(a, 1), m.tril(a, -1), m.concatenate([a, b], axis=None)],
    lambda a, b, m: [m.zeros_like(a), m.ones_like(a), m.full_like(a, 1), m.clip(a, 0, 1), m.where(a, a, b)],
    lambda a, b, m: [m.logical_and(a, b), m.logical_xor(a, b), m.where(a > b, 1, 2), m.array([a, b])],
]


@pytest.mark.slow("compiles functions of JAX")
@pytest.mark.parametrize("dtype", DTYPES)
def test_layout(dtype: str) -> None:
    a, b = sample(dtype, (4, 6), 10), sample(dtype, (4, 6), 11)
    for function in LAYOUT:
        check(lambda a, b, f=function: f(a, b, np), a, b)
        if dtype == "bfloat16":
            check(lambda a, b, f=function: f(a, b, jnp), a, b)


@pytest.mark.parametrize(("name", "arguments"), [("unstack", ()), ("split", (2,)), ("roll", (1,))])
def test_an_axis_that_does_not_exist_is_numpys_error(name: str, arguments: tuple[int, ...]) -> None:
    with pytest.raises(np.exceptions.AxisError):  # NumPy 2.0 has no `unstack` itself
        traced(lambda a: SHAPED[name](a, *arguments, axis=5), sample("float32", (4, 6)))


def test_bounds_that_a_dtype_cannot_hold_are_ignored() -> None:
    check(lambda a: [np.clip(a, -1, 1), np.clip(a, 1, 300), np.clip(a, 0, 255)], np.array([0, 9], np.uint8))


def test_indices_in_arrays() -> None:
    a = sample("float32", (4, 6), 12)
    check(lambda a: [a[[2, 0]], a[:, np.array([1, -1])], a[np.array([True, False, True, False])]], a)
    check(lambda a: jnp.take(a, jnp.array([3, 0]), axis=0), a)
    for bad in (lambda a: a[[0, 1], [1, 2]], lambda a: a[0, [1, 2]], lambda a: a[True]):
        with pytest.raises(UsageError, match="index"):
            traced(bad, a)


def test_methods() -> None:
    a = sample("float32", (4, 6), 13)
    for start in (lambda a: a, lambda a: jnp.asarray(a)):
        check(lambda a, s=start: [s(a).reshape(3, -1), s(a).T, s(a).max(axis=1), s(a).flatten(), s(a).mT], a)
        check(
            lambda a, s=start: [
                s(a).transpose(1, 0),
                s(a).swapaxes(0, 1),
                s(a).astype("float16"),
                s(a).clip(0, 1),
            ],
            a,
        )
        check(lambda a, s=start: [s(a).view(np.int32), s(a).repeat(2, 0), s(a).min(), s(a)[:1].squeeze(0)], a)
    check(lambda a: a.view(np.uint8), a)


def test_arrays_of_numpy_and_of_jax() -> None:
    a, b = sample("float32", (4, 6), 13), np.arange(6, dtype=np.float64)
    check(lambda a: [b * jnp.asarray(a), jnp.asarray(a) * b, np.multiply(b, jnp.asarray(a))], a)
    check(lambda a: [a + jnp.asarray(a), np.add(jnp.asarray(a), 1), np.float64(2) * jnp.asarray(a)], a)
    check(lambda a: [jnp.reshape(a, (6, 4)) / 2, jnp.reshape(jnp.asarray(a), (6, 4))], a.astype(np.float64))
    check(lambda a: [np.maximum.reduce(a), np.minimum.reduce(a, axis=1), np.add.reduce(a * 0)], a)
    tree = lambda a: {"k": a, "n": [a, np.ones(2)]}  # noqa: E731
    check(lambda a: jax.device_get(jax.device_put(tree(a)))["n"][:1], a)
    check(lambda a: jax.device_put(tree(a))["k"] * 2, a)


@pytest.mark.slow("compiles functions of JAX")
def test_lax() -> None:
    lax = jax.lax
    a, b = sample("float32", (4, 6), 14), sample("float32", (4, 6), 15)
    functions: list[Function] = [
        *(lambda a, b, n=n: getattr(lax, n)(a, b) for n in ("add", "sub", "mul", "div", "max", "min", "ge")),
        lambda a, b: [lax.neg(a), lax.abs(a), lax.sign(a), lax.sqrt(lax.abs(a)), lax.square(a)],
        lambda a, b: [lax.select(lax.gt(a, b), a, b), lax.clamp(-1.0, a, 1.0), lax.stop_gradient(lax.neg(a))],
        lambda a, b: [lax.convert_element_type(a, jnp.bfloat16), lax.concatenate([a, b], 1)],
        lambda a, b: [lax.rev(a, (0, 1)), lax.squeeze(a[None], (0,)), lax.index_in_dim(a, 2)],
        lambda a, b: [lax.reshape(a, (6, 4)), lax.transpose(a, (1, 0)), lax.reshape(a, (24,), (1, 0))],
        lambda a, b: [lax.expand_dims(a, (0, 3)), lax.broadcast_in_dim(a, (2, 4, 6), (1, 2))],
        lambda a, b: [lax.slice(a, (1, 0), (4, 6), (2, 1)), lax.slice_in_dim(a, 1, 3, axis=1)],
        lambda a, b: [lax.dynamic_slice(a, (3, 1), (2, 2)), lax.dynamic_slice_in_dim(a, 5, 3, axis=1)],
        lambda a, b: [lax.full_like(a, 2), lax.reduce_max(a, (0,)), lax.reduce_min(a, (0, 1))],
        lambda a, b: [lax.full_like(a, fill_value=np.float32(2)), lax.full_like(a, 2, dtype=jnp.int32)],
        lambda a, b: [lax.reduce_max(a, axes=(0,)), lax.slice(a, (0, 0), (4, 6), np.array([2, 1]))],
    ]
    for function in functions:
        check(function, a, b)
    ints = whole_numbers("float32", (4, 6), 1), whole_numbers("float32", (4, 6), 2)
    check(lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((), ()))), *ints)
    check(lambda a, b: lax.dot_general(a, b, (((1,), (1,)), ((0,), (0,)))), *ints)
    with pytest.raises(UsageError, match=r"jax\.lax\.cumsum"):
        traced(lambda a, b: lax.cumsum(a), a, b)


STEPS: list[Function] = [
    lambda x, y: x + y,
    lambda x, y: x * 0.37,
    lambda x, y: (x + y) / 2,
    lambda x, y: np.where(x < y, x, y),
    lambda x, y: x**2,
    lambda x, y: x.T[::-1].T,
    lambda x, y: x.astype(np.float32),
    lambda x, y: x.astype(np.float16),
    lambda x, y: np.concatenate([x, y])[2:6],
    lambda x, y: np.pad(x, ((1, 0), (0, 2)))[1:, 1:7],
    lambda x, y: np.clip(x, -1, 1),
    lambda x, y: np.sqrt(abs(x)),
    lambda x, y: x - y.max(axis=0, keepdims=True),
    lambda x, y: np.roll(x, 1, axis=1),
    lambda x, y: y.reshape(6, 4).swapaxes(0, 1),
]


@pytest.mark.slow("compiles functions of JAX")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    steps=st.lists(st.tuples(st.integers(0, len(STEPS) - 1), st.booleans()), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_random_programs(dtypes: tuple[str, str], steps: list[tuple[int, bool]], seed: int) -> None:
    """Either the same bits, or an error."""

    def program(x: Any, y: Any) -> Any:
        for number, swapped in steps:
            x, y = (STEPS[number](x, y), x) if not swapped else (y, STEPS[number](y, x))
        return [x, y]

    a, b = (sample(dtype, (4, 6), seed + i) for i, dtype in enumerate(dtypes))
    try:
        with np.errstate(all="ignore"):
            program(a, b)
    except (TypeError, ValueError, OverflowError):
        with pytest.raises((TypeError, ValueError, OverflowError, UsageError)):
            traced(program, a, b)
        return
    with contextlib.suppress(SurgeryError):  # integers that wrap around, float16 that overflows
        check(program, a, b)
