"""What NumPy and JAX make of operands of different dtypes.

Nothing is written down here twice: the libraries' own functions are asked, NumPy's with arrays of one element
and JAX's with shapes alone.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.dtypes import BOOL, DType, kind

NUMPY = "numpy"
JAX = "jax"

Number = bool | int | float


class Operand(Protocol):
    """An array of which only shape and dtype are known."""

    weak: bool

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> DType: ...


@dataclass(frozen=True)
class Outcome:
    """An array that a library's function gives."""

    shape: Shape
    dtype: DType
    weak: bool = False
    """Whether JAX lets its dtype give way to that of another operand."""


_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "neg": operator.neg,
    "~": operator.invert,
    "abs": abs,
}
_JAX_OPERATORS: Mapping[str, str] = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "true_divide",
    "//": "floor_divide",
    "%": "remainder",
    "**": "power",
    "@": "matmul",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "neg": "negative",
    "~": "invert",
}
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_NAMES: Mapping[str, str] = {"concat": "concatenate", "rsqrt": "reciprocal"}
"""Functions of the language that the libraries call differently."""


def function_of(library: str, name: str) -> Callable[..., Any]:
    """The function of NumPy or JAX that an operator or a function of the language stands for."""
    if library == NUMPY:
        return _OPERATORS.get(name) or getattr(np, _NAMES.get(name, name))
    import jax

    if name == "rsqrt":
        return jax.lax.rsqrt
    return getattr(jax.numpy, _JAX_OPERATORS.get(name, _NAMES.get(name, name)))  # type: ignore[no-any-return]


def outcome(library: str, name: str, arguments: Sequence[Any], **keywords: Any) -> Outcome:
    """What the function gives for operands of these dtypes, all of whose axes have the length 1.

    Raises what the function raises.
    """
    function = function_of(library, name)
    if library == JAX:
        found: Outcome = whole_outcome(function, arguments, keywords, lambda o: (1,) * len(o.shape))
        return found
    with np.errstate(all="ignore"):
        result = np.asarray(function(*_filled(arguments, _ones), **keywords))
    return Outcome(result.shape, result.dtype)


def whole_outcome(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    shape_of: Callable[[Operand], Shape] = lambda operand: operand.shape,
) -> Any:
    """What a function of JAX gives, without any array: an Outcome, or a list or tuple of them."""
    import jax

    operands = [*_operands(arguments), *_operands(list(keywords.values()))]

    def call(*arrays: Any) -> Any:
        remaining = iter(arrays)
        given = _filled(arguments, lambda operand: next(remaining))
        named = _filled(list(keywords.values()), lambda operand: next(remaining))
        return function(*given, **dict(zip(keywords, named, strict=True)))

    structs = [jax.ShapeDtypeStruct(shape_of(o), o.dtype, weak_type=o.weak) for o in operands]  # type: ignore[no-untyped-call]
    return jax.tree.map(
        lambda s: Outcome(tuple(s.shape), np.dtype(s.dtype), bool(getattr(s, "weak_type", False))),
        jax.eval_shape(call, *structs),
    )


def is_operand(value: Any) -> bool:
    """Whether an argument is an array of which only the spec is known."""
    return hasattr(type(value), "weak")


def _operands(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [operand for item in value for operand in _operands(item)]
    return [value] if is_operand(value) else []


def _filled(value: Any, array_for: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_filled(item, array_for) for item in value]
    if type(value) is tuple:
        return tuple(_filled(item, array_for) for item in value)
    return array_for(value) if is_operand(value) else value


def _ones(operand: Operand) -> np.ndarray:
    return np.ones((1,) * len(operand.shape), operand.dtype)


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
_OF_XLA = ("rsqrt", "exp", "log", "sin", "cos", "arccos")
"""Functions of which JAX has its own approximations."""
_PROMOTING = (*_OPERATORS, *UNARY, "minimum", "maximum", "clip")


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
    inexact = f"`{name}` of JAX rounds differently" if library == JAX and name in _OF_XLA else None
    return Promoted(given, found, inexact)


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
    """An operand, or a number of Python, as this dtype. Raises OverflowError for an integer beyond it."""
    if is_operand(value):
        return value.converted(dtype)
    if not isinstance(value, Number):
        return value
    rounded = np.array(value, dtype)
    if kind(dtype) != "f":
        return value
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
