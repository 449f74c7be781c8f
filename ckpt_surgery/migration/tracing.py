"""Functions as expressions: they are called once with stand-ins, which write down what is done to them."""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.migration.replacing import replaced
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder
from ckpt_surgery.migration.standins import Recorder, Traced, Untraceable


@dataclass(frozen=True)
class Trace:
    """What a call of a function with stand-ins has shown."""

    expression: str | None
    """The function's result as an expression; None if no expression says it."""
    flaw: str = ""
    """Why no expression says it: `it asks for values, by …`."""


def trace(function: Callable[..., Any], arguments: Sequence[Any], recorder: Recorder) -> Trace:
    """Call the function with stand-ins. What it raises becomes the flaw."""
    function = _uncompiled(function)
    try:
        with replaced(function):
            result = function(*arguments)
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


def _uncompiled(function: Any) -> Any:
    """The function that `jax.jit` was given."""
    while not isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


@contextmanager
def tracing(recorder: ArrayRecorder, *functions: Any) -> Iterator[None]:
    """Let what is done with stand-ins be written down, in these functions and in those that they call.

    Raises UsageError for what no expression says, also if the functions hide it.
    """
    with replaced(*functions):
        try:
            yield
        except Untraceable:
            raise recorder.problem() from None
    if recorder.flaw is not None:  # which the function has hidden
        raise recorder.problem()
