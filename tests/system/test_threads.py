"""Threads bounded by bytes in flight."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.cancellation import raise_if_cancelled
from ckpt_surgery.core.errors import DataError, Interrupted
from ckpt_surgery.system import signals, threads
from ckpt_surgery.system.threads import run_all
from tests.support.effort import examples
from tests.support.failing import raising


@examples(50)
@given(
    weights=st.lists(st.integers(0, 100), max_size=40), budget=st.integers(1, 200), workers=st.integers(1, 4)
)
def test_every_item_runs_once_and_within_the_budget(weights: list[int], budget: int, workers: int) -> None:
    """A larger one runs alone."""
    lock, running, peak, done = threading.Lock(), 0, 0, []

    def work(item: tuple[int, int]) -> None:
        nonlocal running, peak
        with lock:
            running += item[1]
            peak = max(peak, running)
        with lock:
            running -= item[1]
            done.append(item[0])

    run_all(work, list(enumerate(weights)), lambda item: item[1], budget, workers)
    assert sorted(done) == list(range(len(weights)))
    assert peak <= max([budget, *weights])


def test_tasks_overlap() -> None:
    both = threading.Barrier(2)
    run_all(lambda _: both.wait() and None, [1, 2], lambda _: 1, budget=2, workers=2)


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
            begun.wait()
            raise DataError("item overflows")
        begun.set()
        while True:
            raise_if_cancelled()

    with pytest.raises(DataError, match="overflows"):
        run_all(work, ["long", "fails"], lambda _: 1, budget=2, workers=2)


class Forgetful(ThreadPoolExecutor):
    """Waits for no task, as a pool that a signal interrupts while it starts one."""

    def __exit__(self, *error: object) -> None:
        self.shutdown(wait=False)


def test_signals_do_not_leave_a_task_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one stops the run; another comes while it waits for what still runs."""
    begun, finish, ended = threading.Event(), threading.Event(), threading.Event()
    settled = threading.Semaphore(0)  # one for each signal, once the main thread has dealt with it
    wait_for_none, on_signal = threads._Active.wait_for_none, signals._on_signal

    def waiting(active: threads._Active) -> None:
        settled.release()
        wait_for_none(active)

    def told(number: int, frame: FrameType | None) -> None:
        on_signal(number, frame)
        settled.release()  # it goes on with what it did

    def work(_: int) -> None:
        begun.set()
        finish.wait()
        ended.set()

    def stop_twice() -> None:
        begun.wait()
        signal.pthread_kill(main, signal.SIGTERM)
        settled.acquire()
        signal.pthread_kill(main, signal.SIGTERM)
        while not settled.acquire(timeout=0.1):
            signal.pthread_kill(main, signal.SIGTERM)  # one that comes just before it waits goes unnoticed
        finish.set()

    monkeypatch.setattr(threads._Active, "wait_for_none", waiting)
    monkeypatch.setattr(threads, "ThreadPoolExecutor", Forgetful)
    monkeypatch.setattr(signals, "_on_signal", told)
    main = threading.main_thread().ident
    assert main is not None
    sender = threading.Thread(target=stop_twice)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        sender.start()
        with pytest.raises(Interrupted), signals.interruptible():
            run_all(work, [1], lambda _: 1, budget=1, workers=1)
        left_alone = not ended.is_set()
        settled.release(2)
        sender.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not left_alone


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_that_end_without_a_word_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory ends, Python's own code around an item can fail, and the item has no result."""
    monkeypatch.setattr("concurrent.futures.thread._WorkItem.run", raising(MemoryError))
    with pytest.raises(MemoryError, match="all threads have ended"):
        threads.run_all(print, range(3), lambda _: 1, 10, 2)
