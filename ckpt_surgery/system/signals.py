"""Turn signals that ask a run to stop (Ctrl-C, a scheduler, a closed terminal) into an exception."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from ckpt_surgery.core.errors import Interrupted


class _Signals:
    """State of the handlers, one for the process, as each signal has only one handler."""

    deferring = False
    """True while a section runs that must not be interrupted."""
    pending: int | None = None
    """The last signal received during such a section."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted, raised in the main thread at once.

    In other threads this does nothing. A signal that is ignored stays ignored: `nohup` ignores SIGHUP, so
    that a run survives its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stopping = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # of Ctrl-C, a scheduler, a closed terminal
    wanted = [number for number in stopping if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _on_signal) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Raise Interrupted, unless an earlier signal is being handled: its cleanup is not interrupted."""
    if _Signals.deferring:
        _Signals.pending = number
        return
    error = sys.exception()
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    if error is None:
        raise Interrupted(number, f"stopped by {signal.Signals(number).name}")


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay signals until the end of this short section. Sections do not nest.

    If the section fails, its error ends the run anyway, and a signal that came meanwhile is discarded.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Signals.deferring = True
    try:
        yield
    finally:
        _Signals.deferring = False
        number, _Signals.pending = _Signals.pending, None
    if number is not None:
        raise Interrupted(number, f"stopped by {signal.Signals(number).name}")


@contextlib.contextmanager
def unhindered() -> Iterator[None]:
    """Discard signals during the short cleanup after a failure, which ends the run anyway."""
    try:
        with deferred():
            yield
    except Interrupted:
        return
