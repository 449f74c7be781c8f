"""TensorFlow's DataTypes by their numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES

STRING = 7
"""The DataType of strings."""


NUMBERS: Mapping[int, np.dtype[Any]] = {
    number: DTYPES[name]
    for number, name in {
        1: "float32",
        2: "float64",
        3: "int32",
        4: "uint8",
        5: "int16",
        6: "int8",
        8: "complex64",
        9: "int64",
        10: "bool",
        14: "bfloat16",
        17: "uint16",
        18: "complex128",
        19: "float16",
        22: "uint32",
        23: "uint64",
        24: "float8_e5m2",
        25: "float8_e4m3fn",
        26: "float8_e4m3fnuz",
        27: "float8_e4m3b11fnuz",
        28: "float8_e5m2fnuz",
        29: "int4",
        30: "uint4",
        31: "int2",
        32: "uint2",
        33: "float4_e2m1fn",
    }.items()
}
"""Dtypes of those DataTypes that are numbers. Elements of narrow ones take a byte each in files."""


OTHERS = {
    STRING: "string",
    11: "qint8",
    12: "quint8",
    13: "qint32",
    15: "qint16",
    16: "quint16",
    20: "resource",
    21: "variant",
}
"""Names of the DataTypes that are no dtype."""


def type_name(number: int) -> str:
    """TensorFlow's name of a DataType."""
    return NUMBERS[number].name if number in NUMBERS else OTHERS.get(number, f"DataType {number}")
