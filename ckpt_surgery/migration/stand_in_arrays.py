"""Stand-ins for arrays of known shapes and dtypes: arguments of a user's function of trees."""

import ast
import functools
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.live.indexing import entries_of, indices_of
from ckpt_surgery.live.lazy_arrays import LazyArray
from ckpt_surgery.migration.literals import can_be_written, concrete_array, is_of_jax, literal_node
from ckpt_surgery.migration.numpy_calls import FUNCTIONS, NumpyRecorder, methods_of
from ckpt_surgery.migration.promotions import JAX, NUMPY, whole_outcome
from ckpt_surgery.migration.recorded_arrays import NO_NAMES, RecordedArray, as_jax, leaves_of, moved
from ckpt_surgery.migration.replacing import asked_by_jax, is_operator, user_place
from ckpt_surgery.migration.shaped_calls import SHAPED
from ckpt_surgery.migration.standins import (
    ARITHMETIC,
    OPERATORS,
    Traced,
    Untraceable,
    index_node,
    stand_ins_in,
)

_REDUCED = {"add": "sum", "maximum": "max", "minimum": "min"}
"""Functions whose `reduce` has another name."""
_SYMBOLS = {names.function: symbol for symbol, names in OPERATORS.items()}
"""Operators of NumPy's arrays, by the function that they call."""
_OF_JAX = ("at", "addressable_shards", "device", "devices", "is_ready")
"""Attributes of JAX's arrays that NumPy's lack."""
_TRANSFERS = ("device_get", "device_put", "block_until_ready")
"""Functions of JAX that return trees of arrays unchanged."""


class ArrayRecorder(NumpyRecorder):
    """Records one call of a user's function with stand-ins."""

    functions = {**FUNCTIONS, **SHAPED}
    methods = methods_of(functions)

    def __init__(self) -> None:
        super().__init__()
        self.place: str | None = None
        """Place at which the user's function does something that no expression can."""
        self.leaves: tuple[str, ...] = ()
        """Leaves concerned by that."""
        self.narrowed: dict[str, tuple[str, str]] = {}
        """Leaves that JAX narrows from 64 to 32 bits: names of the dtypes before and after, by key."""
        self.constants: dict[str, np.ndarray] = {}
        """Arrays of the program that are too large to write out, by the name of the hook that returns
        them: `hooks.NAME()`."""
        self.library = NUMPY
        """The library whose function is being called."""

    def refused(self, flaw: str, *operands: Any) -> Untraceable:
        """Make the exception for a function that is more than an expression."""
        if self.flaw is None:
            self.place = user_place()
            self.leaves = leaves_of(stand_ins_in(list(operands)))
        return super().refused(flaw)

    def problem(self) -> UsageError:
        """Error that says what the function does that no expression can, and where."""
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
        """Write a call of NumPy's or JAX's function of this name, of which some arguments are stand-ins."""
        of_jax = str(getattr(function, "__module__", "")).startswith("jax")
        if name in _TRANSFERS:
            return _transferred(name, inputs, keywords, function)
        if name == "reshape" and isinstance(inputs[0], RecordedArray):
            of_jax = inputs[0].library == JAX  # `jax.numpy.reshape` leaves arrays of NumPy what they are
        if name not in self.functions:
            raise self.refused(f"it calls `{_called_name(name, function)}`", *inputs, *keywords.values())
        if not of_jax:
            return self._called_in(NUMPY, name, moved(list(inputs), NUMPY), keywords)
        assert function is not None
        inputs = [as_jax(value) for value in inputs]
        keywords = {n: as_jax(value) for n, value in keywords.items()}
        expected = whole_outcome(function, inputs, keywords)
        return self.checked(name, self._called_in(JAX, name, inputs, keywords), expected)

    def _called_in(self, library: str, name: str, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        with self.using(library):
            return moved(super().called(name, inputs, keywords), library)

    @contextmanager
    def using(self, library: str) -> Iterator[None]:
        """Write calls inside this context by the rules of a library."""
        before, self.library = self.library, library
        try:
            yield
        finally:
            self.library = before

    def checked(self, name: str, result: Any, expected: Any) -> Any:
        """Return the result of JAX's function, after checking that its shape and dtype are JAX's."""
        if isinstance(expected, list | tuple):
            return type(result)(self.checked(name, *pair) for pair in zip(result, expected, strict=True))
        if not isinstance(result, StandIn):
            return result  # a shape, or a number of axes
        if (result.shape, result.dtype) != (expected.shape, expected.dtype):
            flaw = f"{expected.dtype.name}{list(expected.shape)}, not {result.dtype.name}{list(result.shape)}"
            raise self.refused(f"it calls `jax.{name}`, which gives {flaw}", result)
        return result._in_library(JAX, expected.weak)

    def operand(self, value: Any) -> Any:
        """Convert a value of the function's own that is used like an array; numbers are kept."""
        if isinstance(value, Traced) or type(value) in (bool, int, float):
            return value
        array = concrete_array(value)
        if array is None:
            raise self.refused(f"it combines an array with {type(value).__name__}")
        return self.constant(
            array, JAX if is_of_jax(type(value)) else NUMPY, bool(getattr(value, "weak_type", False))
        )

    def constant(self, array: np.ndarray, library: str = NUMPY, weak: bool = False) -> "StandIn":
        """Make the stand-in of an array of the program."""
        if can_be_written(array):
            node = literal_node(array)
        else:
            name = f"constant_{len(self.constants) + 1}"
            self.constants[name] = array.copy()
            node = ast.Call(ast.Attribute(ast.Name("hooks"), name), [], [])
        leaf = Leaf(Key.parse("constant"), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype))
        return StandIn(node, self, Array(Read("", leaf), array.dtype), (), library, weak)


