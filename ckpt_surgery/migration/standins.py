"""Stand-ins for arrays: a function that is called with them records its operations as an expression."""

import ast
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError


class Untraceable(BaseException):
    """Raised if the function does something that no expression can.

    It is no Exception, so that `except Exception` in the function does not hide it.
    """


class Recorder:
    """Records one call of a function with stand-ins."""

    def __init__(self, functions: Mapping[str, "Call"]) -> None:
        self.functions = functions
        """Functions of libraries, and methods of arrays, that can be recorded, by name."""
        self.flaw: str | None = None
        """Reason why no expression can replace the function; None if there is none."""

    def called(self, name: str, inputs: Sequence[Any], keywords: Mapping[str, Any], function: Any) -> Any:
        """Write a call of a library's function of this name, of which some arguments are stand-ins."""
        if name not in self.functions:
            raise self.refused(f"it calls `{name}`")
        # Defaults that say nothing are left out, as NumPy's own functions pass them on; `concatenate` has
        # an axis if none is given.
        given = {n: value for n, value in keywords.items() if value is not None or n == "axis"}
        first = inputs[0] if inputs else None
        if not isinstance(first, Traced | list | tuple | str):
            inputs = (self.operand(first), *inputs[1:])
        try:
            inspect.signature(self.functions[name]).bind(*inputs, **given)
        except TypeError:
            flaw = f"it calls `{name}` with arguments that the expression language does not have"
            raise self.refused(flaw) from None
        return self.functions[name](*inputs, **given)

    def operand(self, value: Any) -> Any:
        """Convert a value of the function's own that is used like an array."""
        return Traced(node_of(value, self), self)

    def refused(self, flaw: str, *operands: Any) -> Untraceable:
        """Make the exception for a function that does more with `operands` than an expression can."""
        self.flaw = self.flaw or flaw
        return Untraceable(flaw)


ARITHMETIC: Mapping[str, tuple[str, str]] = {
    "+": ("add", "add"),
    "-": ("sub", "subtract"),
    "*": ("mul", "multiply"),
    "/": ("truediv", "divide"),
    "//": ("floordiv", "floor_divide"),
    "%": ("mod", "remainder"),
    "**": ("pow", "power"),
    "@": ("matmul", "matmul"),
    "&": ("and", "bitwise_and"),
    "|": ("or", "bitwise_or"),
}
COMPARISONS: Mapping[str, tuple[str, str]] = {
    "==": ("eq", "equal"),
    "!=": ("ne", "not_equal"),
    "<": ("lt", "less"),
    "<=": ("le", "less_equal"),
    ">": ("gt", "greater"),
    ">=": ("ge", "greater_equal"),
}
OPERATORS = {**ARITHMETIC, **COMPARISONS}
"""Binary operators by symbol: the special method without its underscores, the function of NumPy and JAX."""
_NEED_A_VALUE = (
    *("bool", "int", "float", "complex", "index", "len", "iter", "contains", "array", "jax_array"),
    *("setitem", "delitem", "format", "str", "round", "divmod", "rdivmod", "reduce_ex"),
)
"""Special methods that need a value."""
_ATTRIBUTES = ("T", "shape", "dtype", "ndim", "size")
METHODS: Sequence[str] = (
    *("sum", "mean", "max", "min", "clip", "squeeze", "repeat", "reshape", "transpose", "dot", "ravel"),
    *("flatten", "astype", "take", "swapaxes", "view", "copy", "block_until_ready"),
)
"""Methods of arrays, which are called as the functions of these names."""


