"""The laws of the functions that expressions call: any region of a result is that region of NumPy's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import einops
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery import functions as f
from ckpt_surgery.core.dtypes import DType, dtype_named
from ckpt_surgery.functions.base import LeafKey
from ckpt_surgery.functions.registry import registry
from tests.support.arrays import numbers
from tests.support.calling import computed, lazily
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.strategies import regions

F32, F64, BF16, INT8, INT64 = map(dtype_named, ("float32", "float64", "bfloat16", "int8", "int64"))
KEY = LeafKey("a/b")


@dataclass(frozen=True)
class Case:
    """A call, the shapes and dtypes of its arrays, and the same of NumPy."""

    specs: str
    call: Callable[..., Any]
    numpy: Callable[..., Any]
    close: bool = False
    """Whether the result may differ from NumPy's in its last bits."""


def wide(block: np.ndarray) -> np.ndarray:
    return block.astype(np.float64)


def as_type(dtype: DType) -> Callable[[np.ndarray], np.ndarray]:
    return lambda block: block.astype(dtype)


def largest(x: np.ndarray, k: int) -> np.ndarray:
    order = np.argsort(-np.abs(x).ravel(), kind="stable")
    return np.isin(np.arange(x.size), order[:k]).reshape(x.shape)


def quantized(x: np.ndarray) -> np.ndarray:
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    return np.clip(np.rint(x / scale), -127, 127).astype(np.int8)


def unary(name: str, ufunc: Callable[..., Any], specs: str = "float32[3,7]") -> dict[str, Case]:
    return {name: Case(specs, getattr(f, name), ufunc, close=True)}


