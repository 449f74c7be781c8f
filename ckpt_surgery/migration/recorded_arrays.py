"""Stand-ins for arrays of known shapes and dtypes: expressions, and the results of operators on them."""

import ast
import functools
import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.dtypes import DType, dtype_named, kind
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.text import shortened, shown
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.language.expressions.parsing import MAX_TEXT, parse
from ckpt_surgery.language.expressions.scope import Scope
from ckpt_surgery.live.indexing import parse_subscript
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.wanted import narrowed
from ckpt_surgery.migration import promotions
from ckpt_surgery.migration.literals import concrete_array
from ckpt_surgery.migration.promotions import JAX, NUMPY
from ckpt_surgery.migration.replacing import asked_by_jax, is_operator, user_call
from ckpt_surgery.migration.standins import (
    ARITHMETIC,
    METHODS,
    OPERATORS,
    Traced,
    index_node,
    node_of,
    operator_node,
)

WIDE = ("float64", "int64", "uint64", "int32", "uint32")
"""Dtypes with values that float32 cannot represent."""
_REDUCED = {"add": "sum", "maximum": "max", "minimum": "min"}
"""Functions whose `reduce` has another name."""
_SYMBOLS = {function: symbol for symbol, (_, function) in OPERATORS.items()}
"""Operators of NumPy's arrays, by the function that they call."""


