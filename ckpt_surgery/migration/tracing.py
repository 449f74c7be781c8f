"""Trace functions as expressions: call them once with stand-ins, which record the operations on them."""

import ast
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.migration.replacing import replaced
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder, StandIn
from ckpt_surgery.migration.standins import Recorder, Traced, Untraceable
from ckpt_surgery.migration.user_frames import is_library, place_of


@dataclass(frozen=True)
class Trace:
    """Outcome of a call of a function with stand-ins."""

    expression: str | None
    """The function's result as an expression; None if no expression can replace it."""
    flaw: str = ""
    """Reason why no expression can replace it: `it asks for values, by …`."""


def trace(function: Callable[..., Any], arguments: Sequence[Any], recorder: Recorder) -> Trace:
    """Call the function with stand-ins. An exception becomes the flaw."""
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
    """Unwrap a function from `jax.jit`."""
    while not isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _is_of_library(error: Exception) -> bool:
    """True if a library raised the error because of a stand-in among its arguments."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return is_library(innermost.filename) and StandIn.__name__ in str(error)


@contextmanager
def tracing(recorder: ArrayRecorder, *functions: Any) -> Iterator[None]:
    """Record operations on stand-ins within this context, in these functions and in those that they call.

    Raises UsageError for what no expression says, also if the functions hide it.
    """
    with replaced(*functions):
        try:
            yield
        except Untraceable:
            raise recorder.problem() from None
        except Exception as error:
            if recorder.flaw is None and not _is_of_library(error):
                raise
            recorder.refused(f"it calls a library that does not take its arrays: {error}")
            recorder.place = place_of(error) or recorder.place
            raise recorder.problem() from error
    if recorder.flaw is not None:  # which the function has hidden
        raise recorder.problem()
