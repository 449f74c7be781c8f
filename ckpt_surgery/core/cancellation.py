"""Work that nobody waits for any more ends where it stands: between the pieces of long reads and copies."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """Raised inside work that is to end, for whoever runs it; no user sees it."""


class _Current(threading.local):
    stop: threading.Event | None = None


_current = _Current()


@contextmanager
def until(stop: threading.Event) -> Iterator[None]:
    """What this thread does inside ends at its next `check_wanted` once `stop` is set."""
    before, _current.stop = _current.stop, stop
    try:
        yield
    finally:
        _current.stop = before


def check_wanted() -> None:
    """Called between pieces that take less than a second each. Raises Stopped."""
    if _current.stop is not None and _current.stop.is_set():
        raise Stopped