def _called_name(name: str, function: Callable[..., Any] | None) -> str:
    """The public name of a library's function: `numpy.linalg.svd`, `jax.lax.sort`."""
    module = str(getattr(function, "__module__", None) or "numpy")
    if not module.startswith("jax."):
        return f"{module}.{name}"
    is_numpys = hasattr(sys.modules.get("jax.numpy"), name)
    return f"jax.numpy.{name}" if is_numpys else f"jax.{name}"


class StandIn(RecordedArray):
    """The stand-in of an array, as a user's function sees it."""

    def __getitem__(self, index: Any) -> RecordedArray:  # type: ignore[override]
        try:
            items, taken = parse_subscript(index, self.shape)
        except TypeError as error:
            raise self._recorder.refused(f"it indexes with {error}", self) from None
        except IndexError:
            if self.library == NUMPY:
                raise
            raise self._recorder.refused("it indexes beyond an array, which JAX clamps", self) from None
        selected = self._call("take", [self, *taken], NO_NAMES) if taken else self
        if items:
            node = index_node(items[0] if len(items) == 1 else tuple(items), self._recorder)
            selected = selected._written(lambda operands: ast.Subscript(operands.node(selected), node))
        return selected if selected is self else selected._in_library(self.library)

    __len__, __iter__ = LazyArray.__len__, LazyArray.__iter__

    @property
    def T(self) -> RecordedArray:
        """The array with its axes reversed."""
        if self.ndim < 2:
            return self
        return self._written(lambda operands: ast.Attribute(operands.node(self), "T"))._in_library(
            self.library
        )

    @property
    def mT(self) -> RecordedArray:
        """The array with its last two axes swapped."""
        return self.swapaxes(-1, -2)  # type: ignore[no-any-return]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def __getattr__(self, name: str) -> Any:
        if name in self._recorder.methods:
            return functools.partial(self._method, name)
        if name.startswith("_") or not (hasattr(np.ndarray, name) or name in _OF_JAX):
            raise AttributeError(f"an array has no attribute {name!r}")
        raise self._recorder.refused(f"it uses `.{name}`", self)

    def _method(self, name: str, /, *arguments: Any, **keywords: Any) -> Any:
        """Call a method of NumPy's or JAX's arrays."""
        recorder = self._recorder
        with recorder.using(self.library):
            result = moved(recorder.methods[name](self, *arguments, **keywords), self.library)
        if self.library == NUMPY:
            return result
        call: Callable[..., Any] = lambda x: getattr(x, name)(*arguments, **keywords)  # noqa: E731
        return recorder.checked(name, result, whole_outcome(call, [self], {}))

    def astype(self, dtype: Any, **options: Any) -> RecordedArray:
        """The array with another dtype."""
        return self._method("astype", dtype, **options)  # type: ignore[no-any-return]

    def view(self, dtype: Any) -> RecordedArray:
        """Reinterpret the bytes of the array as another dtype, whose items may be wider or narrower."""
        return self._method("view", dtype)  # type: ignore[no-any-return]

    def get(self) -> RecordedArray:  # type: ignore[override]
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
            raise self._recorder.refused("it calls a function of JAX that cannot be written down", self)
        raise AttributeError("__jax_array__")


