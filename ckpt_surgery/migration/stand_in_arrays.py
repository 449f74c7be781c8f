"""Stand-ins for arrays whose shapes and dtypes are known: what a user's function of trees is called with."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import DType, kind
from ckpt_surgery.core.errors import SurgeryError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.graph.nodes import Array, Read
from ckpt_surgery.language.expressions import parse
from ckpt_surgery.language.scope import Scope
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.migration.indexing import parse_subscript
from ckpt_surgery.migration.literals import can_be_written, concrete_array, is_of_jax, literal_node
from ckpt_surgery.migration.numpy_calls import FUNCTIONS, METHODS, NumpyRecorder
from ckpt_surgery.migration.placeholders import Operands, filled_in, subscript_node
from ckpt_surgery.migration.promotions import JAX, NUMPY, promote, whole_outcome
from ckpt_surgery.migration.standins import Traced, Untraceable, operator_node, stand_ins_in
from ckpt_surgery.migration.user_frames import Place, user_place

_WIDE = ("float64", "int64", "uint64", "int32", "uint32")
"""Dtypes with values that float32 cannot represent."""
_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


class ArrayRecorder(NumpyRecorder):
    """What one call of a user's function with stand-ins has shown."""

    def __init__(self) -> None:
        super().__init__()
        self.place: Place | None = None
        """Where the user's function does what no expression says."""
        self.leaves: tuple[str, ...] = ()
        """Leaves that it does so with."""
        self.narrowed: dict[str, tuple[str, str]] = {}
        """Leaves that JAX reads with 32 bits in place of 64: names of the dtypes before and after, by key."""
        self.constants: dict[str, np.ndarray] = {}
        """Arrays of the program that are too large to be written out, by the name of the hook that gives
        them: `hooks.NAME()`."""
        self.library = NUMPY
        """The library whose function is being called."""

    def refused(self, flaw: str, *operands: Any) -> Untraceable:
        """The exception to raise where the function is more than an expression."""
        if self.flaw is None:
            self.place = user_place()
            self.leaves = _leaves_of(stand_ins_in(list(operands)))
        return super().refused(flaw)

    def problem(self) -> UsageError:
        """What the function does that no expression says, and where."""
        about = f" with {', '.join(f'`{shown(key)}`' for key in self.leaves)}" if self.leaves else ""
        at = f" ({self.place})" if self.place else ""
        return UsageError(
            f"the function cannot be written as a recipe: {self.flaw}{about}{at}",
            hint="Let it be called with the arrays themselves: `ckpt_surgery.opaque(g, shape=…, dtype=…)` of "
            "a function `g` that does this.",
        )

    def called(
        self,
        name: str,
        inputs: Sequence[Any],
        keywords: Mapping[str, Any],
        function: Callable[..., Any] | None = None,
    ) -> Any:
        """A call of NumPy's or JAX's function of this name, of which some arguments are stand-ins."""
        of_jax = str(getattr(function, "__module__", "")).startswith("jax")
        if name not in FUNCTIONS:
            called = f"{'jax' if of_jax else 'numpy'}.{name}"
            raise self.refused(f"it calls `{called}`", *inputs, *keywords.values())
        if not of_jax:
            return self._called_in(NUMPY, name, inputs, keywords)
        assert function is not None
        inputs = [_as_jax(value) for value in inputs]
        keywords = {n: _as_jax(value) for n, value in keywords.items()}
        expected = whole_outcome(function, inputs, keywords)
        return self.checked(name, self._called_in(JAX, name, inputs, keywords), expected)

    def _called_in(self, library: str, name: str, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        before, self.library = self.library, library
        try:
            return _moved(super().called(name, inputs, keywords), library)
        finally:
            self.library = before

    def checked(self, name: str, result: Any, expected: Any) -> Any:
        """The result of JAX's function, if it has the shape and dtype that JAX gives it."""
        if isinstance(expected, list | tuple):
            return type(expected)(self.checked(name, *pair) for pair in zip(result, expected, strict=True))
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            told = f"{expected.dtype.name}{list(expected.shape)}, not {result.dtype.name}{list(result.shape)}"
            raise self.refused(f"it calls `jax.{name}`, which gives {told}", result)
        return result._in_library(JAX, expected.weak)

    def operand(self, value: Any) -> Any:
        """A value of the function's own that is used like an array: a stand-in, or a number as it is."""
        if isinstance(value, Traced) or type(value) in (bool, int, float):
            return value
        array = concrete_array(value)
        if array is None:
            raise self.refused(f"it combines an array with {type(value).__name__}")
        return self.constant(
            array, JAX if is_of_jax(value) else NUMPY, bool(getattr(value, "weak_type", False))
        )

    def constant(self, array: np.ndarray, library: str = NUMPY, weak: bool = False) -> "StandIn":
        """The stand-in of an array of the program."""
        if can_be_written(array):
            node = literal_node(array)
        else:
            name = f"constant_{len(self.constants) + 1}"
            self.constants[name] = array.copy()
            node = ast.Call(ast.Attribute(ast.Name("hooks"), name), [], [])
        leaf = Leaf(Key.parse("constant"), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype))
        return StandIn(node, self, Array(Read("", leaf), array.dtype), (), library, weak)


