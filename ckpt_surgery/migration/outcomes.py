"""What NumPy and JAX give for operands of certain dtypes: their functions are asked, and nothing is computed.

NumPy's are called with arrays of one element, JAX's with shapes alone.
"""

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.dtypes import DType

NUMPY = "numpy"
JAX = "jax"
MOST_KNOWN = 4096
"""Number of answers that are kept: thousands of leaves have few shapes and dtypes."""


class Operand(Protocol):
    """An array of which only shape and dtype are known."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def weak(self) -> bool: ...


@dataclass(frozen=True)
class Outcome:
    """An array that a library's function gives, or takes."""

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


_KNOWN: dict[Hashable, Any] = {}


def outcome(library: str, name: str, arguments: Sequence[Any], **keywords: Any) -> Outcome:
    """What the function gives for operands of these dtypes, all of whose axes have the length 1.

    Raises what the function raises.
    """
    ones = _abstract(list(arguments), lambda operand: (1,) * len(operand.shape))
    found: Outcome = _asked(library, function_of(library, name), ones, keywords)
    return found


def whole_outcome(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What a function of JAX gives, without any array: an Outcome, or a list or tuple of them.

    Raises what the function raises.
    """
    given = _abstract([list(arguments), dict(keywords)], lambda operand: operand.shape)
    return _asked(JAX, function, *given)


def is_operand(value: Any) -> bool:
    """Whether an argument is an array of which only the spec is known."""
    return hasattr(type(value), "weak") or isinstance(value, Outcome)


def _abstract(value: Any, shape_of: Callable[[Operand], Shape]) -> Any:
    """An argument with Outcomes in place of the operands in it."""
    return _mapped(value, lambda operand: Outcome(shape_of(operand), operand.dtype, operand.weak))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """An argument in which operands are changed."""
    if type(value) is list:
        return [_mapped(item, change) for item in value]
    if type(value) is tuple:
        return tuple(_mapped(item, change) for item in value)
    if type(value) is dict:
        return {name: _mapped(item, change) for name, item in value.items()}
    return change(value) if is_operand(value) else value


def _asked(library: str, function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Any:
    ask = _asked_jax if library == JAX else _asked_numpy
    try:
        key = (function, _key(arguments), _key(keywords))
        if key in _KNOWN:
            return _KNOWN[key]
    except TypeError:  # an argument has no hash
        return ask(function, arguments, keywords)
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    return _KNOWN.setdefault(key, ask(function, arguments, keywords))


def _key(value: Any) -> Hashable:
    """A value that is equal for equal arguments, and different for 1, 1.0 and True."""
    if isinstance(value, list | tuple):
        return (type(value), *map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in value.items())
    if isinstance(value, float):
        return (float, repr(value))
    hash(value)
    return (type(value), value)


def _asked_numpy(function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Outcome:
    given = _mapped(arguments, lambda operand: np.ones(operand.shape, operand.dtype))
    with np.errstate(all="ignore"):
        result = np.asarray(function(*given, **keywords))
    return Outcome(result.shape, result.dtype)


def _asked_jax(function: Callable[..., Any], arguments: Any, keywords: Mapping[str, Any]) -> Any:
    import jax

    structs: list[Any] = []

    def abstract(operand: Outcome) -> None:
        structs.append(jax.ShapeDtypeStruct(operand.shape, operand.dtype, weak_type=operand.weak))  # type: ignore[no-untyped-call]

    def call(*arrays: Any) -> Any:
        remaining = iter(arrays)
        given, named = _mapped([arguments, dict(keywords)], lambda operand: next(remaining))
        return function(*given, **named)

    _mapped([arguments, dict(keywords)], abstract)
    return jax.tree.map(
        lambda s: Outcome(tuple(s.shape), np.dtype(s.dtype), bool(getattr(s, "weak_type", False))),
        jax.eval_shape(call, *structs),
    )
