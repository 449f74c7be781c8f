"""Type promotion of NumPy and JAX, whose functions are asked, and the casts that express it in recipes."""

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.dtypes import BOOL, DTYPES, NUMPY_NAMES, DType, kind
from ckpt_surgery.migration.standins import COMPARISONS, OPERATORS

NUMPY = "numpy"
JAX = "jax"


@dataclass(frozen=True)
class PromotedKind:
    """Shape and dtype of an argument or a result of a library's function."""

    shape: Shape
    dtype: DType
    weak: bool = False
    """True if its dtype is weak in JAX: it yields to that of another operand."""


_NAMES: Mapping[str, str] = {
    **{symbol: function for symbol, (_, function) in OPERATORS.items()},
    "neg": "negative",
    "~": "invert",
    "concat": "concatenate",
    "rsqrt": "reciprocal",
}
"""Operators, and functions of the language that have other names in the libraries."""


_KNOWN: dict[Hashable, Any] = {}


def outcome(library: str, name: str, arguments: Sequence[Any], **keywords: Any) -> PromotedKind:
    """Outcome of a function for such dtypes, with axes of length 1. Raises what the function raises."""
    if library == NUMPY:  # whose functions do what its operators do, but for powers of bools
        function = operator.pow if name == "**" else getattr(np, _NAMES.get(name, name))
    else:
        import jax

        function = jax.lax.rsqrt if name == "rsqrt" else getattr(jax.numpy, _NAMES.get(name, name))
    ones = _abstract(list(arguments), lambda operand: (1,) * len(operand.shape))
    result: PromotedKind = _asked(library, function, ones, keywords)
    return result


