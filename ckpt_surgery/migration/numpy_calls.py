"""Functions and methods of NumPy and JAX as functions of the expression language."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ckpt_surgery.migration.standins import Recorder, Traced, dtype_node, node_of

Call = Callable[..., Any]


def _some(values: Any) -> Traced:
    """Any of the stand-ins of a list: the one that knows how to write a call."""
    return next(value for value in values if isinstance(value, Traced))


def _plain(name: str) -> Call:
    """The language's function of this name with the same positional arguments."""
    return lambda x, *others: x._called(name, x, *others)


def _binary(symbol: str) -> Call:
    return lambda x, y: _some((x, y))._operated(symbol, x, y)


def _reduced(name: str) -> Call:
    def function(x: Any, axis: Any = None, *, keepdims: bool | None = None) -> Any:
        options = {} if axis is None else {"axis": axis}
        return x._called(name, x, **options, **({"keepdims": True} if keepdims else {}))

    return function


def _reshape(x: Any, *shape: Any) -> Any:
    given = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if isinstance(given, Traced):
        return x._called("reshape", x, given)
    return x._called("reshape", x, tuple(given))


def _transpose(x: Any, *axes: Any, **named: Any) -> Any:
    given = named.get("axes", axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)
    return x._called("transpose", x, tuple(given)) if given else x.T


def _cast(x: Any, dtype: Any) -> Any:
    return x._called("cast", x, dtype_node(dtype, x._recorder))


def _array(x: Any, dtype: Any = None) -> Any:
    if not isinstance(x, Traced):
        x = _joined("stack")(x)
    return x if dtype is None else _cast(x, dtype)


def _joined(name: str) -> Call:
    def function(arrays: Any, axis: int = 0) -> Any:
        return _some(arrays)._called(name, list(arrays), axis=axis)

    return function


def _with_axis(name: str) -> Call:
    """A function whose second argument is an axis, or the third after another one."""
    return lambda x, *others, axis=None: x._called(
        name, x, *others, **({} if axis is None else {"axis": axis})
    )


def _like(name: str) -> Call:
    return lambda x, *values: x._called(name, x.shape, *values, x.dtype)


def _einsum(pattern: str, *arrays: Any) -> Any:
    return _some(arrays)._called("einsum", pattern, *arrays)


FUNCTIONS: Mapping[str, Call] = {
    **{name: _plain(name) for name in ("sqrt", "exp", "log", "abs", "where", "minimum", "maximum", "rsqrt")},
    **{name: _plain(name) for name in ("clip", "tile")},
    **{name: _with_axis(name) for name in ("squeeze", "expand_dims", "flip", "repeat", "take")},
    **{name: _reduced(name) for name in ("sum", "mean", "max", "min")},
    "absolute": _plain("abs"),
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "square": lambda x: x**2,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "add": _binary("+"),
    "subtract": _binary("-"),
    "multiply": _binary("*"),
    "divide": _binary("/"),
    "true_divide": _binary("/"),
    "floor_divide": _binary("//"),
    "remainder": _binary("%"),
    "mod": _binary("%"),
    "power": _binary("**"),
    "matmul": _binary("@"),
    "dot": _binary("@"),
    "equal": _binary("=="),
    "not_equal": _binary("!="),
    "less": _binary("<"),
    "less_equal": _binary("<="),
    "greater": _binary(">"),
    "greater_equal": _binary(">="),
    "asarray": _array,
    "array": _array,
    "reshape": _reshape,
    "ravel": lambda x: _reshape(x, -1),
    "transpose": _transpose,
    "permute_dims": _transpose,
    "concatenate": _joined("concat"),
    "concat": _joined("concat"),
    "stack": _joined("stack"),
    "astype": _cast,
    "einsum": _einsum,
    "zeros_like": _like("zeros"),
    "ones_like": _like("ones"),
    "full_like": _like("full"),
}
"""Functions of NumPy, of jax.numpy and of jax.lax, by name."""

METHODS: Mapping[str, Call] = {
    **{name: FUNCTIONS[name] for name in ("sum", "mean", "max", "min", "clip", "squeeze", "repeat")},
    **{name: FUNCTIONS[name] for name in ("reshape", "transpose", "dot", "ravel", "astype", "take")},
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
        """A call of the function of this name, of which some arguments are stand-ins."""
        if name not in FUNCTIONS:
            raise self.refused(f"it calls `{name}`")
        # Defaults that say nothing are left out, as NumPy's own functions pass them on.
        given = {n: value for n, value in keywords.items() if value is not None}
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
        """A value of the function's own that is used like an array."""
        return Traced(node_of(value, self), self)
