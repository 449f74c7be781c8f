"""Errors for lack of memory, and a pause of garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_surgery.core.errors import OutOfMemoryError
from ckpt_surgery.core.text import bytes_text, shown


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage while many small values are made that stay: it takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def memory_errors(action: str, budget: int | None = None) -> Iterator[None]:
    """Turn MemoryError into OutOfMemoryError. It says what there was not enough memory to do: `action`.

    A thread that cannot be started (RuntimeError) is such an error too: the system has no memory for its
    stack. So is an error for whose exception no memory is left (SystemError).

    `budget`: bytes that the run may use, where a budget decides how much is done at a time.
    """
    try:
        yield
    except (MemoryError, RuntimeError, SystemError) as error:
        of_python = ("can't start new thread", "error return without exception set")
        if not isinstance(error, MemoryError) and str(error) not in of_python:
            raise
        asked = f" ({shown(str(error))})" if str(error) else ""  # NumPy says for which array
        limit, lower = "", ""
        if budget is not None:
            limit = f", with a budget of {bytes_text(budget)}"
            lower = ', or lower the budget (`memory="512MiB"`) or the number of threads (`workers=1`)'
        message = f"there is not enough memory to {action}{limit}{asked}"
        raise OutOfMemoryError(message, hint=f"Run where more memory is free{lower}.") from error
