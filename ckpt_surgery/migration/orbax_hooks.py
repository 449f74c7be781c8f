"""Functions of Orbax's transforms as hooks: they get whole arrays, and their results become arrays."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.migration.agreement import as_jax
from ckpt_surgery.migration.originals import Original

CALLED_TO_INFER = 1 << 20
"""Limit on the elements of all arguments for a trial call with ones, which shows the result's spec."""

ValueFunction = Callable[..., Any]


Form = Callable[[np.ndarray], Any]


def as_number(array: np.ndarray) -> Any:
    """Convert an array without axes to a number of Python."""
    return array.item()


def form_for(function: ValueFunction) -> Form:
    """Find the first form of arrays that a function accepts: unchanged, writable, or of JAX.

    A function that takes none of them gets them as they are, and says why it fails.
    """
    forms: tuple[Form, ...] = (np.asarray, np.array, as_jax)
    sample = np.ones((4, 4), np.float32)
    sample.flags.writeable = False
    return next((form for form in forms if _works(function, form(sample))), forms[0])


def _works(function: ValueFunction, value: Any) -> bool:
    try:
        np.asarray(function(value))
    except Exception:  # noqa: BLE001  (whatever a function does with what is not for it)
        return False
    return True


class ValueHook:
    """A `value_fn` as a hook: `hooks.name(x)`."""

    def __init__(self, function: ValueFunction, form: Form):
        """`form`: converts an array to the function's argument."""
        self.made_of = function
        self._form = form

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.made_of(self._form(x)))

    def infer(self, x: ArraySpec) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the result, from those of the argument."""
        return inferred(self, [x])


class TreeHook:
    """A `multi_value_fn` as a hook: `hooks.name(key, …)` with the leaves of the original in order."""

    def __init__(self, function: Callable[[str, Any], Any], keys: Sequence[str], original: Original):
        self.made_of = function
        self._keys = keys
        self._original = original

    def __call__(self, key: str, *arrays: np.ndarray) -> np.ndarray:
        given = {k: self._original.given(k, a) for k, a in zip(self._keys, arrays, strict=True)}
        return np.asarray(self.made_of(key, self._original.rebuilt(given)))

    def infer(self, key: str, *specs: ArraySpec) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of the result, from those of the leaves."""
        return inferred(lambda *arrays: self(key, *arrays), specs)


def inferred(
    function: Callable[..., Any], specs: Sequence[ArraySpec]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the function's result for arrays of these specs.

    It is called on ones if they are small; else JAX traces it, or it is called after all.
    """
    if sum(spec.size for spec in specs) > CALLED_TO_INFER:
        traced = _traced_by_jax(function, specs)
        if traced is not None:
            return traced
    ones = [np.broadcast_to(np.ones((), spec.dtype), spec.shape) for spec in specs]
    with np.errstate(all="ignore"):
        result = np.asarray(function(*ones))
    return result.shape, result.dtype


def _traced_by_jax(
    function: Callable[..., Any], specs: Sequence[ArraySpec]
) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and dtype by tracing; None if JAX cannot trace the function, or narrows 64 bits."""
    import jax

    if any(spec.dtype.itemsize > 4 for spec in specs):
        return None
    try:
        abstract = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in specs]  # type: ignore[no-untyped-call]
        result = jax.eval_shape(function, *abstract)
        return tuple(result.shape), np.dtype(result.dtype)
    except Exception:  # noqa: BLE001  (NumPy's functions, branches on values, …: all mean that it has to be called)
        return None


class AddedHooks:
    """The hooks of a recipe by name, added on demand."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def added(self, hook: Any, function: Any) -> str:
        """Add a hook; returns its name in expressions, which is the function's if it has one."""
        wanted = re.sub(r"\W|^_+|^infer_", "", getattr(function, "__name__", ""), flags=re.ASCII)
        reserved = wanted == "lambda" or re.fullmatch(r"(constant|leaf)_\d+", wanted)
        name = base = wanted if wanted[:1].isalpha() and not reserved else "function"
        number = 1
        while name in self.functions:
            number += 1
            name = f"{base}_{number}"
        self.functions[name] = hook
        self.functions[f"infer_{name}"] = hook.infer
        return name
