"""Threads bounded by bytes in flight."""

import os
import signal
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.commit import interruptible
from ckpt_surgery.engines.local import run_all
from ckpt_surgery.errors import DataError, Interrupted
from ckpt_surgery.stopping import check_wanted


class Load:
    """Counts the bytes in flight."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = 0
        self.peak = 0
        self.done: list[int] = []

    def work(self, item: tuple[int, int]) -> None:
        number, weight = item
        with self.lock:
            self.now += weight
            self.peak = max(self.peak, self.now)
        with self.lock:
            self.now -= weight
            self.done.append(number)


@settings(deadline=None, max_examples=50)
@given(
    weights=st.lists(st.integers(0, 100), max_size=40), budget=st.integers(1, 200), workers=st.integers(1, 4)
)
def test_every_item_runs_once_and_within_the_budget(weights: list[int], budget: int, workers: int) -> None:
    load = Load()
    run_all(load.work, list(enumerate(weights)), lambda item: item[1], budget, workers)
    assert sorted(load.done) == list(range(len(weights)))
    assert load.peak <= max([budget, *weights])


def test_tasks_overlap() -> None:
    both = threading.Barrier(2, timeout=10)
    run_all(lambda _: both.wait() and None, [1, 2], lambda _: 1, budget=2, workers=2)


def test_an_item_over_the_budget_runs_alone() -> None:
    load = Load()
    run_all(load.work, [(0, 5), (1, 500), (2, 5)], lambda item: item[1], 10, 3)
    assert sorted(load.done) == [0, 1, 2]
    assert load.peak == 500


def test_the_first_failure_is_raised_and_nothing_is_started_after_it() -> None:
    started: list[int] = []

    def work(item: int) -> None:
        started.append(item)
        if item == 3:
            raise DataError("item 3 overflows")

    with pytest.raises(DataError, match="item 3"):
        run_all(work, range(1000), lambda _: 1, budget=1, workers=1)
    assert max(started) == 3


def test_a_long_task_ends_early_once_another_has_failed() -> None:
    begun = threading.Event()

    def work(item: str) -> None:
        if item == "fails":
            begun.wait(10)
            raise DataError("item overflows")
        begun.set()
        while True:
            check_wanted()

    with pytest.raises(DataError, match="overflows"):
        run_all(work, ["long", "fails"], lambda _: 1, budget=2, workers=2)


def test_signals_do_not_leave_a_task_running() -> None:
    """The first one stops the run; another comes while it waits for what still runs."""
    begun, ended = threading.Event(), threading.Event()

    def work(_: int) -> None:
        begun.set()
        time.sleep(1)
        ended.set()

    def stop_twice() -> None:
        begun.wait(10)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.4)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=stop_twice)
    sender.start()
    with pytest.raises(Interrupted), interruptible():
        run_all(work, [1], lambda _: 1, budget=1, workers=1)
    assert ended.is_set()
    sender.join()
