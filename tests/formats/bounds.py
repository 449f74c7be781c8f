"""Bounds on what hostile and large files cost: memory, calls and waiting. They are counted, not timed."""

import contextlib
import os
import stat
import sys
import tracemalloc
from collections.abc import Iterator
from types import FrameType
from typing import Any

CALLS = 2_000_000
"""Calls of functions in Python and C: a second or two of work. The longest files of the tests take half."""
EVENTS = 2
"""How often a profile function is called for each call: when it begins, and when it ends."""


_watching = False
"""Whether opening a pipe fails. A switch, because Python's audit hooks cannot be removed again."""


def _refuse_to_wait(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == "open":
        path, _, flags = arguments
        if not flags & os.O_NONBLOCK and _is_pipe(path):
            raise AssertionError(f"opening `{path}` waits for somebody to write to it")


def _is_pipe(path: object) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return False


sys.addaudithook(_refuse_to_wait)


@contextlib.contextmanager
def bounded(nbytes: int, calls: int = CALLS) -> Iterator[None]:
    """Fail if the body allocates more than `nbytes`, makes more than `calls` calls, or waits for a pipe."""
    global _watching
    events, most, profile = 0, EVENTS * calls, sys.getprofile()

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal events
        events += 1
        if events > most:
            raise AssertionError(f"more than {calls} calls were made")

    tracemalloc.start()
    _watching = True
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(profile)
        _watching = False
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert events <= most, f"more than {calls} calls were made"
        assert peak <= nbytes, f"{peak} bytes were allocated, {nbytes} are allowed"
