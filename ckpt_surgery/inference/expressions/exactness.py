"""Which dtypes hold all values of others, and which numbers multiply without rounding."""

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes

from ckpt_surgery.core.dtypes import DType, has_infinity, has_nan, is_integer, kind, limits
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Number
from ckpt_surgery.functions.dtypes import number_as

_finfo: Callable[[DType], Any] = ml_dtypes.finfo
_WITHOUT_ZERO = "float8_e8m0fnu"
"""A dtype of powers of two alone."""


@functools.cache
def holds_all(wide: DType, narrow: DType) -> bool:
    """Whether each value of `narrow` is one of `wide` too, so that a cast there and back changes nothing."""
    if wide == narrow:
        return True
    kinds = kind(narrow) + kind(wide)
    if kinds[1] == "b" or kinds[0] == "c":
        return kinds == "cc" and wide.itemsize > narrow.itemsize
    if kinds[0] == "b":
        return kinds[1] != "c" and wide.name != _WITHOUT_ZERO
    if kinds[1] == "c":  # the way back would drop the imaginary part, which no cast does
        return False
    if is_integer(narrow):
        low, high = limits(narrow)
        if is_integer(wide):
            return limits(wide)[0] <= low and high <= limits(wide)[1]
        exact = 2 ** (int(_finfo(wide).nmant) + 1)
        least, most = limits(wide)
        return max(-exact, least) <= low and high <= min(exact, most) and wide.name != _WITHOUT_ZERO
    return not is_integer(wide) and _holds_floats(wide, narrow)


def _holds_floats(wide: DType, narrow: DType) -> bool:
    a, b = _finfo(wide), _finfo(narrow)
    low, high = limits(narrow)
    return (
        int(a.nmant) >= int(b.nmant)
        and limits(wide)[0] <= low
        and high <= limits(wide)[1]
        and float(a.smallest_subnormal) <= float(b.smallest_subnormal)
        and has_nan(wide) >= has_nan(narrow)
        and has_infinity(wide) >= has_infinity(narrow)
        and wide.name != _WITHOUT_ZERO
    )


def scales_exactly(factor: Number, dtype: DType) -> bool:
    """Whether products and quotients with a number are exact, unless they leave the range of a float dtype.

    So it is with powers of two that the dtype holds, and whose reciprocal it holds.
    """
    if isinstance(factor, bool) or factor == 0 or not math.isfinite(factor):
        return False
    if math.frexp(abs(factor))[0] != 0.5:
        return False
    try:
        return all(float(number_as(c, dtype)) == c for c in (float(factor), 1.0 / factor))
    except FunctionError:
        return False
