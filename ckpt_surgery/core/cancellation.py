"""Cancellation of long reads and copies: a thread that works for a cancelled run stops between two pieces."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cancelled(Exception):
    """Raised in a thread whose work was cancelled, and caught by the code that started it."""


class _Current(threading.local):
    stop: threading.Event | None = None


_current = _Current()


@contextmanager
def cancelled_by(stop: threading.Event) -> Iterator[None]:
    """Within this context, once `stop` is set, `raise_if_cancelled` raises Cancelled in this thread."""
    before, _current.stop = _current.stop, stop
    try:
        yield
    finally:
        _current.stop = before


def raise_if_cancelled() -> None:
    """Raises Cancelled if this thread's work was cancelled. Long work calls it at least once a second."""
    if _current.stop is not None and _current.stop.is_set():
        raise Cancelled
