"""Arrays as expressions with shapes and dtypes, and the results of operators and functions on them."""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from ckpt_surgery.core.dtypes import DType, dtype_named, kind
from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.language.expressions.parsing import MAX_TEXT, parse
from ckpt_surgery.language.expressions.scope import Scope
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.live.wanted import narrowed
from ckpt_surgery.migration.literals import Extent, concrete_array, extent_of
from ckpt_surgery.migration.promotions import JAX, NUMPY, converted, mapped, of_ml_dtypes, outcome, promote
from ckpt_surgery.migration.standins import Recorder, Traced, node_of, operator_node

WIDE = ("float64", "int64", "uint64", "int32", "uint32")
"""Dtypes with values that float32 cannot represent."""
MOST_PARTS = 4
"""Maximum size of an intermediate value, in multiples of the longest expression of a recipe."""
SURELY_PARSED = 40
"""Nesting depth up to which the language surely accepts an expression."""
NO_NAMES: Mapping[str, Any] = MappingProxyType({})


class RecordedArray(Traced, LazyArray):  # type: ignore[misc]
    """An argument or result of a function: an expression of the recipe language, with shape and dtype.

    It is NumPy's or JAX's, as it would be in the function: dtypes are promoted by their rules.
    """

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
        extent: Extent | None = None,
    ):
        Traced.__init__(self, node, recorder)
        LazyArray.__init__(self, array.spec, key=leaves[0] if len(leaves) == 1 else "")
        self._extent = extent
        self.stacked: tuple[RecordedArray, ...] = ()
        """Arrays of which it is a stack along the first axis, if NumPy adds them one by one."""
        self._array = array
        self.leaves = leaves
        self.library = library
        self.weak = weak

    @property
    def node(self) -> ast.expr:
        """Syntax tree of the value: `source['a/b']` for a leaf that is only moved."""
        return self._node

    @property
    def extent(self) -> Extent:
        """Size of the expression."""
        if self._extent is None:  # leaves that are only moved are never asked
            self._extent = extent_of(self._node, ast.unparse(self._node))
        return self._extent

    @property
    def expression(self) -> str:
        """The text of the expression."""
        return ast.unparse(ast.fix_missing_locations(ast.Expression(self._node)))

    def _in_library(self, library: str, weak: bool = False) -> "RecordedArray":
        """Return the same value as an array of this library."""
        if (library, weak) == (self.library, self.weak):
            return self
        return type(self)(self._node, self._recorder, self._array, self.leaves, library, weak, self._extent)

    # --- writing down ---

    def _recorded(self, template: ast.expr, operands: Mapping[str, "RecordedArray"]) -> "RecordedArray":
        """Make the value of an expression with operands under these names."""
        text = ast.unparse(ast.fix_missing_locations(ast.Expression(template)))
        try:
            array = parse(text).evaluate(Scope({name: o._array for name, o in operands.items()}))
        except SurgeryError as error:
            flaw = f"the recipe language refuses it: {error.problems[0].message}"
            raise self._recorder.refused(flaw, *operands.values()) from None
        extent = extent_of(template, text, (operand.extent for operand in operands.values()))
        node: ast.expr = _Filler(operands).visit(template)
        library = self._recorder.library
        value = type(self)(node, self._recorder, array, leaves_of(operands.values()), library, extent=extent)
        value._check_extent()
        return value

    def _check_extent(self) -> None:
        """Refuse an expression that is too long for a recipe, or nested too deeply."""
        problem = None
        if self.extent.length > MOST_PARTS * MAX_TEXT:
            problem = f"takes about {self.extent.length:,} characters, and {MAX_TEXT:,} are the limit"
        elif self.extent.height > SURELY_PARSED:
            try:
                parse(self.expression)
            except SurgeryError as error:
                problem = f"is {error.problems[0].message}"
        if problem is not None:
            raise self._recorder.refused(f"the expression for what it computes {problem}", self)

    def _written(self, build: Callable[["Operands"], ast.expr]) -> "RecordedArray":
        operands = Operands(self._recorder)
        template = build(operands)
        return self._recorded(template, operands.by_name)

    def _call(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> "RecordedArray":
        """Write a call of a function of the language, with operands that were cast already."""
        return self._written(
            lambda operands: ast.Call(
                ast.Name(name),
                [operands.node(value) for value in arguments],
                [ast.keyword(n, operands.node(value)) for n, value in keywords.items()],
            )
        )

    def converted(self, dtype: DType) -> "RecordedArray":
        """Convert the values as NumPy does; rounds values that were computed in a wider dtype."""
        if self._array.node.spec.dtype == dtype == self.dtype:
            return self
        through = self
        if of_ml_dtypes(dtype) and kind(dtype) == "f" and self.dtype.name in WIDE:
            through = self.converted(np.dtype(np.float32))  # ml_dtypes rounds twice
        return through._call("cast", [through, dtype.name], NO_NAMES)._in_library(self.library)

    def _promoted(
        self,
        name: str,
        operands: Sequence[Any],
        keywords: Mapping[str, Any],
        write: Callable[..., "RecordedArray"],
    ) -> "RecordedArray":
        """Apply an operator or a function with the casts that the library makes."""
        library = self._recorder.library
        if library == JAX:
            operands = [as_jax(operand) for operand in operands]
        promoted = promote(library, name, operands, keywords)
        if promoted.inexact is not None:
            raise self._recorder.refused(promoted.inexact, *operands)
        result, expected = write([self._lifted(operand) for operand in promoted.operands]), promoted.outcome
        dtype, weak = (result.dtype, False) if expected is None else (expected.dtype, expected.weak)
        return result.converted(dtype)._in_library(library, weak)

    def _called(self, name: str, *arguments: Any, **keywords: Any) -> "RecordedArray":
        operands = [self._lifted(value) for value in arguments]
        if name == "mean" and self._recorder.library == JAX:
            return self._mean_of_jax(as_jax(operands[0]), keywords)
        items = operands[0].stacked if name in ("sum", "mean") and keywords == {"axis": 0} else ()

        def write(given: Sequence[Any]) -> RecordedArray:
            return self._call(name, [list(items)], NO_NAMES) if items else self._call(name, given, keywords)

        result = self._promoted(name, operands, keywords, write)
        if name == "stack" and _is_added_in_order(result, keywords):
            result.stacked = tuple(operands[0])
        return result

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return value.name
        if isinstance(value, list):
            return [self._lifted(item) for item in value]
        return value if concrete_array(value) is None else self._recorder.operand(value)

    def _operated(self, symbol: str, left: Any, right: Any) -> "RecordedArray":
        sides = [self._recorder.operand(side) for side in (left, right)]
        return self._in_own(sides, lambda: self._combined(symbol, sides))

    def _combined(self, symbol: str, sides: Sequence[Any]) -> "RecordedArray":
        if symbol == "**" and type(sides[1]) in (int, float) and sides[1] in (1, 2):
            return self._power(sides[0], sides[1])
        if symbol == "/" and self._recorder.library == JAX:
            left, right = map(as_jax, sides)
            whole = np.broadcast_shapes(*(getattr(side, "shape", ()) for side in sides))
            if getattr(right, "shape", ()) != whole:
                return self._by_reciprocal(left, right)
        return self._promoted(symbol, sides, NO_NAMES, lambda given: self._operation(symbol, *given))

    def _operation(self, symbol: str, left: Any, right: Any) -> "RecordedArray":
        """Write an operator between operands that were cast already."""
        return self._written(lambda given: operator_node(symbol, given.node(left), given.node(right)))

    def _by_reciprocal(self, left: "RecordedArray", right: Any) -> "RecordedArray":
        """Divide as XLA does if the divisor is broadcast."""
        result = outcome(JAX, "/", [left, right])
        x, y = converted(left, result.dtype), converted(right, result.dtype)
        if isinstance(y, RecordedArray):
            inverse: Any = self._operation("/", 1, y)
            inverse = inverse if of_ml_dtypes(result.dtype) else inverse.converted(result.dtype)
        else:
            inverse = _reciprocal(y, result.dtype)
        return self._operation("*", x, inverse).converted(result.dtype)._in_library(JAX, result.weak)

    def _mean_of_jax(self, x: "RecordedArray", keywords: Mapping[str, Any]) -> "RecordedArray":
        """Compute the mean as JAX does: narrow floats in float32, with the reciprocal of the number."""
        result = outcome(JAX, "mean", [x], **keywords)
        wide = result.dtype if result.dtype.itemsize > 2 else np.dtype(np.float32)
        total = self._call("sum", [x if kind(x.dtype) == "f" else x.converted(result.dtype)], keywords)
        number = x.size // max(1, total.size)
        mean = self._operation("*", total, _reciprocal(number, wide)) if number else total
        return mean.converted(result.dtype)._in_library(JAX)

    def _power(self, base: "RecordedArray", exponent: int | float) -> "RecordedArray":
        """Write the powers 1 and 2 as both libraries do: the array, and its square."""
        dtype = outcome(self._recorder.library, "**", [base, exponent]).dtype
        x = base.converted(dtype)._in_library(self._recorder.library)
        return x if exponent == 1 else x._operated("*", x, x)

    def _in_place(self, symbol: str, other: Any) -> "RecordedArray":
        if self.library == NUMPY:
            flaw = f"it changes an array in place, by `{symbol}=`: `x = x {symbol} …` makes a new one"
            raise self._recorder.refused(flaw, self)
        return self._operated(symbol, self, other)

    def _signed(self, symbol: str) -> "RecordedArray":
        name, kind_ = ("neg", ast.USub) if symbol == "-" else ("~", ast.Invert)

        def write(given: Sequence[Any]) -> RecordedArray:
            return self._written(lambda operands: ast.UnaryOp(kind_(), operands.node(given[0])))

        return self._in_own([self], lambda: self._promoted(name, [self], NO_NAMES, write))

    def _in_own(self, sides: Sequence[Any], call: Callable[[], "RecordedArray"]) -> "RecordedArray":
        """Call an operator with JAX's rules if one of the operands is of JAX."""
        of_jax = any(isinstance(side, RecordedArray) and side.library == JAX for side in sides)
        with self._recorder.using(JAX if of_jax else self._recorder.library):
            return call()

    def _started(self) -> "RecordedArray":
        return self if kind(self.dtype) in "iu" else self._operated("+", 0, self)

    def _cast(self, dtype: Any) -> "RecordedArray":
        wanted = dtype_named(dtype)
        return self.converted(narrowed(wanted) if self._recorder.library == JAX else wanted)

    def _reshaped(self, shape: Sequence[Any]) -> "RecordedArray":
        lengths = [operator.index(length) for length in shape]
        if lengths.count(-1) == 1:
            known = -math.prod(lengths)
            lengths[lengths.index(-1)] = self.size // known if known else 0
        resolved = tuple(lengths)
        if math.prod(resolved) != self.size or min(resolved, default=0) < 0:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(shape)}")
        return self if resolved == self.shape else self._call("reshape", [self, resolved], NO_NAMES)


