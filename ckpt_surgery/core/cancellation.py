"""Cancellation of long reads and copies: a thread that works for a cancelled run stops between two pieces."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cancelled(Exception):
    """Raised in a thread whose work was cancelled, and caught by the code that started it."""


_stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def cancelled_by(stop: threading.Event) -> Iterator[None]:
    """Within this context, once `stop` is set, `raise_if_cancelled` raises Cancelled in this thread."""
    token = _stop.set(stop)
    try:
        yield
    finally:
        _stop.reset(token)


def raise_if_cancelled() -> None:
    """Raises Cancelled if this thread's work was cancelled. Long work calls it at least once a second."""
    stop = _stop.get()
    if stop is not None and stop.is_set():
        raise Cancelled
