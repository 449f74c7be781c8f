"""Functions that are called when a leaf is computed, inside of a traced function."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.migration.functions.hooks import HookRecorder, parts_of
from ckpt_surgery.migration.stand_in_arrays import StandIn


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
    return Opaque(function, _shape(shape), _dtype(dtype))


def _shape(given: Any) -> Shape | None:
    if given is None:
        return None
    lengths = given if isinstance(given, tuple | list) else (given,)
    if not all(isinstance(length, int | np.integer) and length >= 0 for length in lengths):
        raise UsageError(f"`opaque`: {abridged(given)} is not a shape")
    return tuple(int(length) for length in lengths)


def _dtype(given: Any) -> np.dtype[Any] | None:
    try:
        if given is None:
            return None
        return dtype_named(given) if isinstance(given, str) else np.dtype(given)
    except (TypeError, ValueError, FunctionError):
        raise UsageError(f"`opaque`: {abridged(given)} is not a dtype") from None
