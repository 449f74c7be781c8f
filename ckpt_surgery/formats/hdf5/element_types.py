"""Dtypes of the elements of datasets, by the HDF5 type that is stored with them.

Sources: the HDF5 1.14 specification, section IV.A.2.d; what h5py 3.14 writes for NumPy's bool (an
enumeration) and complex types (a compound of `r` and `i`); what Keras 3.15 writes for bfloat16: two opaque
bytes, and an attribute `dtype` of the dataset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES, NUMPY_NAMES
from ckpt_surgery.core.leaves import Unreadable

DType = np.dtype[Any]

OPAQUE_NAMES = tuple(name for name in DTYPES if name.startswith(("bfloat16", "float8")))
"""Types of ml_dtypes that are stored as opaque bytes, with their name in an attribute. Types of fewer than
8 bits are left out: not every byte is a value of theirs."""
HELD: Mapping[DType, str] = {DTYPES[name]: name for name in (*NUMPY_NAMES, *OPAQUE_NAMES)}
"""The dtypes that a file can hold, and their names."""
DTYPE_ATTRIBUTE = "dtype"
"""Attribute of a dataset of opaque bytes that names their type."""
MOST_OPAQUE_BYTES = 1 << 20
"""Size of elements that cannot be read up to which they are listed with their size."""


@dataclass(frozen=True)
class Hdf5Type:
    """The type of a dataset's elements."""

    dtype: DType
    """In native byte order. What cannot be read has bytes of no type, or objects where the size differs."""
    big: bool = False
    """Whether the elements are stored big endian."""
    unreadable: Unreadable | None = None
    """Reason why they cannot be used, as a predicate, and what to do; None if they can be read."""


def element_type(stored: Any, name: str | None) -> Hdf5Type:
    """The type for h5py's `TypeID`. `name`: the attribute `dtype` of the dataset, where there is one.

    Raises what h5py raises.
    """
    return _element_type(stored.encode(), name)


@lru_cache(maxsize=1024)
def _element_type(encoded: bytes, name: str | None) -> Hdf5Type:
    from h5py import h5t

    stored = h5t.decode(encoded)
    kind = stored.get_class()
    if kind == h5t.OPAQUE:
        return _opaque(stored, name)
    width = ("has numbers of an unusual width or form", "Save it in a common type.")
    words = {
        h5t.INTEGER: width,
        h5t.FLOAT: width,
        h5t.ENUM: ("is an enumeration of unusual numbers", "Save it in a common type."),
        h5t.COMPOUND: ("is an array of records", "Save each of its fields as an array."),
        h5t.STRING: ("is an array of strings", "Leave it out."),
        h5t.REFERENCE: ("is an array of references", "Leave it out."),
        h5t.VLEN: ("is an array of lists of different lengths", "Leave it out."),
        h5t.ARRAY: ("has arrays as elements", "Leave it out."),
        h5t.BITFIELD: ("is an array of bit fields", "Leave it out."),
        h5t.TIME: ("is an array of dates", "Leave it out."),
    }
    why, hint = words.get(kind, ("has elements of an unknown kind", "Leave it out."))
    return _number(stored) or _unreadable(stored, why, hint)


def _number(stored: Any) -> Hdf5Type | None:
    """Numbers, truths and complex numbers, where the type is bit for bit as h5py stores a dtype."""
    from h5py import h5t

    kind = stored.get_class()
    if kind == h5t.ENUM:  # h5py's booleans; the numbers of other enumerations
        number = _number(stored.get_super())
        truths = number is not None and number.dtype.itemsize == 1 and stored.dtype == np.bool_
        return Hdf5Type(DTYPES["bool"]) if truths else number
    if kind not in (h5t.INTEGER, h5t.FLOAT, h5t.COMPOUND):
        return None
    for half, big in ((h5t.IEEE_F16LE, False), (h5t.IEEE_F16BE, True)):
        if stored.equal(_bfloat16(half)):
            return Hdf5Type(DTYPES["bfloat16"], big)
    if kind == h5t.INTEGER and stored.get_size() == 1:
        stored = stored.copy()
        stored.set_order(h5t.ORDER_LE)  # of no account, and NumPy has none
    try:
        dtype = stored.dtype
    except (TypeError, ValueError):  # NumPy has no such type
        return None
    native = dtype.newbyteorder("=")
    if native not in HELD or not h5t.py_create(dtype, logical=True).equal(stored):
        return None
    return Hdf5Type(native, dtype.byteorder == ">")


def _bfloat16(half: Any) -> Any:
    """bfloat16 as HDF5 can describe it: a float with 8 bits of exponent and 7 of mantissa."""
    bfloat16 = half.copy()
    bfloat16.set_fields(15, 7, 8, 0, 7)
    bfloat16.set_ebias(127)
    return bfloat16


def _opaque(stored: Any, name: str | None) -> Hdf5Type:
    """Types of ml_dtypes. Without a name two bytes are bfloat16: in earlier Keras files they have none."""
    size = stored.get_size()
    if name in OPAQUE_NAMES and DTYPES[name].itemsize == size:
        return Hdf5Type(DTYPES[name])
    if name is None and size == 2:
        return Hdf5Type(DTYPES["bfloat16"])
    if name is None and size == 1:
        why = "is stored as single bytes without a type: nothing records which narrow type they are"
        return _unreadable(stored, why, "Save it in a wider type, or in another format.")
    return _unreadable(stored, "is an array of untyped bytes", "Save it as numbers.")


def _unreadable(stored: Any, why: str, hint: str) -> Hdf5Type:
    from h5py import h5t

    varies = stored.detect_class(h5t.VLEN) or stored.detect_class(h5t.REFERENCE)
    if isinstance(stored, h5t.TypeStringID):
        varies = varies or stored.is_variable_str()
    size = stored.get_size()
    dtype = np.dtype("O") if varies or not 0 < size <= MOST_OPAQUE_BYTES else np.dtype(f"V{size}")
    return Hdf5Type(dtype, unreadable=Unreadable(why, hint))
