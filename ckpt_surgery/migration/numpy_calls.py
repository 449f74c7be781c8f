"""Functions and methods of NumPy and JAX as functions of the expression language."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ckpt_surgery.migration.promotions import NUMPY, of_ml_dtypes
from ckpt_surgery.migration.shaped_calls import along, broadcast_to, contracted, joined, permuted
from ckpt_surgery.migration.standins import (
    COMPARISONS,
    OPERATORS,
    Call,
    Traced,
    call_of,
    dtype_node,
    operator_call,
    stand_in_of,
)


def _index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    part = operand[along(axis % operand.ndim, index)]
    return part._called("expand_dims", part, axis % operand.ndim) if keepdims else part


def _dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any) -> Any:
    """Slice from these indices on, which are clamped so that the slice lies within the array."""
    given = zip(map(int, start_indices), operand.shape, slice_sizes, strict=True)
    starts = [max(0, min(start + n if start < 0 else start, n - size)) for start, n, size in given]
    return operand[tuple(slice(a, a + n) for a, n in zip(starts, slice_sizes, strict=True))]


def _dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    starts, sizes = [0] * operand.ndim, list(operand.shape)
    starts[axis], sizes[axis] = start_index, slice_size
    return _dynamic_slice(operand, starts, sizes)


def _broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    lengths = dict(zip(broadcast_dimensions, operand.shape, strict=True))
    return broadcast_to(operand.reshape([lengths.get(axis, 1) for axis in range(len(shape))]), shape)


def _dot_general(lhs: Any, rhs: Any, dimension_numbers: Any) -> Any:
    (ours, theirs), (our_batch, their_batch) = dimension_numbers
    pairs = list(zip(ours, theirs, strict=True)), list(zip(our_batch, their_batch, strict=True))
    return contracted(lhs, rhs, *pairs)


def _div(x: Any, y: Any) -> Any:
    stand_in = stand_in_of(x, y)
    if stand_in.dtype.kind in "iu":
        raise stand_in._recorder.refused("it divides integers with `jax.lax.div`, which rounds to zero", x, y)
    return stand_in._operated("/", x, y)


def _reduced(name: str) -> Call:
    def function(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool | None = None) -> Any:
        options = {} if axis is None else {"axis": tuple(axis) if isinstance(axis, list) else axis}
        x = _array(x, dtype)
        return x._called(name, x, **options, **({"keepdims": True} if keepdims else {}))

    return function


def _like(name: str) -> Call:
    def function(x: Any, *values: Any, dtype: Any = None, shape: Any = None) -> Any:
        given = x.shape if shape is None else shape
        return x._called(name, given, *values, x.dtype if dtype is None else dtype_node(dtype, x._recorder))

    return function


LAX: Mapping[str, Call] = {
    **{OPERATORS[symbol][0]: operator_call(symbol) for symbol in ("+", "-", "*", *COMPARISONS)},
    "div": _div,
    "neg": lambda x: -x,
    **{name: call_of(name) for name in ("abs", "sign", "sqrt")},
    "max": call_of("maximum"),
    "min": call_of("minimum"),
    "square": lambda x: x * x,
    "integer_pow": lambda x, y: x**y,
    "select": call_of("where"),
    "clamp": lambda min, x, max: call_of("minimum")(call_of("maximum")(x, min), max),
    "convert_element_type": lambda operand, new_dtype: operand.astype(new_dtype),
    "stop_gradient": lambda x: x,
    "concatenate": lambda operands, dimension: joined(operands, dimension),
    "reshape": lambda operand, new_sizes, dimensions=None: (
        operand if dimensions is None else permuted(operand, dimensions)
    ).reshape(tuple(new_sizes)),
    "transpose": lambda operand, permutation: permuted(operand, permutation),
    "rev": lambda operand, dimensions: operand._called("flip", operand, axis=tuple(dimensions)),
    "expand_dims": lambda array, dimensions: array._called("expand_dims", array, tuple(dimensions)),
    "squeeze": lambda array, dimensions: array._called("squeeze", array, tuple(dimensions)),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": lambda operand, start_indices, limit_indices, strides=None: operand[
        tuple(map(slice, start_indices, limit_indices, [1] * operand.ndim if strides is None else strides))
    ],
    "slice_in_dim": lambda operand, start_index, limit_index, stride=1, axis=0: operand[
        along(axis % operand.ndim, slice(start_index, limit_index, stride))
    ],
    "index_in_dim": _index_in_dim,
    "dynamic_slice": _dynamic_slice,
    "dynamic_slice_in_dim": _dynamic_slice_in_dim,
    "dot_general": _dot_general,
    "full_like": lambda x, fill_value, dtype=None: _like("full")(
        x, np.asarray(fill_value).item(), dtype=dtype
    ),
    "reduce_sum": lambda operand, axes: operand._called("sum", operand, axis=tuple(axes)),
    "reduce_max": lambda operand, axes: operand._called("max", operand, axis=tuple(axes)),
    "reduce_min": lambda operand, axes: operand._called("min", operand, axis=tuple(axes)),
}
"""Functions of `jax.lax`, by name."""


def _reshape(x: Any, *shape: Any, order: str = "C") -> Any:
    if order != "C":
        raise x._recorder.refused(f"it calls `reshape` with arguments such as order={order!r}")
    given = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
    return x._reshaped(tuple(given))


def _transpose(x: Any, *axes: Any, **named: Any) -> Any:
    given = named.get("axes", axes[0] if len(axes) == 1 and np.ndim(axes[0]) else axes)
    if given is None or not len(given) or given == (None,):
        return x.T
    return permuted(x, given) if x.has_shape else x._called("transpose", x, tuple(given))


def _cast(x: Any, dtype: Any, copy: bool | None = None) -> Any:
    return x._cast(dtype_node(dtype, x._recorder))


def _view(x: Any, dtype: Any) -> Any:
    name = dtype_node(dtype, x._recorder)
    return x if x.has_shape and x.dtype.name == name else x._called("bitcast", x, name)


def _array(x: Any, dtype: Any = None, copy: bool | None = None) -> Any:
    if isinstance(x, list | tuple):
        x = _joined("stack")([_array(item) for item in x])
    return x if dtype is None or not isinstance(x, Traced) else _cast(x, dtype)


def _joined(name: str) -> Call:
    def function(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
        arrays = [*arrays]
        if axis is None:
            arrays, axis = [x.reshape(-1) for x in arrays], 0
        stand_in = stand_in_of(*arrays)
        alone = name == "concat" and len(arrays) == 1 and stand_in.has_shape and stand_in.ndim
        joined = stand_in if alone else stand_in._called(name, arrays, axis=axis)
        return joined if dtype is None else _cast(joined, dtype)

    return function


def _clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (a if a is not None else b for a, b in ((a_min, min), (a_max, max)))
    if x.has_shape and x.dtype.kind in "iu" and x._recorder.library == NUMPY:  # which ignores such bounds
        limits = np.iinfo(x.dtype)
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
        if low is None and high is None:
            return x
    if all(bound is None or type(bound) in (bool, int, float) for bound in (low, high)):
        return x._called("clip", x, low, high)
    x = x if low is None else x._called("maximum", x, low)
    return x if high is None else x._called("minimum", x, high)


def _with_axis(name: str) -> Call:
    """Make a function whose second argument is an axis, or the third after another one."""
    return lambda x, *more, axis=None: x._called(name, x, *more, **({} if axis is None else {"axis": axis}))


def _truth(x: Any) -> Any:
    """True for elements that are not zero."""
    return x if x.has_shape and x.dtype == np.bool_ else x._cast("bool")


def _logical(symbol: str) -> Call:
    def function(x: Any, y: Any) -> Any:
        stand_in = stand_in_of(x, y)
        sides = [_truth(stand_in._recorder.operand(side)) if np.ndim(side) else bool(side) for side in (x, y)]
        return stand_in._operated(symbol, *sides)

    return function


def _sign(x: Any) -> Any:
    """The sign; that of -0 is -0 in ml_dtypes."""
    keeps_zero = x.has_shape and of_ml_dtypes(x.dtype) and x._recorder.library == NUMPY
    sign = x._called("sign", x)
    return call_of("where")(x == 0, x, sign) if keeps_zero else sign


FUNCTIONS: Mapping[str, Call] = {
    **{f"lax.{name}": call for name, call in LAX.items()},
    **{name: call_of(name) for name in ("sqrt", "exp", "log", "abs", "minimum", "maximum", "rsqrt")},
    **{name: call_of(name) for name in ("sin", "cos", "arccos", "tile", "where")},
    **{name: _with_axis(name) for name in ("squeeze", "expand_dims", "flip", "repeat", "take")},
    **{name: _reduced(name) for name in ("sum", "mean", "max", "min")},
    **{function: operator_call(symbol) for symbol, (_, function) in OPERATORS.items()},
    "true_divide": operator_call("/"),
    "mod": operator_call("%"),
    "pow": operator_call("**"),
    "sign": _sign,
    "clip": _clip,
    "absolute": call_of("abs"),
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "square": lambda x: x**2,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "dot": operator_call("@"),
    "outer": lambda a, b: a.reshape(-1)[:, None] * b.reshape(-1)[None, :],
    "logical_and": _logical("&"),
    "logical_or": _logical("|"),
    "logical_xor": _logical("!="),
    "logical_not": lambda x: ~_truth(x),
    "isnan": lambda x: x != x,
    "divmod": lambda x, y: (x // y, x % y),
    **dict.fromkeys(("asarray", "array", "asanyarray", "ascontiguousarray", "copy"), _array),
    **dict.fromkeys(("device_get", "device_put", "block_until_ready"), _array),
    "reshape": _reshape,
    **dict.fromkeys(("ravel", "flatten"), lambda x: _reshape(x, -1)),
    "view": _view,
    "transpose": _transpose,
    "permute_dims": _transpose,
    "fliplr": lambda m: m[:, ::-1],
    "flipud": lambda m: m[::-1],
    "concatenate": _joined("concat"),
    "concat": _joined("concat"),
    "stack": _joined("stack"),
    "astype": _cast,
    "einsum": lambda terms, *arrays, optimize=None: stand_in_of(*arrays)._called("einsum", terms, *arrays),
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x, axis=None: x.size if axis is None else x.shape[axis],
    "zeros_like": _like("zeros"),
    "ones_like": _like("ones"),
    "full_like": _like("full"),
}
"""Functions of NumPy and of jax.numpy by name, those of jax.lax by `lax.` and the name."""
