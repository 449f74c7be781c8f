"""The casts that NumPy and JAX make of operands of different dtypes, for operators and functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import BOOL, DType, kind
from ckpt_surgery.migration.outcomes import JAX, NUMPY, Outcome, is_operand, outcome

Number = bool | int | float
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Promoted:
    """The operands of a call as the recipe language takes them, and what the library makes of them."""

    operands: Sequence[Any]
    outcome: Outcome | None
    """None where the dtype does not change."""
    inexact: str | None = None
    """Why the library's result has other bits, if it has."""


UNARY = ("abs", "sqrt", "rsqrt", "exp", "log", "sin", "cos", "arccos", "sign", "neg")
LISTS = ("concat", "stack")
REDUCTIONS = ("sum", "mean", "max", "min")
_APPROXIMATED = ("rsqrt", "exp", "log", "sin", "cos", "arccos", "**")
"""Functions whose last bits depend on who computes them: JAX has its own, NumPy has others for 16 bits."""
_PROMOTING = (
    *COMPARISONS,
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "@",
    "&",
    "|",
    "~",
    *UNARY,
    "minimum",
    "maximum",
    "clip",
)


def promote(library: str, name: str, operands: Sequence[Any], keywords: Mapping[str, Any]) -> Promoted:
    """The operands of an operator or of a function of the language, with the casts that the library makes.

    Raises what the library's function raises for such operands.
    """
    if name in REDUCTIONS:
        return _reduced(library, name, operands, keywords)
    if name in LISTS:
        found = outcome(library, name, operands, **keywords)
        return Promoted([[converted(item, found.dtype) for item in operands[0]], *operands[1:]], found)
    if name in ("where", "einsum"):
        found = outcome(library, name, operands)
        first, *others = operands
        first = converted(first, BOOL) if name == "where" else first
        return Promoted([first, *(converted(other, found.dtype) for other in others)], found)
    if name not in _PROMOTING:
        return Promoted(operands, None)
    found = outcome(library, name, operands)
    work = compared_dtype(library, operands) if name in COMPARISONS else found.dtype
    if name == "~":
        work = None
    given = operands if work is None else [converted(operand, work) for operand in operands]
    return Promoted(given, found, _inexact(library, name, found.dtype))


def _inexact(library: str, name: str, dtype: DType) -> str | None:
    """Why a result of this dtype has other bits than the language gives it; None if it has the same."""
    narrow = kind(dtype) == "f" and dtype.itemsize < 4
    if library == JAX and kind(dtype) == "f" and (name in _APPROXIMATED or (name == "//" and narrow)):
        return f"`{name}` of JAX rounds in another way"
    if library == NUMPY and narrow and (name in _APPROXIMATED or (name == "sign" and dtype.kind == "V")):
        return f"NumPy's `{name}` of {dtype.name} rounds in another way than that of float32"
    return None


def _reduced(library: str, name: str, operands: Sequence[Any], keywords: Mapping[str, Any]) -> Promoted:
    x = operands[0]
    found = outcome(library, name, operands, **keywords)
    inexact = None
    narrow = kind(x.dtype) == "f" and x.dtype.itemsize < 4
    if library == NUMPY and narrow and (name == "sum" or (name == "mean" and x.dtype.name != "float16")):
        inexact = f"NumPy's `{name}` rounds each partial sum to {x.dtype.name}"
    if name == "mean" and kind(x.dtype) in "biu":
        x = converted(x, found.dtype)
    return Promoted([x, *operands[1:]], found, inexact)


def converted(value: Any, dtype: DType) -> Any:
    """An operand, or a number of Python, as this dtype. Raises OverflowError for an integer beyond it.

    A number that is not finite becomes an array.
    """
    if is_operand(value):
        return value.converted(dtype)
    if not isinstance(value, Number):
        return value
    with np.errstate(all="ignore"):
        rounded = np.array(value).astype(dtype) if isinstance(value, float) else np.array(value, dtype)
    if kind(dtype) != "f":
        return value
    if not np.isfinite(rounded):
        return rounded
    if dtype.itemsize > 2:
        return value
    narrow = float(rounded)
    return value if narrow == value else narrow


def compared_dtype(library: str, operands: Sequence[Any]) -> DType | None:
    """The dtype in which operands are compared; None if they are compared exactly, as integers are."""
    arrays = [operand for operand in operands if is_operand(operand)]
    others = [operand for operand in operands if not is_operand(operand)]
    if all(kind(array.dtype) in "biu" for array in arrays) and all(type(n) in (bool, int) for n in others):
        return None
    if library == JAX or len(arrays) > 1:
        if library == NUMPY:
            found = np.greater.resolve_dtypes((arrays[0].dtype, arrays[1].dtype, None))
            return np.dtype(found[0])
        return outcome(library, "+", operands).dtype
    return _with_number(arrays[0].dtype, others[0])


def _with_number(dtype: DType, number: Number) -> DType:
    """The dtype in which NumPy compares an array with a number of Python.

    Dtypes of ml_dtypes are compared in float32 or in themselves: it is tried, with a number between two of
    theirs.
    """
    if kind(dtype) in "biu":
        return np.dtype(np.float64)
    rounded = np.ones(1, dtype) * dtype.type(number)
    same = bool(np.equal(rounded, number)[0]) and float(rounded[0]) != number
    return dtype if same or dtype.kind == "f" else np.dtype(np.float32)
