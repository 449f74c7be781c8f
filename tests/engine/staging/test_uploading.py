"""Uploads in other threads: all of them, the first failure, and none that goes on after a signal."""

import os
import signal
import threading

import pytest

from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import Interrupted, StorageError
from ckpt_surgery.engine.staging.uploading import AT_A_TIME, carried_out
from ckpt_surgery.system.signals import interruptible


def test_all_are_carried_out() -> None:
    done: list[int] = []
    carried_out([lambda n=n: done.append(n) for n in range(100)])  # type: ignore[misc]
    assert sorted(done) == list(range(100))
    carried_out([])


def test_the_first_failure_ends_the_others() -> None:
    begun: list[int] = []
    ended = threading.Event()

    def fail() -> None:
        raise StorageError("the store is tired")

    def wait() -> None:
        begun.append(1)
        while True:
            try:
                raise_if_cancelled()
            except BaseException:
                ended.set()
                raise

    with pytest.raises(StorageError, match="tired"):
        carried_out([fail, wait, *[wait] * 100])
    assert len(begun) <= AT_A_TIME + 1
    assert ended.is_set() or not begun


def test_a_signal_ends_the_wait_and_the_uploads() -> None:
    running = threading.Event()
    ended: list[bool] = []

    def upload() -> None:
        if not running.is_set():
            running.set()
            os.kill(os.getpid(), signal.SIGTERM)
        try:
            while True:
                raise_if_cancelled()
        finally:
            ended.append(True)

    with interruptible(), pytest.raises(Interrupted):
        carried_out([upload])
    assert ended == [True]
