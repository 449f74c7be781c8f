"""Element types: their names, kinds and ranges, and rounding to them once."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.dtypes import (
    DTYPES,
    ELEMENT_TYPES,
    NUMPY_NAMES,
    as_float,
    bits,
    dtype_named,
    kind,
    limits,
    rounded_once,
)
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import PART_BYTES
from ckpt_surgery.formats.safetensors.source import DTYPES as OF_SAFETENSORS
from ckpt_surgery.formats.shared.npy import DESCRIPTIONS
from ckpt_surgery.formats.shared.torch.globals import DTYPES as OF_TORCH
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.formats.tensorflow.index import NUMBERS
from tests.support.effort import examples


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_the_table_agrees_with_the_libraries(name: str) -> None:
    found = ELEMENT_TYPES[name]
    assert found.dtype.name == name
    if found.kind == "f":
        assert found.bits == ml_dtypes.finfo(found.dtype).bits
    elif found.kind in "iu":
        assert found.bits == ml_dtypes.iinfo(found.dtype).bits
        assert (found.kind == "i") == (limits(found.dtype)[0] < 0)
    else:
        assert (found.kind, found.bits) == (found.dtype.kind, 8 * found.dtype.itemsize)
    assert -(-found.bits // 8) == found.dtype.itemsize
    assert name not in NUMPY_NAMES or kind(found.dtype) == np.dtype(name).kind


def test_what_has_no_numbers_is_refused() -> None:
    for refused in (kind, bits):
        with pytest.raises(FunctionError, match="arrays of dtype object cannot be computed with"):
            refused(np.dtype(object))


def test_unknown_names_of_types() -> None:
    with pytest.raises(FunctionError, match="unknown dtype `flaot32`; did you mean `float32`"):
        dtype_named("flaot32")
    with pytest.raises(FunctionError, match=r"unknown dtype `fp8`\s+Types are written in full"):
        dtype_named("fp8")


def test_the_formats_tables_refer_to_it() -> None:
    """One object for each type: comparing dtypes is then comparing addresses."""
    for table in (OF_SAFETENSORS, NUMBERS, OF_TORCH):
        assert all(dtype is DTYPES[dtype.name] for dtype in table.values())
    assert all(dtype is DTYPES[dtype.name] for dtype in DESCRIPTIONS)
    assert set(ELEMENT_TYPES) >= HELD


def test_types_of_which_not_every_byte_is_a_value_are_narrow() -> None:
    assert all(name == "bool" or ELEMENT_TYPES[name].bits < 8 for name in PART_BYTES)


BF16 = dtype_named("bfloat16")
POWERS = dtype_named("float8_e8m0fnu")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1 + 2**-8, 1.0),  # halfway: to the even neighbour
        (1 + 2**-8 + 2**-40, 1 + 2**-7),  # just above halfway, which float32 cannot tell
        (1 + 3 * 2**-8 - 2**-40, 1 + 2**-7),  # just below
        (-1 - 2**-8 - 2**-40, -1 - 2**-7),
        (math.inf, math.inf),
        (-0.0, -0.0),
    ],
)
def test_halfway_cases_of_float64_go_to_the_right_side(value: float, wanted: float) -> None:
    with np.errstate(invalid="ignore"):  # as callers do: infinities lack nothing, which NumPy doubts
        found = rounded_once(np.array([value]), BF16)
    assert found.dtype == BF16
    assert found.astype(np.float64).tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_that_no_float_has(dtype: str) -> None:
    step = 2**55  # between neighbouring numbers of bfloat16 from 2**62 on
    values = [2**62 + step // 2, 2**62 + step // 2 + 1, 2**62 + 3 * step // 2 - 1, 2**62 + 3 * step // 2]
    found = rounded_once(np.array(values, dtype), BF16).astype(np.float64)
    assert found.tolist() == [2**62, 2**62 + step, 2**62 + step, 2**62 + 2 * step]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1.0, 1.0),
        (1.4999, 1.0),
        (1.5, 2.0),  # of two equally near powers the larger
        (2.0**-127, 2.0**-127),
        (2.0**-126 * 0.75, 2.0**-126),
        (0.0, math.nan),
        (-1.0, math.nan),
        (math.inf, math.nan),
        (math.nan, math.nan),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nearest_power_of_two(dtype: type, value: float, wanted: float) -> None:
    with np.errstate(invalid="ignore"):
        found = rounded_once(np.array([value], dtype), POWERS).astype(np.float64)
    np.testing.assert_array_equal(found, [wanted])


def test_the_result_is_laid_out_as_the_block_is() -> None:
    block = np.arange(12, dtype=np.float64).reshape(3, 4).T
    found = rounded_once(block, BF16)
    assert found.flags.f_contiguous
    np.testing.assert_array_equal(found.astype(np.float64), block)
    assert rounded_once(np.float64(3).reshape(()), BF16).shape == ()


@examples(200)
@given(st.integers(-(2**80), 2**80))
def test_a_number_of_the_recipe_is_rounded_by_its_type_alone(value: int) -> None:
    """To float32, as an exact fraction is."""
    found = np.float32(as_float(value, np.dtype(np.float32)))
    near = [np.nextafter(found, np.float32(-np.inf)), found, np.nextafter(found, np.float32(np.inf))]
    distances = [abs(Fraction(float(one)) - value) for one in near]
    assert distances[1] == min(distances)
    assert distances.count(min(distances)) == 1 or int(found.view(np.uint32)) % 2 == 0


@pytest.mark.parametrize(("beyond", "wanted"), [(-1, 2**60), (0, 2**60), (1, 2**60 + 2**37)])
def test_an_integer_next_to_the_middle_goes_to_the_right_side(beyond: int, wanted: int) -> None:
    """Between two numbers of float32; float64 has the middle only."""
    middle = 2**60 + 2**36
    assert int(np.float32(as_float(middle + beyond, np.dtype(np.float32)))) == wanted
    assert int(np.float32(as_float(-middle - beyond, np.dtype(np.float32)))) == -wanted


def test_numbers_of_float64_are_pythons_own() -> None:
    assert as_float(2**53 + 1, np.dtype(np.float64)) == float(2**53 + 1)
    assert as_float(0.1, BF16) == 0.1
    with pytest.raises(OverflowError):
        as_float(10**400, BF16)
