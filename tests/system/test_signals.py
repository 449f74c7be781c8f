"""Signals as exceptions, and what stays as it was."""

import os
import signal

import pytest

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.system import signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    """As `nohup` and shells ignore them for what runs in the background."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with signals.interruptible():
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught, signals.interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