class StandIn(Traced, LazyArray):
    """Stand-in of an array of NumPy or JAX, by whose rules it is promoted: an expression, shape and dtype."""

    has_shape: ClassVar[bool] = True
    _recorder: Any
    weak: bool = False
    """True if its dtype yields to that of another operand of JAX."""

    def __init__(
        self,
        node: ast.expr,
        recorder: Any,
        array: Array,
        leaves: tuple[str, ...],
        library: str = NUMPY,
        weak: bool = False,
        extent: tuple[int, int] | None = None,
    ):
        Traced.__init__(self, node, recorder)
        LazyArray.__init__(self, array.spec, key=leaves[0] if len(leaves) == 1 else "")
        self._extent = extent
        self.stacked: tuple[StandIn, ...] = ()
        """Arrays of which it is a stack along the first axis, if NumPy adds them one by one."""
        self._array = array
        self.leaves = leaves
        self.library = library
        self.weak = weak

    @property
    def extent(self) -> tuple[int, int]:
        """Characters of the expression, and steps within each other: few can make it large, by repetition."""
        if self._extent is None:  # leaves that are only moved are never asked
            self._extent = len(ast.unparse(self._node)), 1
        return self._extent

    def in_library(self, library: str, weak: bool = False) -> "StandIn":
        """Return the same value as an array of this library."""
        if (library, weak) == (self.library, self.weak):
            return self
        return StandIn(self._node, self._recorder, self._array, self.leaves, library, weak, self._extent)

    def _written(self, build: Callable[[Callable[[Any], ast.expr]], ast.expr]) -> "StandIn":
        """Make the value of an expression, which `build` makes with a function that writes operands."""
        operands: dict[str, StandIn] = {}

        def named(array: Any) -> ast.expr:
            name = f"array{len(operands)}"
            operands[name] = array
            return ast.Name(name)

        template = build(lambda value: node_of(value, self._recorder, named))
        text = ast.unparse(template)
        try:
            array = parse(text).evaluate(Scope({name: o._array for name, o in operands.items()}))
        except SurgeryError as error:
            flaw = f"the recipe language refuses it: {error.problems[0].message}"
            raise self._recorder.refused(flaw, *operands.values()) from None
        extents = [operand.extent for operand in operands.values()]
        length = len(text) + sum(length for length, _ in extents)
        steps = 1 + max((steps for _, steps in extents), default=0)
        node = build(lambda value: node_of(value, self._recorder))
        leaves = leaves_of(operands.values())
        value = StandIn(node, self._recorder, array, leaves, self._recorder.library, extent=(length, steps))
        problem = None
        if length > 4 * MAX_TEXT:  # an intermediate value may become shorter
            problem = f"takes about {length:,} characters, and {MAX_TEXT:,} are the limit"
        elif steps > 10:  # else it is surely not nested too deeply
            try:
                parse(ast.unparse(value._node))
            except SurgeryError as error:
                problem = f"is {error.problems[0].message}"
        if problem is not None:
            raise self._recorder.refused(f"the expression for what it computes {problem}", value)
        return value

    def _call(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> "StandIn":
        """Write a call of a function of the language, with operands that were cast already."""
        return self._written(
            lambda node: ast.Call(
                ast.Name(name),
                [node(value) for value in arguments],
                [ast.keyword(n, node(value)) for n, value in keywords.items()],
            )
        )

    def converted(self, dtype: DType) -> "StandIn":
        """Convert the values as NumPy does; rounds values that were computed in a wider dtype."""
        if self._array.node.spec.dtype == dtype == self.dtype:
            return self
        through = self
        if promotions.of_ml_dtypes(dtype) and kind(dtype) == "f" and self.dtype.name in WIDE:
            through = self.converted(np.dtype(np.float32))  # ml_dtypes rounds twice
        return through._call("cast", [through, dtype.name], {}).in_library(self.library)

    def _promoted(
        self, name: str, operands: Sequence[Any], keywords: Mapping[str, Any], write: Callable[..., "StandIn"]
    ) -> "StandIn":
        """Apply an operator or a function with the casts that the library makes."""
        library = self._recorder.library
        if library == JAX:
            operands = [as_jax(operand) for operand in operands]
        cast, expected, inexact = promotions.promote(library, name, operands, keywords)
        if inexact is not None:
            raise self._recorder.refused(inexact, *operands)
        result = write([self._lifted(operand) for operand in cast])
        dtype, weak = (result.dtype, False) if expected is None else (expected.dtype, expected.weak)
        return result.converted(dtype).in_library(library, weak)

    def _called(self, name: str, *arguments: Any, **keywords: Any) -> "StandIn":
        operands = [self._lifted(value) for value in arguments]
        if name == "mean" and self._recorder.library == JAX:
            return self._mean_of_jax(as_jax(operands[0]), keywords)
        items = operands[0].stacked if name in ("sum", "mean") and keywords == {"axis": 0} else ()

        def write(given: Sequence[Any]) -> StandIn:
            return self._call(name, [list(items)], {}) if items else self._call(name, given, keywords)

        result = self._promoted(name, operands, keywords, write)
        exact = result.dtype.name in ("float32", "float64") and result.library == NUMPY
        if name == "stack" and keywords == {"axis": 0} and exact and result.size > len(result):
            result.stacked = tuple(operands[0])  # NumPy adds them one by one, as lists are added here
        return result

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return value.name
        if isinstance(value, list):
            return [self._lifted(item) for item in value]
        return value if concrete_array(value) is None else self._recorder.operand(value)

    def _operated(self, symbol: str, left: Any, right: Any) -> "StandIn":
        sides = [self._recorder.operand(side) for side in (left, right)]
        of_jax = any(isinstance(side, StandIn) and side.library == JAX for side in sides)
        with self._recorder.using(JAX if of_jax else self._recorder.library):
            if symbol == "**" and type(sides[1]) in (int, float) and sides[1] in (1, 2):
                return self._power(sides[0], sides[1])
            if symbol == "/" and self._recorder.library == JAX:
                left, right = map(as_jax, sides)
                whole = np.broadcast_shapes(*(getattr(side, "shape", ()) for side in sides))
                if getattr(right, "shape", ()) != whole:
                    return self._by_reciprocal(left, right)
            return self._promoted(symbol, sides, {}, lambda given: self._operation(symbol, *given))

    def _operation(self, symbol: str, left: Any, right: Any) -> "StandIn":
        """Write an operator between operands that were cast already."""
        return self._written(lambda node: operator_node(symbol, node(left), node(right)))

    def _by_reciprocal(self, left: "StandIn", right: Any) -> "StandIn":
        """Divide as XLA does if the divisor is broadcast."""
        result = promotions.outcome(JAX, "/", [left, right])
        x, y = promotions.converted(left, result.dtype), promotions.converted(right, result.dtype)
        if isinstance(y, StandIn):
            inverse: Any = self._operation("/", 1, y)
            inverse = inverse if promotions.of_ml_dtypes(result.dtype) else inverse.converted(result.dtype)
        else:
            inverse = _reciprocal(y, result.dtype)
        return self._operation("*", x, inverse).converted(result.dtype).in_library(JAX, result.weak)

    def _mean_of_jax(self, x: "StandIn", keywords: Mapping[str, Any]) -> "StandIn":
        """Compute the mean as JAX does: narrow floats in float32, with the reciprocal of the number."""
        result = promotions.outcome(JAX, "mean", [x], **keywords)
        wide = result.dtype if result.dtype.itemsize > 2 else np.dtype(np.float32)
        total = self._call("sum", [x if kind(x.dtype) == "f" else x.converted(result.dtype)], keywords)
        number = x.size // max(1, total.size)
        mean = self._operation("*", total, _reciprocal(number, wide)) if number else total
        return mean.converted(result.dtype).in_library(JAX)

    def _power(self, base: "StandIn", exponent: int | float) -> "StandIn":
        """Write the powers 1 and 2 as both libraries do: the array, and its square."""
        dtype = promotions.outcome(self._recorder.library, "**", [base, exponent]).dtype
        x = base.converted(dtype).in_library(self._recorder.library)
        return x if exponent == 1 else x._operated("*", x, x)

    def _in_place(self, symbol: str, other: Any) -> "StandIn":
        if self.library == NUMPY:
            flaw = f"it changes an array in place, by `{symbol}=`: `x = x {symbol} …` makes a new one"
            raise self._recorder.refused(flaw, self)
        return self._operated(symbol, self, other)

    def _signed(self, symbol: str) -> "StandIn":
        name, sign = ("neg", ast.USub()) if symbol == "-" else ("~", ast.Invert())

        def write(given: Sequence[Any]) -> StandIn:
            return self._written(lambda node: ast.UnaryOp(sign, node(given[0])))

        with self._recorder.using(JAX if self.library == JAX else self._recorder.library):
            return self._promoted(name, [self], {}, write)

    def _started(self) -> "StandIn":
        return self if kind(self.dtype) in "iu" else self._operated("+", 0, self)

    def _cast(self, dtype: Any) -> "StandIn":
        wanted = dtype_named(dtype)
        return self.converted(narrowed(wanted) if self._recorder.library == JAX else wanted)

    def _reshaped(self, shape: Sequence[Any]) -> "StandIn":
        lengths = [operator.index(length) for length in shape]
        if lengths.count(-1) == 1:
            known = -math.prod(lengths)
            lengths[lengths.index(-1)] = self.size // known if known else 0
        resolved = tuple(lengths)
        if math.prod(resolved) != self.size or min(resolved, default=0) < 0:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return self if resolved == self.shape else self._call("reshape", [self, resolved], {})

    def __getitem__(self, index: Any) -> "StandIn":  # type: ignore[override]
        try:
            items, taken = parse_subscript(index, self.shape)
        except TypeError as error:
            raise self._recorder.refused(f"it indexes with {error}", self) from None
        except IndexError:
            if self.library == NUMPY:
                raise
            raise self._recorder.refused("it indexes beyond an array, which JAX clamps", self) from None
        selected = self._call("take", [self, *taken], {}) if taken else self
        if items:
            at = index_node(items[0] if len(items) == 1 else tuple(items), self._recorder)
            selected = selected._written(lambda node: ast.Subscript(node(selected), at))
        return selected if selected is self else selected.in_library(self.library)

    __len__, __iter__ = LazyArray.__len__, LazyArray.__iter__

    @property
    def T(self) -> "StandIn":
        """The array with its axes reversed."""
        if self.ndim < 2:
            return self
        return self._written(lambda node: ast.Attribute(node(self), "T")).in_library(self.library)

    @property
    def mT(self) -> "StandIn":
        """The array with its last two axes swapped."""
        return self.swapaxes(-1, -2)  # type: ignore[no-any-return]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return functools.partial(self._method, name)
        of_jax = ("at", "addressable_shards", "device", "devices", "is_ready")  # which NumPy's arrays lack
        if name.startswith("_") or not (hasattr(np.ndarray, name) or name in of_jax):
            raise AttributeError(f"an array has no attribute {name!r}")
        raise self._recorder.refused(f"it uses `.{name}`", self)

    def _method(self, name: str, /, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of NumPy's or JAX's arrays."""
        recorder = self._recorder
        with recorder.using(self.library):
            result = moved(recorder.functions[name](self, *arguments, **keywords), self.library)
        if self.library == NUMPY:
            return result
        call: Callable[..., Any] = lambda x: getattr(x, name)(*arguments, **keywords)  # noqa: E731
        return recorder.checked(name, result, promotions.whole_outcome(call, [self], {}))

    def astype(self, dtype: Any, **options: Any) -> "StandIn":
        """The array with another dtype."""
        return self._method("astype", dtype, **options)  # type: ignore[no-any-return]

    def view(self, dtype: Any) -> "StandIn":
        """Reinterpret the bytes of the array as another dtype, whose items may be wider or narrower."""
        return self._method("view", dtype)  # type: ignore[no-any-return]

    def get(self) -> "StandIn":  # type: ignore[override]
        """The array itself."""
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        if method == "reduce" and ufunc.__name__ in _REDUCED:
            axis = keywords.pop("axis", 0)
            return self._recorder.called(_REDUCED[ufunc.__name__], inputs, {**keywords, "axis": axis}, ufunc)
        symbol = _SYMBOLS.get(ufunc.__name__)
        if symbol and self.library == JAX and len(inputs) == 2 and is_operator(sys._getframe(1)):
            return self._operated(symbol, *inputs)  # NumPy's arrays leave operators to JAX
        return super().__array_ufunc__(ufunc, method, *inputs, **keywords)

    def _read(self, region: Region) -> NoReturn:
        raise self._recorder.refused("it asks for values", self)

    @property
    def __jax_array__(self) -> NoReturn:
        if asked_by_jax():
            call = user_call()
            flaw = "it calls a function of JAX that cannot be written down"
            raise self._recorder.refused(f"{flaw}: `{shown(shortened(call, 80))}`" if call else flaw, self)
        raise AttributeError("__jax_array__")


def _in_place(symbol: str) -> Callable[[StandIn, Any], StandIn]:
    return lambda array, other: array._in_place(symbol, other)


for _symbol, (_method, _) in ARITHMETIC.items():
    setattr(StandIn, f"__i{_method}__", _in_place(_symbol))


def _reciprocal(number: Any, dtype: DType) -> float:
    """Reciprocal of a number, in the dtype that XLA divides in."""
    wide = np.dtype(np.float32) if promotions.of_ml_dtypes(dtype) else dtype
    return float(np.ones((), wide) / np.asarray(number).astype(wide))


def moved(value: Any, library: str) -> Any:
    """Make arrays of this library of the arrays in an argument."""
    return promotions.mapped(value, lambda array: array.in_library(library))


def as_jax(value: Any) -> Any:
    """Convert an argument as JAX does: arrays of 64 bits become 32, unless JAX is configured to keep them."""

    def change(array: StandIn) -> StandIn:
        dtype = narrowed(array.dtype)
        for key in array.leaves if dtype != array.dtype else ():
            array._recorder.narrowed.setdefault(key, (array.dtype.name, dtype.name))
        return array.converted(dtype).in_library(JAX, array.weak)

    return promotions.mapped(value, change)


def leaves_of(arrays: Any) -> tuple[str, ...]:
    """Keys of the leaves that arrays are made of, each once."""
    return tuple(dict.fromkeys(key for array in arrays for key in getattr(array, "leaves", ())))
