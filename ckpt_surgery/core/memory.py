"""Errors for lack of memory, and a pause of garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ckpt_surgery.core.errors import OutOfMemoryError
from ckpt_surgery.core.text import bytes_text, shown

NO_THREAD = "can't start new thread"
"""The text of the RuntimeError that Python raises where the system starts no further thread."""
NO_EXCEPTION = "error return without exception set"
"""The text of the SystemError that CPython raises where no memory is left for the exception of an error."""


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

    A thread that cannot be started is such an error too: the system has no memory for its stack. So is an
    error for whose exception no memory is left.

    `budget`: bytes that the run may use, where a budget decides how much is done at a time.
    """
    try:
        yield
    except (MemoryError, RuntimeError, SystemError) as error:
        if not isinstance(error, MemoryError) and str(error) not in (NO_THREAD, NO_EXCEPTION):
            raise
        asked = f" ({shown(str(error))})" if str(error) else ""  # NumPy says for which array
        limit, lower = "", ""
        if budget is not None:
            limit = f", with a budget of {bytes_text(budget)}"
            lower = ', or lower the budget (`memory="512MiB"`) or the number of threads (`workers=1`)'
        message = f"there is not enough memory to {action}{limit}{asked}"
        raise OutOfMemoryError(message, hint=f"Run where more memory is free{lower}.") from error
