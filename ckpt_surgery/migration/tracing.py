"""Functions as expressions: they are called once with stand-ins, which write down what is done to them."""

import ast
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.migration.numpy_calls import FUNCTIONS
from ckpt_surgery.migration.standins import Recorder, Traced, Untraceable, stand_ins_in

MODULES = frozenset({"numpy", "numpy.linalg", "jax", "jax.numpy", "jax.numpy.linalg", "jax.lax"})
"""Modules whose functions are written down."""


@dataclass(frozen=True)
class Trace:
    """What a call of a function with stand-ins has shown."""

    expression: str | None
    """The function's result as an expression; None if no expression says it."""
    flaw: str = ""
    """Why no expression says it: `it asks for values, by …`."""


def trace(function: Callable[..., Any], arguments: Sequence[Any], recorder: Recorder) -> Trace:
    """Call the function with stand-ins. What it raises becomes the flaw."""
    try:
        result = _with_namespaces(function, recorder)(*arguments)
    except (Interrupted, MemoryError, KeyboardInterrupt):
        raise
    except Untraceable as error:
        return Trace(None, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it does with what is no array)
        said = f": {error}" if str(error) else ""
        return Trace(None, recorder.flaw or f"it raises {type(error).__name__}{said}")
    if recorder.flaw is not None:  # which the function has hidden
        return Trace(None, recorder.flaw)
    if not isinstance(result, Traced):
        return Trace(None, f"it gives {type(result).__name__} that does not come from an array")
    return Trace(ast.unparse(ast.fix_missing_locations(ast.Expression(result._node))))


def _with_namespaces(function: Any, recorder: Recorder) -> Any:
    """The function with stand-ins for the modules that it calls functions of.

    NumPy's functions ask their arguments what to do, those of JAX do not.
    """
    if isinstance(function, functools.partial):
        inner = _with_namespaces(function.func, recorder)
        return functools.partial(inner, *function.args, **function.keywords)
    if not isinstance(function, FunctionType):
        inner = getattr(function, "__wrapped__", None)  # of `jax.jit`
        return function if inner is None else _with_namespaces(inner, recorder)
    cells = tuple(CellType(_seen(_content(cell), recorder)) for cell in function.__closure__ or ())
    found = {name: _seen(value, recorder) for name, value in function.__globals__.items()}
    copy = FunctionType(function.__code__, found, function.__name__, function.__defaults__, cells or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is assigned to it yet
        return None


def _seen(value: Any, recorder: Recorder) -> Any:
    known = isinstance(value, ModuleType) and value.__name__ in MODULES
    return _Namespace(value, recorder) if known else value


class _Namespace:
    """A module whose functions write down that they are called with stand-ins."""

    def __init__(self, module: ModuleType, recorder: Recorder):
        self._module = module
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        value = _seen(getattr(self._module, name), self._recorder)
        if name not in FUNCTIONS:
            return value

        def function(*arguments: Any, **keywords: Any) -> Any:
            if next(stand_ins_in([*arguments, *keywords.values()]), None) is None:
                return value(*arguments, **keywords)
            return self._recorder.called(name, arguments, keywords)

        return function