CASES: dict[str, Case] = {
    "transpose": Case(
        "bfloat16[2,3,4]", lambda x: f.transpose(x, (1, -1, 0)), lambda x: x.transpose(1, 2, 0)
    ),
    "reshape": Case("int8[4,6]", lambda x: f.reshape(x, (3, -1)), lambda x: x.reshape(3, 8)),
    "rearrange": Case(
        "float32[4,6]",
        lambda x: f.rearrange(x, "d (h k) -> h k d", k=3),
        lambda x: einops.rearrange(x, "d (h k) -> h k d", k=3),
    ),
    "squeeze": Case("float32[3,1,2]", lambda x: f.squeeze(x, 1), lambda x: x.squeeze(1)),
    "expand_dims": Case("float32[3,2]", lambda x: f.expand_dims(x, (0, -1)), lambda x: x[None, :, :, None]),
    "flip": Case("int8[3,4]", lambda x: f.flip(x, -1), lambda x: np.flip(x, -1)),
    "take": Case("float32[2,5]", lambda x: f.take(x, (3, 0, -1, 3), 1), lambda x: x[:, [3, 0, -1, 3]]),
    "repeat": Case("float32[2,4]", lambda x: f.repeat(x, 3, 1), lambda x: np.repeat(x, 3, 1)),
    "tile": Case("int8[3,2]", lambda x: f.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
    "pad": Case(
        "int8[2,4]", lambda x: f.pad(x, -1, 6, 9), lambda x: np.pad(x, ((0, 0), (0, 2)), constant_values=9)
    ),
    "stack": Case("float32[3,2] float32[3,2]", lambda *xs: f.stack(xs, 1), lambda *xs: np.stack(xs, 1)),
    "concat": Case(
        "int8[2,3] int8[2,0] int8[2,4]", lambda *xs: f.concat(xs, 1), lambda *xs: np.concatenate(xs, 1)
    ),
    "cast": Case("float32[3,5]", lambda x: f.cast(x, BF16), as_type(BF16)),
    "bitcast": Case("int8[2,12]", lambda x: f.bitcast(x, F32), lambda x: x.view(F32)),
    "allow_nonfinite": Case("float32[3,5]", f.allow_nonfinite, lambda x: x),
    "maximum": Case("float32[3,5] float32[5]", f.maximum, np.maximum),
    "minimum": Case("float32[3,5]", lambda x: f.minimum(0.25, x), lambda x: np.minimum(np.float32(0.25), x)),
    "clip": Case("float32[3,5]", lambda x: f.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    "where": Case(
        "bool[3,1] int8[5]", lambda c, x: f.where(c, x, 7), lambda c, x: np.where(c, x, np.int8(7))
    ),
    "abs": Case("int8[3,5]", f.abs, np.abs),
    "sign": Case("float32[3,5]", f.sign, np.sign),
    **unary("sqrt", np.sqrt),
    **unary("rsqrt", lambda x: 1 / np.sqrt(x)),
    **unary("exp", np.exp),
    **unary("log", np.log),
    **unary("sin", np.sin),
    **unary("cos", np.cos),
    **unary("arccos", np.arccos),
    "sum": Case(
        "float32[4,5,3]", lambda x: f.sum(x, (0, 2), True), lambda x: wide(x).sum((0, 2), keepdims=True), True
    ),
    "sum of a list": Case("int8[4] int8[4]", lambda *xs: f.sum(xs), lambda a, b: wide(a) + b, True),
    "mean": Case("float32[4,5]", lambda x: f.mean(x, 1), lambda x: wide(x).mean(1), True),
    "mean of a list": Case(
        "float32[4] float32[4]", lambda *xs: f.mean(xs), lambda a, b: (wide(a) + b) / 2, True
    ),
    "max": Case("int8[4,5]", lambda x: f.max(x, 0), lambda x: x.max(0)),
    "max of a list": Case("int8[4] int8[4]", lambda *xs: f.max(xs), np.maximum),
    "min": Case("int8[4,5]", lambda x: f.min(x), lambda x: x.min()),
    "min of a list": Case("int8[4] int8[4]", lambda *xs: f.min(xs), np.minimum),
    "norm": Case("float32[4,5]", lambda x: f.norm(x, 1), lambda x: np.linalg.norm(wide(x), axis=1), True),
    "resize": Case(
        "float32[2,4]",
        lambda x: f.resize(x, (2, 2), "linear", antialias=False),
        lambda x: (x[:, ::2] + x[:, 1::2]) / 2,
        close=True,
    ),
    "einsum": Case(
        "float32[3,9] float32[9,4]",
        lambda a, b: f.einsum("ij,jk->ki", a, b),
        lambda a, b: np.einsum("ij,jk->ki", wide(a), wide(b)),
        close=True,
    ),
    "zeros": Case("", lambda: f.zeros((2, 3), BF16), lambda: np.zeros((2, 3), BF16)),
    "ones": Case("", lambda: f.ones(4, INT8), lambda: np.ones(4, INT8)),
    "full": Case("", lambda: f.full((2, 2), 2.5, F64), lambda: np.full((2, 2), 2.5)),
    "arange": Case("", lambda: f.arange(9, -3, -2, INT64), lambda: np.arange(9, -3, -2)),
    "init": Case(
        "",
        lambda: f.init("constant", (2, 3), F32, value=0.5, leaf_key=KEY),
        lambda: np.full((2, 3), 0.5, F32),
    ),
    "topk_mask": Case("float32[4,6]", lambda x: f.topk_mask(x, 5), lambda x: largest(x, 5)),
    "top_share_mask": Case("float32[4,6]", lambda x: f.top_share_mask(x, 0.25), lambda x: largest(x, 6)),
    "random_mask": Case(
        "int8[4,6]", lambda x: f.random_mask(x, 1, 3, leaf_key=KEY), lambda x: np.ones(x.shape, bool)
    ),
    "ranks": Case("float32[4,6]", f.ranks, lambda x: x.argsort(-1).argsort(-1)),
    "karcher_weights": Case(
        "",
        lambda: f.karcher_weights(f.full((2, 2), 1, F64), f.full(2, 3, F64)),
        lambda: np.full(2, 0.5),
        True,
    ),
    "quantize": Case("float32[4,6]", lambda x: f.quantize(x, INT8, 1)[0], quantized),
    "dequantize": Case("int8[4,6] float32[4,1]", f.dequantize, lambda x, scale: x * scale),
    "unpack": Case(
        "uint8[2,3]",
        lambda x: f.unpack(x, dtype_named("uint4")),
        lambda x: np.stack([x & 15, x >> 4], -1).reshape(2, 6).astype(ml_dtypes.uint4),
    ),
    "require_equal": Case("float32[3,5]", lambda x: f.require_equal(x, f.cast(x, F64), "no"), lambda x: x),
    "an operator": Case(
        "float32[3,5]", lambda x: (2 - x) * x[::-1] >= x.T[0, 0], lambda x: (2 - x) * x[::-1] >= x[0, 0]
    ),
}
OF_TEXT = {"int", "is_inexact", "len", "lower", "range", "replace", "require", "str", "upper"}
"""Functions that give no arrays."""


def agree(found: np.ndarray, expected: Any, close: bool) -> bool:
    if not close:
        return same(found, np.asarray(expected))
    return bool(np.allclose(wide(found), expected, rtol=1e-5, atol=1e-6, equal_nan=True))


@pytest.mark.each
@pytest.mark.parametrize("name", CASES)
@examples(12)
@given(data=st.data())
def test_any_region_is_that_of_numpy(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    arrays = [numbers(text, seed) for seed, text in enumerate(case.specs.split())]
    value = case.call(*lazily(arrays))
    with np.errstate(all="ignore"):
        expected = np.ascontiguousarray(case.numpy(*arrays))
    expected = expected.reshape(value.shape)
    whole = computed(value, arrays)
    assert agree(whole, expected, case.close)
    region = data.draw(regions(value.shape))
    assert same(computed(value, arrays, region), whole[region.slices])


def test_every_function_has_a_case() -> None:
    assert {name.removesuffix(" of a list") for name in CASES} - {
        "an operator"
    } == registry().keys() - OF_TEXT
