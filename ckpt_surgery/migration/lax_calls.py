"""Functions of `jax.lax`, with names and arguments other than NumPy's, as functions of the language."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.migration.shaped_calls import contracted, cut, joined, permuted
from ckpt_surgery.migration.standins import COMPARISONS, OPERATORS, Call, call_of, operator_call, stand_in_of


def _reduced(name: str) -> Call:
    return lambda operand, axes: operand._called(name, operand, axis=tuple(axes))


def _slice(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    steps = [1] * operand.ndim if strides is None else strides
    return operand[tuple(map(slice, start_indices, limit_indices, steps))]


def _slice_in_dim(operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0) -> Any:
    return cut(operand, axis % operand.ndim, start_index, limit_index, stride)


def _index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    at = axis % operand.ndim
    part = operand[(*[slice(None)] * at, index)]
    return part.reshape((*operand.shape[:at], 1, *operand.shape[at + 1 :])) if keepdims else part


def _dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any) -> Any:
    """Slice from these indices on, which are clamped so that the slice lies within the array."""
    starts = [int(start) for start in start_indices]
    starts = [s + n if s < 0 else s for s, n in zip(starts, operand.shape, strict=True)]
    lengths = zip(starts, operand.shape, slice_sizes, strict=True)
    clamped = [max(0, min(start, length - size)) for start, length, size in lengths]
    return operand[tuple(slice(a, a + n) for a, n in zip(clamped, slice_sizes, strict=True))]


def _dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    at = axis % operand.ndim
    starts, sizes = [0] * operand.ndim, list(operand.shape)
    starts[at], sizes[at] = int(start_index), slice_size
    return _dynamic_slice(operand, starts, sizes)


def _broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    lengths = [1] * len(shape)
    for axis, place in enumerate(broadcast_dimensions):
        lengths[place] = operand.shape[axis]
    reps = tuple(1 if a == b else b for a, b in zip(lengths, shape, strict=True))
    whole = operand.reshape(tuple(lengths))
    return whole if set(reps) <= {1} else whole._called("tile", whole, reps)


def _reshape(operand: Any, new_sizes: Any, dimensions: Any = None) -> Any:
    return (operand if dimensions is None else permuted(operand, dimensions)).reshape(tuple(new_sizes))


def _dot_general(lhs: Any, rhs: Any, dimension_numbers: Any) -> Any:
    (ours, theirs), (our_batch, their_batch) = dimension_numbers
    pairs = list(zip(ours, theirs, strict=True)), list(zip(our_batch, their_batch, strict=True))
    return contracted(lhs, rhs, *pairs)


def _expand_dims(array: Any, dimensions: Any) -> Any:
    return array._called("expand_dims", array, tuple(dimensions))


def _squeeze(array: Any, dimensions: Any) -> Any:
    return array._called("squeeze", array, tuple(axis % array.ndim for axis in dimensions))


def _clamp(min: Any, x: Any, max: Any) -> Any:
    stand_in = stand_in_of(min, x, max)
    return stand_in._called("minimum", stand_in._called("maximum", x, min), max)


def _div(x: Any, y: Any) -> Any:
    stand_in = stand_in_of(x, y)
    if stand_in.dtype.kind in "iu":
        raise stand_in._recorder.refused("it divides integers with `jax.lax.div`, which rounds to zero", x, y)
    return stand_in._operated("/", x, y)


LAX: Mapping[str, Call] = {
    **{OPERATORS[symbol].method: operator_call(symbol) for symbol in ("+", "-", "*", *COMPARISONS)},
    "div": _div,
    "neg": lambda x: -x,
    **{name: call_of(name) for name in ("abs", "sign", "sqrt")},
    "max": call_of("maximum"),
    "min": call_of("minimum"),
    "square": lambda x: x * x,
    "integer_pow": lambda x, y: x**y,
    "select": call_of("where"),
    "clamp": _clamp,
    "convert_element_type": lambda operand, new_dtype: operand.astype(new_dtype),
    "stop_gradient": lambda x: x,
    "concatenate": lambda operands, dimension: joined(operands, dimension),
    "reshape": _reshape,
    "transpose": lambda operand, permutation: permuted(operand, permutation),
    "rev": lambda operand, dimensions: operand._called("flip", operand, axis=tuple(dimensions)),
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "slice_in_dim": _slice_in_dim,
    "index_in_dim": _index_in_dim,
    "dynamic_slice": _dynamic_slice,
    "dynamic_slice_in_dim": _dynamic_slice_in_dim,
    "dot_general": _dot_general,
    "full_like": lambda x, fill_value, dtype=None: x._called(
        "full", x.shape, np.asarray(fill_value).item(), x.dtype if dtype is None else np.dtype(dtype)
    ),
    **{f"reduce_{name}": _reduced(name) for name in ("sum", "max", "min")},
}
"""Functions of `jax.lax`, by name."""
