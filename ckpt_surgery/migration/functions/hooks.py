"""Hooks of traced functions: values of the program, and functions that are called when a leaf is computed."""

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.migration.literals import concrete_array
from ckpt_surgery.migration.orbax_transforms import AddedHooks
from ckpt_surgery.migration.recorded_arrays import StandIn
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder
from ckpt_surgery.migration.standins import node_of, number_node


class HookRecorder(ArrayRecorder):
    """A recorder that also collects the hooks of the recipe."""

    def __init__(self) -> None:
        super().__init__()
        self._functions = AddedHooks()
        self._names: dict[Opaque, str] = {}
        self._leaves: dict[str, Leaf] = {}

    @property
    def hooks(self) -> Mapping[str, Callable[..., Any]]:
        """Hooks that the recipe calls, by name."""
        values: dict[str, Any] = {**self.constants, **self._leaves}
        values |= {f"infer_{name}": (array.shape, array.dtype) for name, array in self.constants.items()}
        returning = {name: (lambda value=value: value) for name, value in values.items()}
        return {**self._functions.functions, **returning}

    def literal(self, leaf: Leaf, value: Any) -> ast.expr | None:
        """Write a value of the program, described by `leaf`, as an expression; None if no recipe can."""
        if leaf.kind in (LeafKind.STRING, LeafKind.EMPTY):
            name = f"leaf_{len(self._leaves) + 1}"
            self._leaves[name] = leaf
            return ast.Call(_hook(name), [], [])
        if type(value) in (bool, int) or (type(value) is float and np.isfinite(value)):
            return number_node(value)
        array = np.asarray(value) if type(value) is float else concrete_array(value)
        return None if array is None else self.constant(array)._node

    def hooked(self, function: "Opaque", arguments: Sequence[Any]) -> StandIn:
        """Make the stand-in of a function's result for arguments of which some are stand-ins."""
        if function not in self._names:
            self._names[function] = self._functions.added(function)
        node = ast.Call(_hook(self._names[function]), [self._argument(value) for value in arguments], [])
        arrays = [part for part in parts_of(arguments) if isinstance(part, StandIn)]
        spec = function.infer(*arguments)
        leaf = Leaf(Key.of([function.__name__]), LeafKind.ARRAY, spec)
        leaves = tuple(dict.fromkeys(key for array in arrays for key in array.leaves))
        return StandIn(node, self, Array(Read("", leaf), spec.dtype), leaves)

    def _argument(self, value: Any) -> ast.expr:
        if isinstance(value, list | tuple):
            return ast.List([self._argument(item) for item in value])
        array = None if isinstance(value, StandIn) else concrete_array(value)
        return node_of(value, self) if array is None else self.constant(array)._node


def _hook(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("hooks"), name)


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
        stand_in = next((part for part in parts_of(arguments) if isinstance(part, StandIn)), None)
        if stand_in is None:
            return self.made_of(*arguments)
        recorder = stand_in._recorder
        assert isinstance(recorder, HookRecorder)
        return recorder.hooked(self, arguments)

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
