"""Record one call of a user's function of trees with stand-ins in place of arrays.

Opaque functions are not traced, but called when a leaf is computed.
"""

import ast
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.migration.literals import concrete_array, is_of_jax, literal_node
from ckpt_surgery.migration.numpy_calls import FUNCTIONS
from ckpt_surgery.migration.promotions import JAX, NUMPY, whole_outcome
from ckpt_surgery.migration.recipes import AddedHooks
from ckpt_surgery.migration.recorded_arrays import StandIn, as_jax, leaves_of, moved
from ckpt_surgery.migration.replacing import OF_JAX, user_place
from ckpt_surgery.migration.shaped_calls import SHAPED
from ckpt_surgery.migration.standins import Recorder, Traced, Untraceable, node_of, number_node, stand_ins_in


class ArrayRecorder(Recorder):
    """Records one call of a user's function with stand-ins."""

    def __init__(self) -> None:
        super().__init__({**FUNCTIONS, **SHAPED})
        self.place: str | None = None
        """Place at which the user's function does something that no expression can."""
        self.leaves: tuple[str, ...] = ()
        """Leaves concerned by that."""
        self.narrowed: dict[str, tuple[str, str]] = {}
        """Leaves that JAX narrows from 64 to 32 bits: names of the dtypes before and after, by key."""
        self.constants: dict[str, np.ndarray] = {}
        """Arrays of the program too large to write out, by the name of the hook that returns them."""
        self.library = NUMPY
        """The library whose function is being called."""
        self._functions = AddedHooks()
        self._names: dict[Any, str] = {}
        self._leaves: dict[str, Leaf] = {}

    @property
    def hooks(self) -> Mapping[str, Callable[..., Any]]:
        """Hooks that the recipe calls, by name."""
        values: dict[str, Any] = {**self.constants, **self._leaves}
        values |= {f"infer_{name}": (array.shape, array.dtype) for name, array in self.constants.items()}
        returning = {name: (lambda value=value: value) for name, value in values.items()}
        return {**self._functions.functions, **returning}

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

    def called(self, name: str, inputs: Sequence[Any], keywords: Mapping[str, Any], function: Any) -> Any:
        """Write a call of NumPy's or JAX's function of this name, of which some arguments are stand-ins."""
        of_jax = str(getattr(function, "__module__", "")).startswith("jax")
        if name in OF_JAX:
            return _transferred(name, inputs, keywords, function)
        if name == "reshape" and isinstance(inputs[0], StandIn):
            of_jax = inputs[0].library == JAX  # `jax.numpy.reshape` leaves arrays of NumPy what they are
        if name not in self.functions:
            module = str(getattr(function, "__module__", None) or "numpy")
            if module.startswith("jax."):
                module = "jax.numpy" if hasattr(sys.modules.get("jax.numpy"), name) else "jax"
            raise self.refused(f"it calls `{module}.{name}`", *inputs, *keywords.values())
        if not of_jax:
            return self._called_in(NUMPY, name, moved(list(inputs), NUMPY), keywords)
        inputs = [as_jax(value) for value in inputs]
        keywords = {n: as_jax(value) for n, value in keywords.items()}
        expected = whole_outcome(function, inputs, keywords)
        return self.checked(name, self._called_in(JAX, name, inputs, keywords), expected)

    def _called_in(self, library: str, name: str, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        with self.using(library):
            return moved(super().called(name, inputs, keywords, None), library)

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
        return result.in_library(JAX, expected.weak)

    def operand(self, value: Any) -> Any:
        """Convert a value of the function's own that is used like an array; numbers are kept."""
        if isinstance(value, Traced) or type(value) in (bool, int, float):
            return value
        array = concrete_array(value)
        if array is None:
            raise self.refused(f"it combines an array with {type(value).__name__}")
        library = JAX if is_of_jax(type(value)) else NUMPY
        return self.constant(array, library, bool(getattr(value, "weak_type", False)))

    def constant(self, array: np.ndarray, library: str = NUMPY, weak: bool = False) -> StandIn:
        """Make the stand-in of an array of the program."""
        node = literal_node(array)
        if node is None:
            name = f"constant_{len(self.constants) + 1}"
            self.constants[name] = array.copy()
            node = _call(name)
        leaf = Leaf(Key.parse("constant"), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype))
        return StandIn(node, self, Array(Read("", leaf), array.dtype), (), library, weak)

    def literal(self, leaf: Leaf, value: Any) -> ast.expr | None:
        """Write a value of the program, described by `leaf`, as an expression; None if no recipe can."""
        if leaf.kind in (LeafKind.STRING, LeafKind.EMPTY):
            name = f"leaf_{len(self._leaves) + 1}"
            self._leaves[name] = leaf
            return _call(name)
        if type(value) in (bool, int) or (type(value) is float and np.isfinite(value)):
            return number_node(value)
        array = np.asarray(value) if type(value) is float else concrete_array(value)
        return None if array is None else self.constant(array)._node

    def hooked(self, function: Any, arguments: Sequence[Any]) -> StandIn:
        """Make the stand-in of an opaque function's result; some of the arguments are stand-ins."""
        if function not in self._names:
            self._names[function] = self._functions.added(function)
        spec = function.infer(*arguments)
        leaf = Leaf(Key.of([function.__name__]), LeafKind.ARRAY, spec)
        node = _call(self._names[function], *map(self._argument, arguments))
        return StandIn(node, self, Array(Read("", leaf), spec.dtype), leaves_of(stand_ins_in(arguments)))

    def _argument(self, value: Any) -> ast.expr:
        if isinstance(value, list | tuple):
            return ast.List([self._argument(item) for item in value])
        array = None if isinstance(value, StandIn) else concrete_array(value)
        return node_of(value, self) if array is None else self.constant(array)._node