def _in_place(symbol: str) -> Callable[[StandIn, Any], RecordedArray]:
    return lambda array, other: array._in_place(symbol, other)


for _symbol, _names in ARITHMETIC.items():
    setattr(StandIn, f"__i{_names.method}__", _in_place(_symbol))


def _transferred(
    name: str, inputs: Sequence[Any], keywords: Mapping[str, Any], function: Callable[..., Any] | None
) -> Any:
    """Apply a transfer between devices to a tree of arrays."""
    assert function is not None
    import jax

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, RecordedArray):
            return function(leaf, *inputs[1:], **keywords)
        if name == "block_until_ready":
            return leaf
        return leaf._in_library(NUMPY) if name == "device_get" else as_jax(leaf)

    return jax.tree.map(change, inputs[0])


def source_stand_in(source_name: str, leaf: Leaf, recorder: ArrayRecorder, library: str = NUMPY) -> StandIn:
    """Make the stand-in of a leaf with an array of NumPy or JAX: `source['a/b']`."""
    assert leaf.spec is not None
    node = ast.Subscript(ast.Name(source_name), ast.Constant(leaf.key.text))
    array = Array(Read(source_name, leaf), leaf.spec.dtype)
    return StandIn(node, recorder, array, (leaf.key.text,), library)


# --- subscripts -------------------------------------------------------------------------------------------


def parse_subscript(index: Any, shape: Shape) -> tuple[list[Any], list[Any]]:
    """Translate an index of NumPy to items of a subscript, and arguments of a `take` before that, if any.

    Slices of NumPy may exceed an array; these items are integers, slices and None within it, without slices
    of whole axes at the end. Raises IndexError as NumPy does, and TypeError for unsupported indices: arrays
    together with integers, several arrays.
    """
    items = entries_of(index, shape)
    arrays = [item for item in items if isinstance(item, list | np.ndarray)]
    if not arrays:
        return _basic(items, shape), []
    if len(arrays) > 1 or not all(isinstance(item, slice | list | np.ndarray | None) for item in items):
        raise TypeError("more than one array, or an array together with integers, in a subscript")
    along = [item for item in items if item is not None]
    axis = next(i for i, item in enumerate(along) if isinstance(item, list | np.ndarray))
    array = np.asarray(along[axis])
    if array.ndim != 1:
        raise TypeError(f"an array of {array.ndim} axes in a subscript")
    indices = indices_of(along[axis], axis, shape[axis])
    rest = [slice(None) if isinstance(item, list | np.ndarray) else item for item in items]
    shape_after = (*shape[:axis], len(indices), *shape[axis + 1 :])
    return _basic(rest, shape_after), [indices.tolist(), axis]


def _basic(items: Sequence[Any], shape: Shape) -> list[Any]:
    lengths = iter(enumerate(shape))
    written = [None if item is None else _item(item, *next(lengths)) for item in items]
    while written and written[-1] == slice(None):
        written.pop()
    return written


def _item(item: Any, axis: int, length: int) -> Any:
    if isinstance(item, slice):
        return _slice(item, length)
    if isinstance(item, bool | np.bool_):
        raise TypeError("a subscript that is true or false")
    place = operator.index(item)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of bounds for axis {axis} with size {length}")
    return place


def _slice(item: slice, length: int) -> slice:
    places = range(length)[item]
    if len(places) == length and places.step == 1:
        return slice(None)
    if not places:
        return slice(0, 0)
    first, last, step = places[0], places[-1], places.step
    if step > 0:
        stop = last + 1
        return slice(first or None, None if stop == length else stop, None if step == 1 else step)
    return slice(None if first == length - 1 else first, last - 1 if last else None, step)
