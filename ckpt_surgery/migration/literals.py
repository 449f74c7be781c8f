"""Arrays of the user's program as expressions: written out if they are small, else given by a hook."""

import ast
import sys
from typing import Any

import numpy as np

from ckpt_surgery.core.dtypes import DTYPES, DType, computation, kind

MOST_WRITTEN = 16
"""Number of elements up to which an array is written out."""


def concrete_array(value: Any) -> np.ndarray | None:
    """The array of NumPy or JAX that a value is, with a dtype of recipes; None for anything else."""
    jax = sys.modules.get("jax")
    is_array = isinstance(value, np.ndarray | np.generic) or (jax and isinstance(value, jax.Array))
    if not is_array or getattr(value.dtype, "name", "") not in DTYPES:
        return None
    return np.asarray(value)


def is_of_jax(value: Any) -> bool:
    """Whether a value is an array of JAX."""
    return type(value).__module__.split(".")[0] in ("jax", "jaxlib")


def literal_node(array: np.ndarray) -> ast.expr:
    """An expression whose value is this array, bit for bit.

    It has to be small, or the same number everywhere, and of bool, integers or floats.
    """
    if is_uniform(array):
        found = _element(array.reshape(-1)[0])
        return _repeated(found, array.shape)
    elements = [_element(number) for number in array.reshape(-1)]
    if array.ndim == 0:
        return elements[0]
    whole = _call("stack", ast.List(elements)) if elements else _full((0,), 0, array.dtype)
    shape = ast.Tuple([ast.Constant(length) for length in array.shape])
    return whole if array.ndim == 1 else _call("reshape", whole, shape)


def is_uniform(array: np.ndarray) -> bool:
    """Whether an array has elements, all of which have the same bits."""
    if not array.size:
        return False
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((bits == bits[0]).all())


def can_be_written(array: np.ndarray) -> bool:
    """Whether an array is small, or repeats one number, so that it is written as an expression."""
    return kind(array.dtype) in "biuf" and (array.size <= MOST_WRITTEN or is_uniform(array))


def _repeated(element: ast.expr, shape: tuple[int, ...]) -> ast.expr:
    """An array whose elements are all this one."""
    full = element
    while not (isinstance(full, ast.Call) and isinstance(full.func, ast.Name) and full.func.id == "full"):
        assert isinstance(full, ast.Call)
        full = full.args[0]
    full.args[0] = ast.Tuple([ast.Constant(length) for length in shape])
    return element


def _element(number: Any) -> ast.expr:
    """One element, by its bits if it is not finite or is a NaN."""
    dtype = number.dtype
    if kind(dtype) == "b":
        return _full((), bool(number), dtype)
    if kind(dtype) != "f":
        return _full((), int(number), dtype)
    value = float(np.asarray(number).astype(computation(dtype)))
    if np.isfinite(value):
        return _full((), value, dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = _full((), int(np.asarray(number).view(unsigned)), unsigned)
    return _call("bitcast", bits, ast.Constant(dtype.name))


def _full(shape: tuple[int, ...], value: bool | int | float, dtype: DType) -> ast.expr:
    lengths = ast.Tuple([ast.Constant(length) for length in shape])
    return _call("full", lengths, number_node(value), ast.Constant(dtype.name))


def number_node(value: bool | int | float) -> ast.expr:
    """A finite number of Python as an expression."""
    if isinstance(value, bool):
        return ast.Constant(value)
    constant = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), constant) if np.copysign(1, value) < 0 else constant


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])