class Operands:
    """Names for the arrays in one call."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self.by_name: dict[str, RecordedArray] = {}

    def node(self, value: Any) -> ast.expr:
        """Write an argument as an expression, with names for arrays."""
        if isinstance(value, list | tuple):
            items = [self.node(item) for item in value]
            return ast.List(items) if isinstance(value, list) else ast.Tuple(items)
        if isinstance(value, np.integer):
            value = int(value)
        if not isinstance(value, RecordedArray):
            return node_of(value, self._recorder)
        name = f"array{len(self.by_name)}"
        self.by_name[name] = value
        return ast.Name(name)


class _Filler(ast.NodeTransformer):
    def __init__(self, operands: Mapping[str, RecordedArray]):
        self._operands = operands

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._operands[node.id].node if node.id in self._operands else node


def _is_added_in_order(stack: RecordedArray, keywords: Mapping[str, Any]) -> bool:
    """True if NumPy adds the arrays of a stack one by one, as the language adds those of a list."""
    exact = stack.dtype.name in ("float32", "float64") and stack.library == NUMPY
    return exact and keywords == {"axis": 0} and stack.size > len(stack)


def _reciprocal(number: Any, dtype: DType) -> float:
    """Reciprocal of a number, in the dtype that XLA divides in."""
    wide = np.dtype(np.float32) if of_ml_dtypes(dtype) else dtype
    return float(np.ones((), wide) / np.asarray(number).astype(wide))


def moved(value: Any, library: str) -> Any:
    """Make arrays of this library of the arrays in an argument."""
    return mapped(value, lambda array: array._in_library(library))


def as_jax(value: Any) -> Any:
    """Convert an argument as JAX does: arrays of 64 bits become 32, unless JAX is configured to keep them."""
    return mapped(value, _as_jax)


def _as_jax(array: RecordedArray) -> RecordedArray:
    dtype = narrowed(array.dtype)
    if dtype != array.dtype:
        for key in array.leaves:
            array._recorder.narrowed.setdefault(key, (array.dtype.name, dtype.name))
    return array.converted(dtype)._in_library(JAX, array.weak)


def leaves_of(arrays: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for array in arrays for key in getattr(array, "leaves", ())))