def _call(hook: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("hooks"), hook), list(arguments), [])


def _transferred(name: str, inputs: Sequence[Any], keywords: Mapping[str, Any], function: Any) -> Any:
    """Apply a transfer between devices to a tree of arrays."""
    import jax

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, StandIn):
            return function(leaf, *inputs[1:], **keywords)
        if name == "block_until_ready":
            return leaf
        return leaf.in_library(NUMPY) if name == "device_get" else as_jax(leaf)

    return jax.tree.map(change, inputs[0])


def source_stand_in(source_name: str, leaf: Leaf, recorder: ArrayRecorder, library: str = NUMPY) -> StandIn:
    """Make the stand-in of a leaf with an array of NumPy or JAX: `source['a/b']`."""
    assert leaf.spec is not None
    node = ast.Subscript(ast.Name(source_name), ast.Constant(leaf.key.text))
    array = Array(Read(source_name, leaf), leaf.spec.dtype)
    return StandIn(node, recorder, array, (leaf.key.text,), library)


def parts_of(arguments: Sequence[Any]) -> Iterator[Any]:
    """Yield the arguments of a call, and the items of lists among them."""
    for value in arguments:
        yield from parts_of(value) if isinstance(value, list | tuple) else [value]


class Opaque:
    """A function of whole arrays that is not traced."""

    __name__: str

    def __init__(self, function: Callable[..., Any], shape: Shape | None, dtype: np.dtype[Any] | None):
        """`shape`, `dtype`: those of the result; None for those of the first array."""
        functools.update_wrapper(self, function)
        self.made_of = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self.shape_hint = "Say what it returns: `ckpt_surgery.opaque(function, shape=…, dtype=…)`."
        """Hint for results of another shape or dtype."""
        self._shape, self._dtype = shape, dtype

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, or while a recipe is traced, make a stand-in of its result."""
        recorders: Any = (part._recorder for part in parts_of(arguments) if isinstance(part, StandIn))
        recorder = next(recorders, None)
        return self.made_of(*arguments) if recorder is None else recorder.hooked(self, arguments)

    def infer(self, *arguments: Any) -> ArraySpec:
        """Shape and dtype of the result, from descriptions of the arguments."""
        first = next(part for part in parts_of(arguments) if hasattr(part, "shape"))
        shape = tuple(first.shape) if self._shape is None else self._shape
        return ArraySpec(shape, first.dtype if self._dtype is None else self._dtype)


def opaque(
    function: Callable[..., Any] | None = None, *, shape: int | Sequence[int] | None = None, dtype: Any = None
) -> Any:
    """Mark a function of arrays that no expression can replace, for use in a function as a recipe.

    It is not called while the recipe is made, but when the leaf is: with whole NumPy arrays, which cannot be
    written into, and with its other arguments as they are, numbers, texts, None and lists. It returns one
    array, of this `shape` and `dtype`, which are by default those of the first array among its arguments; any
    other is a DataError that names the leaf. With arrays, it is called at once. `@opaque` and
    `@opaque(shape=…)` are decorators.

    Raises UsageError for what is not a function, a shape or a dtype.
    """
    if function is None:
        return functools.partial(opaque, shape=shape, dtype=dtype)
    if not callable(function):
        raise UsageError(f"`opaque`: {abridged(function)} is not a function")
    try:
        lengths = None if shape is None else np.broadcast_shapes(shape)
        kind = dtype_named(dtype) if isinstance(dtype, str) else None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, FunctionError):
        given = f"shape={abridged(shape)} and dtype={abridged(dtype)}"
        raise UsageError(f"`opaque`: no array has {given}") from None
    return Opaque(function, lengths, kind)
