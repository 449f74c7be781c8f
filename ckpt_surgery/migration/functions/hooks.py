"""Functions that are not traced, but called when a leaf is computed."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.migration.recorded_arrays import StandIn


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