class StandIn(Traced, LazyArray):
    """An array that a function gets or makes: an expression of the recipe language, and its shape and dtype.

    It is NumPy's or JAX's, as it would be in the function: dtypes are promoted by their rules.
    """

    _recorder: ArrayRecorder

    def __init__(
        self,
        node: ast.expr,
        recorder: ArrayRecorder,
        array: Array,
        leaves: tuple[str, ...],
        library: str = NUMPY,
        weak: bool = False,
    ):
        LazyArray.__init__(self, array.spec, key=leaves[0] if len(leaves) == 1 else "")
        Traced.__init__(self, node, recorder)
        self._array = array
        self.leaves = leaves
        self.library = library
        self._weak = weak

    @property
    def node(self) -> ast.expr:
        """The value as an expression: `source['a/b']` for a leaf that is only moved."""
        return self._node

    @property
    def expression(self) -> str:
        """The text of the expression."""
        return ast.unparse(ast.fix_missing_locations(ast.Expression(self._node)))

    @property
    def weak(self) -> bool:
        """Whether its dtype gives way to that of another operand of JAX."""
        return self._weak

    def _in_library(self, library: str, weak: bool = False) -> "StandIn":
        """The same value as an array of this library."""
        if (library, weak) == (self.library, self._weak):
            return self
        return StandIn(self._node, self._recorder, self._array, self.leaves, library, weak)

    # --- writing down ---

    def _recorded(self, template: ast.expr, operands: Mapping[str, "StandIn"]) -> "StandIn":
        """The value of an expression in which operands stand under these names."""
        text = ast.unparse(ast.fix_missing_locations(ast.Expression(template)))
        try:
            array = parse(text).evaluate(Scope({name: o._array for name, o in operands.items()}))
        except SurgeryError as error:
            flaw = f"the recipe language refuses it: {error.problems[0].message}"
            raise self._recorder.refused(flaw, *operands.values()) from None
        node = filled_in(template, operands)
        return StandIn(node, self._recorder, array, _leaves_of(operands.values()), self._recorder.library)

    def _written(self, build: Callable[["Operands"], ast.expr]) -> "StandIn":
        operands = Operands(self._recorder, StandIn)
        template = build(operands)
        return self._recorded(template, operands.by_name)

    def _call(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> "StandIn":
        """A call of a function of the language, with operands as it takes them."""
        return self._written(
            lambda operands: ast.Call(
                ast.Name(name),
                [operands.node(value) for value in arguments],
                [ast.keyword(n, operands.node(value)) for n, value in keywords.items()],
            )
        )

    def converted(self, dtype: DType) -> "StandIn":
        """The values as NumPy converts them, and rounded if they are computed in a wider dtype."""
        if self._array.node.spec.dtype == dtype == self.dtype:
            return self
        through = self
        if dtype.kind == "V" and kind(dtype) == "f" and self.dtype.name in _WIDE:
            through = self.converted(np.dtype(np.float32))  # ml_dtypes rounds twice
        return through._call("cast", [through, dtype.name], _NO_NAMES)._in_library(self.library)

    def _promoted(
        self, name: str, operands: Sequence[Any], keywords: Mapping[str, Any], write: Callable[..., "StandIn"]
    ) -> "StandIn":
        """The value of an operator or a function, with the casts that the library makes."""
        library = self._recorder.library
        if library == JAX:
            operands = [_as_jax(operand) for operand in operands]
        found = promote(library, name, operands, keywords)
        if found.inexact is not None:
            raise self._recorder.refused(found.inexact, *operands)
        result = write(found.operands)
        dtype = result.dtype if found.outcome is None else found.outcome.dtype
        return result.converted(dtype)._in_library(library, found.outcome is not None and found.outcome.weak)

    def _called(self, name: str, *arguments: Any, **keywords: Any) -> "StandIn":
        operands = [self._lifted(value) for value in arguments]
        return self._promoted(name, operands, keywords, lambda given: self._call(name, given, keywords))

    def _lifted(self, value: Any) -> Any:
        if isinstance(value, np.dtype):
            return value.name
        if isinstance(value, list):
            return [self._lifted(item) for item in value]
        return value if concrete_array(value) is None else self._recorder.operand(value)

    def _operated(self, symbol: str, left: Any, right: Any) -> "StandIn":
        sides = [self._recorder.operand(side) for side in (left, right)]
        return self._in_own(
            sides,
            lambda: self._promoted(
                symbol,
                sides,
                _NO_NAMES,
                lambda given: self._written(
                    lambda operands: operator_node(symbol, *(operands.node(side) for side in given))
                ),
            ),
        )

    def _signed(self, symbol: str) -> "StandIn":
        kind_ = ast.USub if symbol == "-" else ast.Invert
        return self._in_own(
            [self],
            lambda: self._promoted(
                "neg" if symbol == "-" else "~",
                [self],
                _NO_NAMES,
                lambda given: self._written(lambda operands: ast.UnaryOp(kind_(), operands.node(given[0]))),
            ),
        )

    def _in_own(self, sides: Sequence[Any], call: Callable[[], "StandIn"]) -> "StandIn":
        """What an operator gives: of JAX, where one of the operands is."""
        of_jax = any(isinstance(side, StandIn) and side.library == JAX for side in sides)
        before = self._recorder.library
        self._recorder.library = JAX if of_jax else before
        try:
            return call()
        finally:
            self._recorder.library = before

    def _started(self) -> "StandIn":
        return self if kind(self.dtype) in "iu" else self._operated("+", 0, self)

    # --- what arrays have ---

    def __getitem__(self, index: Any) -> "StandIn":  # type: ignore[override]
        try:
            found = parse_subscript(index, self.shape)
        except TypeError as error:
            raise self._recorder.refused(f"it indexes with {error}", self) from None
        except IndexError:
            if self.library == NUMPY:
                raise
            raise self._recorder.refused("it indexes beyond an array, which JAX clamps", self) from None
        if found.is_whole:
            return self
        taken = self
        if found.indices is not None:
            taken = self._call("take", [self, found.indices.tolist(), found.axis], _NO_NAMES)
        if all(item == slice(None) for item in found.items):
            return taken._in_library(self.library)
        return taken._written(
            lambda operands: ast.Subscript(operands.node(taken), subscript_node(found.items))
        )._in_library(self.library)

    def __len__(self) -> int:
        return LazyArray.__len__(self)

    def __iter__(self) -> Iterator["StandIn"]:  # type: ignore[override]
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    @property
    def T(self) -> "StandIn":
        """The array with its axes reversed."""
        if self.ndim < 2:
            return self
        return self._written(lambda operands: ast.Attribute(operands.node(self), "T"))._in_library(
            self.library
        )

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return _Method(self, name)
        if name.startswith("_") or not _is_array_attribute(name):
            raise AttributeError(f"an array has no attribute {name!r}")
        raise self._recorder.refused(f"it uses `.{name}`", self)

    def astype(self, dtype: Any, **options: Any) -> "StandIn":
        """The array with another dtype."""
        return _Method(self, "astype")(dtype, **options)  # type: ignore[no-any-return]

    def get(self) -> "StandIn":  # type: ignore[override]
        """The array itself."""
        return self

    def _read(self, region: Region) -> NoReturn:
        raise self._recorder.refused("it asks for values", self)

    @property
    def __jax_array__(self) -> NoReturn:
        raise AttributeError("__jax_array__")


class _Method:
    """A method of an array, as NumPy's or JAX's arrays have it."""

    def __init__(self, array: StandIn, name: str):
        self._array, self._name = array, name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        array, recorder, name = self._array, self._array._recorder, self._name
        method = METHODS[name]
        before, recorder.library = recorder.library, array.library
        try:
            result = _moved(method(array, *arguments, **keywords), array.library)
        finally:
            recorder.library = before
        if array.library == NUMPY:
            return result
        call: Callable[..., Any] = lambda x: getattr(x, name)(*arguments, **keywords)  # noqa: E731
        return recorder.checked(name, result, whole_outcome(call, [array], {}))


def _moved(value: Any, library: str) -> Any:
    if isinstance(value, StandIn):
        return value._in_library(library)
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, library) for item in value)
    return value


