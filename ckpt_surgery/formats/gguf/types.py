"""The types of tensors in GGUF files: plain numbers, and blocks of quantized ones.

Source: the enumeration `ggml_type` and the structures `block_…` of ggml, as gguf 0.19 lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class TensorType:
    """How the elements of a tensor are stored."""

    name: str
    """Its name in ggml: `F16`, `Q4_K`."""
    dtype: np.dtype[Any]
    """What the elements are read as; float32 for all that are quantized."""
    length: int = 1
    """Number of elements in a block, which are neighbours along the last axis."""
    nbytes: int = 0
    """Number of bytes of a block."""

    @property
    def quantized(self) -> bool:
        """Whether the elements are stored in blocks, from which float32 is computed."""
        return self.length > 1


_PLAIN = {
    0: ("F32", "float32"),
    1: ("F16", "float16"),
    24: ("I8", "int8"),
    25: ("I16", "int16"),
    26: ("I32", "int32"),
    27: ("I64", "int64"),
    28: ("F64", "float64"),
    30: ("BF16", "bfloat16"),
}

_QUANTIZED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

TYPES: Mapping[int, TensorType] = {
    **{n: TensorType(name, DTYPES[of], 1, DTYPES[of].itemsize) for n, (name, of) in _PLAIN.items()},
    **{number: TensorType(name, DTYPES["float32"], *block) for number, (name, *block) in _QUANTIZED.items()},
}
"""Every type by its number in files. The numbers that are missing were never in use, or are not any more."""
BLOCKS: Mapping[str, TensorType] = {type.name: type for type in TYPES.values() if type.quantized}
"""The quantized types by name."""
UNDECODED = frozenset({"Q8_1", "Q8_K", "Q1_0"})
"""Quantized types that gguf 0.19 has no decoder for."""
