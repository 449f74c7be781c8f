"""What asks a run to stop (Ctrl-C, a scheduler, a closed terminal), as an exception in the main thread."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from ckpt_surgery.core.errors import (
    Interrupted,
)

# --- signals and errors ---------------------------------------------------------------------------


@dataclass
class _Signals:
    """What the handlers need to know; signals belong to the whole process, and so does this."""

    deferring: bool = False
    """True while a section runs that must not be interrupted."""
    pending: int | None = None
    """The signal that came during one."""


_signals = _Signals()

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to stop: Ctrl-C, a scheduler, a terminal that has gone away."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted, raised in the main thread at once.

    Elsewhere than in the main thread this does nothing, and a signal that is ignored stays ignored: `nohup`
    ignores SIGHUP, so that a run survives its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = [n for n in _STOPPING if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _on_signal) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Later signals do not stop what the first one has set going: workers that end, the removal."""
    if _signals.deferring:
        _signals.pending = number
    elif not _ends_already():
        raise _interrupted(number)


def _ends_already() -> bool:
    """Whether what the main thread does now is done because it was interrupted."""
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None


def _interrupted(number: int) -> Interrupted:
    return Interrupted(number, f"stopped by {signal.Signals(number).name}")


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals wait until the end of this short section. Sections do not nest.

    Where the section fails, its error ends the run anyway, and a signal that came meanwhile is let go.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _signals.deferring = True
    try:
        yield
    finally:
        _signals.deferring = False
        number, _signals.pending = _signals.pending, None
    if number is not None:
        raise _interrupted(number)


@contextlib.contextmanager
def unhindered() -> Iterator[None]:
    """Signals during the cleaning up after a failure are let go: it is short, and ends the run anyway."""
    try:
        with deferred():
            yield
    except Interrupted:
        return
