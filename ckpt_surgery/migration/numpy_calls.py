"""Functions and methods of NumPy and JAX as functions of the expression language."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.migration.lax_calls import LAX
from ckpt_surgery.migration.promotions import NUMPY, of_ml_dtypes
from ckpt_surgery.migration.shaped_calls import SHAPED, WITH_SHAPES, permuted
from ckpt_surgery.migration.standins import (
    OPERATORS,
    Call,
    Recorder,
    Traced,
    call_of,
    dtype_node,
    node_of,
    operator_call,
    stand_in_of,
)


def _reduced(name: str) -> Call:
    def function(x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool | None = None) -> Any:
        options = {} if axis is None else {"axis": tuple(axis) if isinstance(axis, list) else axis}
        x = _array(x, dtype)
        return x._called(name, x, **options, **({"keepdims": True} if keepdims else {}))

    return function


def _reshape(x: Any, *shape: Any, order: str = "C") -> Any:
    if order != "C":
        raise x._recorder.refused(f"it calls `reshape` with arguments such as order={order!r}")
    given = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
    if isinstance(given, Traced):
        return x._called("reshape", x, given)
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
    if all(bound is None or type(bound) in (bool, int, float) for bound in (low, high)):
        return x._called("clip", x, low, high)
    x = x if low is None else x._called("maximum", x, low)
    return x if high is None else x._called("minimum", x, high)


def _with_axis(name: str) -> Call:
    """Make a function whose second argument is an axis, or the third after another one."""
    return lambda x, *others, axis=None: x._called(
        name, x, *others, **({} if axis is None else {"axis": axis})
    )


def _like(name: str) -> Call:
    def function(x: Any, *values: Any, dtype: Any = None, shape: Any = None) -> Any:
        given = x.shape if shape is None else shape
        return x._called(name, given, *values, x.dtype if dtype is None else dtype_node(dtype, x._recorder))

    return function


def _for_shapes(name: str, other: Call) -> Call:
    """Choose the function for arrays of known shapes, or else the other one."""

    def function(*arguments: Any, **keywords: Any) -> Any:
        first = stand_in_of(*arguments)
        return (WITH_SHAPES[name] if first.has_shape else other)(*arguments, **keywords)

    return function


def _einsum(pattern: str, *arrays: Any, optimize: Any = None) -> Any:
    return stand_in_of(*arrays)._called("einsum", pattern, *arrays)


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
    **SHAPED,
    **{f"lax.{name}": call for name, call in LAX.items()},
    **{name: call_of(name) for name in ("sqrt", "exp", "log", "abs", "minimum", "maximum", "rsqrt")},
    **{name: call_of(name) for name in ("sin", "cos", "arccos", "tile")},
    **{name: _with_axis(name) for name in ("squeeze", "expand_dims", "flip")},
    **{name: _for_shapes(name, _with_axis(name)) for name in ("repeat", "take")},
    **{name: _reduced(name) for name in ("sum", "mean", "max", "min")},
    **{names.function: operator_call(symbol) for symbol, names in OPERATORS.items()},
    "true_divide": operator_call("/"),
    "mod": operator_call("%"),
    "pow": operator_call("**"),
    "sign": _sign,
    "where": call_of("where"),
    "clip": _clip,
    "absolute": call_of("abs"),
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "square": lambda x: x**2,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "dot": _for_shapes("dot", operator_call("@")),
    "logical_and": _logical("&"),
    "logical_or": _logical("|"),
    "logical_xor": _logical("!="),
    "logical_not": lambda x: ~_truth(x),
    "isnan": lambda x: x != x,
    "divmod": lambda x, y: (x // y, x % y),
    **dict.fromkeys(("asarray", "array", "asanyarray", "ascontiguousarray", "copy"), _array),
    **dict.fromkeys(("device_get", "device_put", "block_until_ready"), _array),
    "reshape": _reshape,
    "ravel": lambda x: _reshape(x, -1),
    "transpose": _transpose,
    "permute_dims": _transpose,
    "concatenate": _joined("concat"),
    "concat": _joined("concat"),
    "stack": _joined("stack"),
    "astype": _cast,
    "einsum": _for_shapes("einsum", _einsum),
    "zeros_like": _like("zeros"),
    "ones_like": _like("ones"),
    "full_like": _like("full"),
}
"""Functions of NumPy and of jax.numpy by name, those of jax.lax by `lax.` and the name."""

METHODS: Mapping[str, Call] = {
    **{name: FUNCTIONS[name] for name in ("sum", "mean", "max", "min", "clip", "squeeze", "repeat")},
    **{name: FUNCTIONS[name] for name in ("reshape", "transpose", "dot", "ravel", "astype", "take")},
    "swapaxes": FUNCTIONS["swapaxes"],
    "view": _view,
    "flatten": FUNCTIONS["ravel"],
    "copy": lambda x: x,
    "block_until_ready": lambda x: x,
}
"""Methods of arrays, by name."""


class NumpyRecorder(Recorder):
    """A recorder for functions that use NumPy and JAX."""

    methods = METHODS

    def called(
        self,
        name: str,
        inputs: Sequence[Any],
        keywords: Mapping[str, Any],
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """Write a call of the function of this name, of which some arguments are stand-ins."""
        if name not in FUNCTIONS:
            raise self.refused(f"it calls `{name}`")
        # Defaults that say nothing are left out, as NumPy's own functions pass them on; `concatenate` has
        # an axis if none is given.
        given = {n: value for n, value in keywords.items() if value is not None or n == "axis"}
        first = inputs[0] if inputs else None
        if not isinstance(first, Traced | list | tuple | str):
            inputs = (self.operand(first), *inputs[1:])
        try:
            inspect.signature(FUNCTIONS[name]).bind(*inputs, **given)
        except TypeError:
            raise self.refused(
                f"it calls `{name}` with arguments that the expression language does not have"
            ) from None
        return FUNCTIONS[name](*inputs, **given)

    def operand(self, value: Any) -> Any:
        """Convert a value of the function's own that is used like an array."""
        return Traced(node_of(value, self), self)