def _as_jax(value: Any) -> Any:
    """An argument as JAX takes it: arrays of 64 bits become 32, unless JAX is told to keep them."""
    if isinstance(value, list | tuple):
        return type(value)(_as_jax(item) for item in value)
    if not isinstance(value, StandIn):
        return value
    import jax

    dtype = np.dtype(jax.dtypes.canonicalize_dtype(value.dtype))
    if dtype != value.dtype:
        for key in value.leaves:
            value._recorder.narrowed.setdefault(key, (value.dtype.name, dtype.name))
    return value.converted(dtype)._in_library(JAX, value.weak)


def _leaves_of(arrays: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for array in arrays for key in getattr(array, "leaves", ())))


def _is_array_attribute(name: str) -> bool:
    return hasattr(np.ndarray, name) or name in ("at", "addressable_shards", "device", "devices", "is_ready")


def source_stand_in(source_name: str, leaf: Leaf, recorder: ArrayRecorder) -> StandIn:
    """The stand-in of a leaf with an array: `source['a/b']`."""
    assert leaf.spec is not None
    node = ast.Subscript(ast.Name(source_name), ast.Constant(leaf.key.text))
    return StandIn(node, recorder, Array(Read(source_name, leaf), leaf.spec.dtype), (leaf.key.text,))