class Traced:
    """Result of operations on a function's arrays, as a syntax tree of the expression language."""

    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000
    has_shape: ClassVar[bool] = False
    """True if its shape and dtype are known."""

    def __init__(self, node: ast.expr, recorder: Recorder):
        self._node = node
        self._recorder = recorder

    def _with(self, node: ast.expr) -> "Traced":
        return Traced(node, self._recorder)

    def _called(self, name: str, *arguments: Any, **keywords: Any) -> "Traced":
        """Write a call of a function of the language."""
        given = [node_of(value, self._recorder) for value in arguments]
        named = [ast.keyword(n, node_of(value, self._recorder)) for n, value in keywords.items()]
        return self._with(ast.Call(ast.Name(name), given, named))

    def _cast(self, dtype: Any) -> "Traced":
        """Cast to a named dtype, or to the dtype of a stand-in."""
        return self._called("cast", self, dtype)

    def _reshaped(self, shape: Any) -> "Traced":
        """Reshape to these lengths of axes, of which one may be -1."""
        return self._called("reshape", self, shape)

    def __getitem__(self, index: Any) -> "Traced":
        return self._with(ast.Subscript(self._node, index_node(index, self._recorder)))

    def __getattr__(self, name: str) -> Any:
        if name in _ATTRIBUTES:
            return self._with(ast.Attribute(self._node, name))
        if name.startswith("__"):  # which libraries ask for to see what an object is
            raise AttributeError(name)
        if name in METHODS and name in self._recorder.functions:
            return functools.partial(self._recorder.functions[name], self)
        raise self._recorder.refused(f"it uses `.{name}`", self)

    def _operated(self, symbol: str, left: Any, right: Any) -> "Traced":
        """Write an operator between two operands, one of which is this."""
        sides = node_of(left, self._recorder), node_of(right, self._recorder)
        return self._with(operator_node(symbol, *sides))

    def _signed(self, symbol: str) -> "Traced":
        """Write the operator `-` or `~`."""
        return self._with(ast.UnaryOp(ast.USub() if symbol == "-" else ast.Invert(), self._node))

    def _started(self) -> "Traced":
        """Add to 0, the start value of `sum(…)`."""
        return self

    def __neg__(self) -> "Traced":
        return self._signed("-")

    def __pos__(self) -> "Traced":
        return self

    def __invert__(self) -> "Traced":
        return self._signed("~")

    def __abs__(self) -> "Traced":
        return self._called("abs", self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        if method != "__call__":
            raise self._recorder.refused(f"it uses `numpy.{ufunc.__name__}.{method}`", *inputs)
        return self._recorder.called(ufunc.__name__, inputs, keywords, ufunc)

    def __array_function__(self, function: Any, types: Any, inputs: Any, keywords: Any) -> Any:
        return self._recorder.called(function.__name__, inputs, keywords, function)


def operator_node(symbol: str, left: ast.expr, right: ast.expr) -> ast.expr:
    """Build the syntax tree of an operator or a comparison between two operands."""
    node = ast.parse(f"left {symbol} right", mode="eval").body
    if isinstance(node, ast.Compare):
        return ast.Compare(left, node.ops, [right])
    assert isinstance(node, ast.BinOp)
    return ast.BinOp(left, node.op, right)


def _operator(symbol: str, reverse: bool) -> Callable[[Traced, Any], Traced]:
    def method(self: Traced, other: Any) -> Traced:
        if reverse and symbol == "+" and type(other) is int and other == 0:
            return self._started()
        return self._operated(symbol, other, self) if reverse else self._operated(symbol, self, other)

    return method


def _refusal(flaw: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise self._recorder.refused(flaw, self)

    return method


for _symbol, (_method, _) in OPERATORS.items():
    setattr(Traced, f"__{_method}__", _operator(_symbol, reverse=False))
for _symbol, (_method, _) in ARITHMETIC.items():
    setattr(Traced, f"__r{_method}__", _operator(_symbol, reverse=True))
for _name in _NEED_A_VALUE:
    setattr(Traced, f"__{_name}__", _refusal(f"it asks for values, by `__{_name}__`"))


def node_of(
    value: Any, recorder: Recorder, write: Callable[[Traced], ast.expr] = lambda value: value._node
) -> ast.expr:
    """Build the syntax tree of an operand or an argument: a stand-in, a number, a text, a list of those.

    `write` builds that of a stand-in.
    """
    if isinstance(value, Traced):
        return write(value)
    if isinstance(value, list | tuple):
        items = [node_of(item, recorder, write) for item in value]
        return ast.List(items) if isinstance(value, list) else ast.Tuple(items)
    if isinstance(value, np.integer):
        value = int(value)
    if type(value) in (int, float) and math.isfinite(value):
        return number_node(value)
    if type(value) in (bool, str) or value is None:
        return ast.Constant(value)
    raise recorder.refused(f"it combines an array with {type(value).__name__}, a value from elsewhere")


def number_node(value: bool | int | float) -> ast.expr:
    """Write a finite number of Python as an expression."""
    if isinstance(value, bool):
        return ast.Constant(value)
    constant = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), constant) if math.copysign(1, value) < 0 else constant


