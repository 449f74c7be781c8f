"""The table of element types, held to what NumPy and ml_dtypes say of them."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.dtypes import DTYPES, ELEMENT_TYPES, NUMPY_NAMES, bits, dtype_named, kind, limits
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.manifests import PART_BYTES
from ckpt_surgery.formats.safetensors.header import DTYPES as OF_SAFETENSORS
from ckpt_surgery.formats.shared.npy import DESCRIPTIONS
from ckpt_surgery.formats.shared.torch.globals import DTYPES as OF_TORCH
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.formats.tensorflow.index import NUMBERS


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


@pytest.mark.parametrize("name", NUMPY_NAMES)
def test_numpys_own_types_say_their_kind_themselves(name: str) -> None:
    assert kind(DTYPES[name]) == np.dtype(name).kind


def test_what_has_no_numbers_is_refused() -> None:
    for refused in (kind, bits):
        with pytest.raises(FunctionError, match="arrays of dtype object cannot be computed with"):
            refused(np.dtype(object))


@pytest.mark.parametrize(
    ("name", "hint"),
    [("flaot32", None), ("fp8", "Types are written in full, such as float32, bfloat16 and float8_e4m3fn.")],
)
def test_unknown_names_of_types(name: str, hint: str | None) -> None:
    with pytest.raises(FunctionError, match=f"unknown dtype `{name}`") as caught:
        dtype_named(name)
    assert caught.value.problems[0].hint == hint


def test_the_formats_tables_refer_to_it() -> None:
    """One object for each type: comparing dtypes is then comparing addresses."""
    for table in (OF_SAFETENSORS, NUMBERS, OF_TORCH):
        assert all(dtype is DTYPES[dtype.name] for dtype in table.values())
    assert all(dtype is DTYPES[dtype.name] for dtype in DESCRIPTIONS)
    assert set(ELEMENT_TYPES) >= HELD


def test_types_of_which_not_every_byte_is_a_value_are_narrow() -> None:
    assert all(name == "bool" or ELEMENT_TYPES[name].bits < 8 for name in PART_BYTES)
