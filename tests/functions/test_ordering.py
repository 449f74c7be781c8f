"""Ranks against a sort in Python, for all dtypes and any part of an array."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions import masks
from ckpt_surgery.functions.masks import Ranks
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.evaluation import evaluate
from tests.support.strategies import regions, shapes


def by_sorting(row: np.ndarray) -> np.ndarray:
    """The ranks of a vector from Python's stable sort; NaN is above all."""
    values = [float(x) if row.dtype.kind not in "iu" else int(x) for x in row]
    order = sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), values[i], i))
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values))
    return found


NAMES = [
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "float8_e4m3fn",
    "int8",
    "int32",
    "int64",
    "uint32",
    "int4",
]


@pytest.mark.parametrize("name", NAMES)
@examples(15)
@given(shape=shapes(7, 1, 1, 3), seed=st.integers(0, 99), few=st.booleans(), data=st.data())
def test_ranks_are_those_of_a_stable_sort(
    name: str, shape: Shape, seed: int, few: bool, data: st.DataObject
) -> None:
    numbers = np.random.default_rng(seed).normal(size=shape) * (2 if few else 5)
    wide = np.abs(numbers) if name.startswith("u") else numbers
    array = wide.astype(np.int8 if few else np.float32).astype(dtype_named(name))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    expected = np.apply_along_axis(by_sorting, axis, array) if array.size else np.empty(shape, np.int64)
    region = data.draw(regions(shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "TILE", 8)
        assert same(evaluate(Ranks(axis), [array]), expected)
        assert same(evaluate(Ranks(axis), [array], region), expected[region.slices])


def test_extreme_values() -> None:
    for values, dtype, ranks in (
        ([0.0, -0.0, 1e-45, -1e-45], np.float32, [1, 2, 3, 0]),  # both zeros are equal
        ([np.nan, np.inf, -np.nan, -np.inf, 3], np.float32, [3, 2, 4, 0, 1]),
        ([np.nan, np.inf, -np.nan, -np.inf, 3], np.float64, [3, 2, 4, 0, 1]),
        ([-(2**31), 2**31 - 1, 0, -1], np.int32, [0, 3, 2, 1]),
        ([2**32 - 1, 0, 2**31], np.uint32, [2, 0, 1]),
        ([-128, 127, -1, -1], np.int8, [0, 3, 1, 2]),
    ):
        assert evaluate(Ranks(), [np.array(values, dtype)]).tolist() == ranks


def test_a_part_of_a_long_row_needs_the_whole_row() -> None:
    spec = ArraySpec((4, 100_000), np.dtype(np.float32))
    assert Ranks().needs(Region((1, 5), (2, 9)), [spec]) == [(0, Region((1, 0), (2, 100_000)))]
    array = np.random.default_rng(0).normal(size=spec.shape).astype(np.float32)
    found = evaluate(Ranks(), [array], Region((1, 99_000), (3, 100_000)))
    np.testing.assert_array_equal(found, np.argsort(np.argsort(array[1:3], kind="stable"))[:, 99_000:])


def test_what_is_refused() -> None:
    for function, dtype, message in (
        (Ranks(), "bool", "`ranks` needs integers or floats, not bool"),
        (Ranks(), "complex64", "`ranks` needs integers or floats, not complex64"),
        (Ranks(2), "float32", "`ranks`: there is no axis 2 in an array of 2 axes"),
    ):
        with pytest.raises(FunctionError) as caught:
            function.infer([ArraySpec((2, 3), dtype_named(dtype))])
        assert message in str(caught.value)
