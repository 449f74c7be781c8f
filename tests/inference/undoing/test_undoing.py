"""Dtypes that hold all values of others: every value of the narrow ones is cast there and back."""

import numpy as np
import pytest

from ckpt_surgery.core.dtypes import DTYPES, bits, computation, converted, kind
from ckpt_surgery.inference.undoing.undoing import holds_all, scales_exactly

NARROW = [name for name, dtype in DTYPES.items() if bits(dtype) <= 16 and kind(dtype) in "iuf"]
WIDE = [name for name, dtype in DTYPES.items() if kind(dtype) in "iuf"]


def every_value(name: str) -> np.ndarray:
    """All values of a dtype, as it stores them; NaN left out."""
    dtype = DTYPES[name]
    width = np.uint8 if dtype.itemsize == 1 else np.uint16
    values = np.arange(2 ** bits(dtype), dtype=width).view(dtype)
    if kind(dtype) == "f":
        values = values[~np.isnan(converted(values, computation(dtype)))]
    elif bits(dtype) < 8:
        values = np.unique(values.astype(np.int64)).astype(dtype)
    return values


@pytest.mark.parametrize("narrow", NARROW)
def test_what_is_held_comes_back(narrow: str) -> None:
    values = every_value(narrow)
    for wide in WIDE:
        if holds_all(DTYPES[wide], DTYPES[narrow]):
            there = converted(converted(values, computation(DTYPES[narrow])), DTYPES[wide])
            back = converted(converted(there, computation(DTYPES[wide])), DTYPES[narrow])
            assert np.array_equal(back.astype(np.float64), values.astype(np.float64)), wide


HELD = [
    ("float64", "float32", True),
    ("float32", "bfloat16", True),
    ("float32", "float16", True),
    ("float16", "bfloat16", False),
    ("bfloat16", "float16", False),
    ("float32", "float64", False),
    ("bfloat16", "float8_e4m3fn", True),
    ("float16", "float8_e5m2", True),
    ("float64", "int32", True),
    ("float32", "int32", False),
    ("float32", "int16", True),
    ("int64", "uint32", True),
    ("int32", "uint32", False),
    ("int64", "float32", False),
    ("float6_e2m3fn", "int4", False),
    ("float8_e8m0fnu", "int2", False),
    ("int8", "bool", True),
    ("bool", "int8", False),
    ("complex128", "complex64", True),
    ("complex64", "float32", False),
]


@pytest.mark.parametrize(("wide", "narrow", "held"), HELD)
def test_which_holds_which(wide: str, narrow: str, held: bool) -> None:
    assert holds_all(DTYPES[wide], DTYPES[narrow]) is held


@pytest.mark.parametrize(
    ("factor", "dtype", "exact"),
    [
        (2, "float32", True),
        (-0.25, "bfloat16", True),
        (3, "float32", False),
        (0, "float32", False),
        (True, "float32", False),
        (float("inf"), "float32", False),
        (2.0**-100, "float32", True),
        (2.0**-100, "float16", False),
    ],
)
def test_factors_that_do_not_round(factor: float, dtype: str, exact: bool) -> None:
    assert scales_exactly(factor, DTYPES[dtype]) is exact