def dtype_node(dtype: Any, recorder: Recorder) -> Any:
    """Resolve a dtype argument: the dtype of a stand-in, or the name of a dtype."""
    if isinstance(dtype, Traced):
        return dtype
    try:
        resolved = np.dtype(dtype) if not isinstance(dtype, str) else dtype_named(dtype)
    except (TypeError, ValueError, FunctionError):
        raise recorder.refused(f"it uses the dtype {dtype!r}") from None
    return resolved.name


def index_node(index: Any, recorder: Recorder) -> ast.expr:
    """Build the syntax tree of an index, or of an item of one."""
    if isinstance(index, tuple):
        return ast.Tuple([index_node(item, recorder) for item in index])
    if isinstance(index, slice):
        bounds = (index.start, index.stop, index.step)
        return ast.Slice(*(None if bound is None else index_node(bound, recorder) for bound in bounds))
    if index is None or index is Ellipsis:
        return ast.Constant(index)
    if isinstance(index, Traced):
        return index._node
    if isinstance(index, bool | np.bool_):
        raise recorder.refused("it indexes with a boolean")
    try:
        return node_of(operator.index(index), recorder)
    except TypeError:
        raise recorder.refused(f"it indexes with {type(index).__name__}") from None


class Branch(Traced):
    """A subtree or leaf of an unknown tree: `tree['a']`, `tree.a`."""

    def __init__(self, path: tuple[str, ...], recorder: Recorder):
        super().__init__(ast.Subscript(ast.Name("source"), ast.Constant("/".join(path))), recorder)
        self._path = path

    def __getitem__(self, index: Any) -> Traced:
        if isinstance(index, str):
            return Branch((*self._path, index), self._recorder)
        if isinstance(index, RequestedKey):
            return index.leaf(self._path, self._recorder)
        if not self._path:
            raise self._recorder.refused("it looks at the tree as a whole")
        return super().__getitem__(index)

    def __getattr__(self, name: str) -> Any:
        if name in ("keys", "values", "items", "get"):
            raise self._recorder.refused(f"it asks by `.{name}` which leaves there are")
        if name.startswith("_"):
            raise AttributeError(name)
        if self._path and (name in METHODS or name in _ATTRIBUTES):
            return super().__getattr__(name)
        return Branch((*self._path, name), self._recorder)


class RequestedKey:
    """The requested key of a function of several values. It can only select a leaf."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def leaf(self, path: tuple[str, ...], recorder: Recorder) -> Traced:
        """The leaf with this key below `path`."""
        key: ast.expr = ast.Name("key")
        if path:
            key = ast.JoinedStr([ast.Constant("/".join(path) + "/"), ast.FormattedValue(key, -1)])
        return Traced(ast.Subscript(ast.Name("source"), key), recorder)

    def __getattr__(self, name: str) -> Any:
        raise self._recorder.refused(f"it looks at the key by `.{name}`")


_OF_TEXTS = "eq ne hash str repr format len iter contains getitem add bool"
"""Special methods by which a function could look at the key."""
for _name in _OF_TEXTS.split():
    setattr(RequestedKey, f"__{_name}__", _refusal(f"it looks at the key by `__{_name}__`"))


def stand_ins_in(value: Any) -> Iterator[Traced]:
    """Yield the stand-ins among arguments, and in lists and dicts among them."""
    if isinstance(value, Traced):
        yield value
    elif type(value) in (list, tuple, dict):
        for item in value.values() if type(value) is dict else value:
            yield from stand_ins_in(item)


Call = Callable[..., Any]
"""A function of a library, written with functions of the language."""


def stand_in_of(*values: Any) -> Any:
    """Any stand-in among arguments, which knows how to write a call."""
    return next(stand_ins_in(values))


def call_of(name: str) -> Call:
    """Call the language's function of this name with the same positional arguments."""
    return lambda x, *others: stand_in_of(x, *others)._called(name, x, *others)


def operator_call(symbol: str) -> Call:
    """Call an operator as a function."""
    return lambda x, y: stand_in_of(x, y)._operated(symbol, x, y)
