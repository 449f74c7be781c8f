"""Write out arrays of the user's program as expressions."""

import ast
import sys
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES, computation, kind
from ckpt_surgery.migration.standins import number_node


def concrete_array(value: Any) -> np.ndarray | None:
    """Convert an array of NumPy or JAX with a supported dtype to NumPy; None for other values."""
    jax = sys.modules.get("jax")
    is_array = isinstance(value, np.ndarray | np.generic) or (jax and isinstance(value, jax.Array))
    if not is_array or getattr(value.dtype, "name", "") not in DTYPES:
        return None
    return np.asarray(value)


def is_of_jax(type_: type | None) -> bool:
    """True for types of arrays of JAX."""
    return type_ is not None and type_.__module__.split(".")[0] in ("jax", "jaxlib")


def literal_node(array: np.ndarray) -> ast.expr | None:
    """Write an array of bool, integers or floats as an expression with this value, bit for bit.

    None if it is neither small nor uniform, or of another kind.
    """
    uniform = _is_uniform(array)
    if kind(array.dtype) not in "biuf" or not (uniform or array.size <= 16):
        return None
    if uniform:
        return _element(array.reshape(-1)[0] if array.size else array.dtype.type(0), array.shape)
    whole = _call("stack", ast.List([_element(number) for number in array.reshape(-1)]))
    shape = ast.Tuple([ast.Constant(length) for length in array.shape])
    return whole if array.ndim == 1 else _call("reshape", whole, shape)


def _is_uniform(array: np.ndarray) -> bool:
    """True if all elements have the same bits. Compared in parts, so that it ends early for most arrays."""
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize)
    return all(bool((bits[i : i + (1 << 16)] == bits[:1]).all()) for i in range(0, array.size, 1 << 16))


def _element(number: Any, shape: tuple[int, ...] = ()) -> ast.expr:
    """Write an array of one element, by its bits if it is not finite, or one that repeats it."""
    dtype, number = number.dtype, np.asarray(number)
    value: bool | int | float
    if kind(dtype) == "f":
        value = float(number.astype(computation(dtype)))
        if not np.isfinite(value):
            bits = _element(number.view(np.dtype(f"u{dtype.itemsize}")), shape)
            return _call("bitcast", bits, ast.Constant(dtype.name))
    else:
        value = bool(number) if kind(dtype) == "b" else int(number)
    lengths = ast.Tuple([ast.Constant(length) for length in shape])
    return _call("full", lengths, number_node(value), ast.Constant(dtype.name))


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])