def whole_outcome(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Result of a function of JAX: a PromotedKind, or a list or tuple. Raises what the function raises."""
    given = _abstract([list(arguments), dict(keywords)], lambda operand: operand.shape)
    return _asked(JAX, function, *given)


def is_operand(value: Any) -> bool:
    """True if an argument is an array known only by its spec."""
    return hasattr(type(value), "weak")


def _abstract(value: Any, shape_of: Callable[[Any], Shape]) -> Any:
    """Replace the operands in an argument by their kinds."""
    return mapped(value, lambda operand: PromotedKind(shape_of(operand), operand.dtype, operand.weak))


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to an operand, or to those in lists, tuples and dicts; other values stay as they are."""
    if type(value) is list:
        return [mapped(item, change) for item in value]
    if type(value) is tuple:
        return tuple(mapped(item, change) for item in value)
    if type(value) is dict:
        return {name: mapped(item, change) for name, item in value.items()}
    return change(value) if is_operand(value) else value


def _asked(library: str, function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Any:
    try:
        key: Hashable = (function, _key(arguments), _key(keywords))
    except TypeError:  # an argument has no hash
        key = None
    if key in _KNOWN:
        return _KNOWN[key]
    if library == JAX:
        result = _asked_jax(function, arguments, keywords)
    else:
        given = mapped(arguments, lambda operand: np.ones(operand.shape, operand.dtype))
        with np.errstate(all="ignore"):
            array = np.asarray(function(*given, **keywords))
        result = PromotedKind(array.shape, array.dtype)
    if len(_KNOWN) >= 4096:  # thousands of leaves have few shapes and dtypes
        _KNOWN.clear()
    if key is not None:
        _KNOWN[key] = result
    return result


def _key(value: Any) -> Hashable:
    """Cache key of an argument, different for 1, 1.0 and True."""
    if isinstance(value, list | tuple):
        return (type(value), *map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in value.items())
    if isinstance(value, float):
        return (float, repr(value))
    hash(value)
    return (type(value), value)


def _asked_jax(function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Any:
    import jax

    structs: list[Any] = []

    def abstract(operand: PromotedKind) -> None:
        structs.append(jax.ShapeDtypeStruct(operand.shape, operand.dtype, weak_type=operand.weak))  # type: ignore[no-untyped-call]

    def call(*arrays: Any) -> Any:
        remaining = iter(arrays)
        given, named = mapped([arguments, dict(keywords)], lambda operand: next(remaining))
        return function(*given, **named)

    mapped([arguments, dict(keywords)], abstract)
    return jax.tree.map(
        lambda s: PromotedKind(tuple(s.shape), np.dtype(s.dtype), bool(getattr(s, "weak_type", False))),
        jax.eval_shape(call, *structs),
    )


LISTS = ("concat", "stack")
REDUCTIONS = ("sum", "mean", "max", "min")
_APPROXIMATED = ("rsqrt", "exp", "log", "sin", "cos", "arccos", "**")
"""Functions whose last bits depend on the library: JAX has its own, NumPy has others for 16 bits."""
_ROUNDED_FROM_FLOAT64 = ("exp", "log", "sin", "cos", "arccos", "sign")
"""Functions that ml_dtypes rounds once from float32: all values agree if float64 is rounded to that first."""
_PROMOTING = {
    *(*OPERATORS, "~", "minimum", "maximum", "clip", "abs", "sqrt", "rsqrt", "exp", "log", "sin", "cos"),
    *("arccos", "sign", "neg"),
}


def promote(
    library: str, name: str, operands: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[Sequence[Any], PromotedKind | None, str | None]:
    """Cast the operands of an operator or of a function of the language as the library does.

    Returns them, the library's outcome, None if the dtype does not change, and the reason why its result has
    other bits, if it has. Raises what the library's function raises for such operands.
    """
    first, *others = operands
    if name in REDUCTIONS:
        result = outcome(library, name, operands, **keywords)
        narrow = kind(first.dtype) == "f" and first.dtype.itemsize < 4
        rounds = name == "sum" or (name == "mean" and first.dtype.name != "float16")
        inexact = f"NumPy's `{name}` rounds each partial sum to {first.dtype.name}"
        if name == "mean" and kind(first.dtype) in "biu":
            first = converted(first, result.dtype)
        return [first, *others], result, inexact if library == NUMPY and narrow and rounds else None
    if name in LISTS:
        result = outcome(library, name, operands, **keywords)
        return [[converted(item, result.dtype) for item in first], *others], result, None
    if name in ("where", "einsum"):
        result = outcome(library, name, operands)
        first = converted(first, BOOL) if name == "where" else first
        return [first, *(converted(other, result.dtype) for other in others)], result, None
    if name not in _PROMOTING:
        return operands, None, None
    result = outcome(library, name, operands)
    # Not the narrowest floats of ml_dtypes, and not the one of exponents alone.
    has_sign_and_nan = result.dtype.name.startswith(("bfloat", "float8")) and "e8m0" not in result.dtype.name
    if library == NUMPY and name in _ROUNDED_FROM_FLOAT64 and has_sign_and_nan:
        return [converted(operand, DTYPES["float64"]) for operand in operands], result, None
    work = compared_dtype(library, operands) if name in COMPARISONS else result.dtype
    if name != "~" and work is not None:
        operands = [converted(operand, work) for operand in operands]
    return operands, result, _inexact(library, name, result.dtype)


def _inexact(library: str, name: str, dtype: DType) -> str | None:
    """Reason why a result of this dtype has other bits than the language's; None if it has the same."""
    narrow = kind(dtype) == "f" and dtype.itemsize < 4
    if library == JAX and kind(dtype) == "f" and (name in _APPROXIMATED or (name == "//" and narrow)):
        return f"`{name}` of JAX rounds in another way"
    if library == NUMPY and narrow and (name in _APPROXIMATED or (name == "sign" and of_ml_dtypes(dtype))):
        return f"NumPy's `{name}` of {dtype.name} rounds in another way than that of float32"
    return None


def of_ml_dtypes(dtype: DType) -> bool:
    """True for dtypes that ml_dtypes adds to NumPy's."""
    return dtype.name not in NUMPY_NAMES


def converted(value: Any, dtype: DType) -> Any:
    """Cast an operand, or a number: an array if not finite. Raises OverflowError for too large integers."""
    if is_operand(value):
        return value.converted(dtype)
    if not isinstance(value, bool | int | float):
        return value
    with np.errstate(all="ignore"):
        rounded = np.array(value).astype(dtype) if isinstance(value, float) else np.array(value, dtype)
    if kind(dtype) == "f" and not np.isfinite(rounded):
        return rounded
    if kind(dtype) != "f" or dtype.itemsize > 2 or float(rounded) == value:
        return value
    return float(rounded)


def compared_dtype(library: str, operands: Sequence[Any]) -> DType | None:
    """The dtype in which operands are compared; None if they are compared exactly, as integers are."""
    arrays = [operand for operand in operands if is_operand(operand)]
    others = [operand for operand in operands if not is_operand(operand)]
    if all(kind(array.dtype) in "biu" for array in arrays) and all(type(n) in (bool, int) for n in others):
        return None
    if library == JAX:
        return outcome(library, "+", operands).dtype
    if len(arrays) > 1:
        return np.dtype(np.greater.resolve_dtypes((arrays[0].dtype, arrays[1].dtype, None))[0])
    dtype, number = arrays[0].dtype, others[0]
    if kind(dtype) in "biu":
        return np.dtype(np.float64)
    # Dtypes of ml_dtypes are compared in float32 or in themselves: it is tried, with a number between two of
    # theirs.
    rounded = np.ones(1, dtype) * dtype.type(number)
    same = bool(np.equal(rounded, number)[0]) and float(rounded[0]) != number
    return dtype if same or not of_ml_dtypes(dtype) else np.dtype(np.float32)
