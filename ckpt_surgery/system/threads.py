"""Run tasks in threads of this process."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from operator import call
from typing import TypeVar

from ckpt_surgery.core.cancellation import cancelled_by

T = TypeVar("T")
MOST_TOGETHER = 64
BYTES_TOGETHER = 1 << 20
"""Limits on the number of items in a batch and on their bytes, so that all threads get work."""
THREADS = "task"
"""Beginning of the names of the threads."""
POLL = 0.2
"""Longest wait in seconds; signals are handled between two waits."""


def run_all(
    work: Callable[[T], object], items: Iterable[T], weight: Callable[[T], int], budget: int, workers: int
) -> None:
    """Run `work` on every item; an item starts once its weight in bytes fits into `budget` beside the others.

    An item heavier than the budget runs alone. After a failure no items are started; those that run end
    early where they call `raise_if_cancelled`, and then the first failure is raised.
    """
    stop, active = threading.Event(), _Active()

    def guarded(item: T) -> None:
        with active.counted(), cancelled_by(stop):
            if not stop.is_set():
                work(item)

    running: dict[Future[None], int] = {}
    with ThreadPoolExecutor(workers, thread_name_prefix=THREADS) as pool:
        try:
            for item in items:
                cost = weight(item)
                while running and (len(running) >= 2 * workers or sum(running.values()) + cost > budget):
                    _collect(running)
                running[pool.submit(guarded, item)] = cost
            while running:
                _collect(running)
        finally:
            _end(active, stop)


def run_requests(requests: Iterable[Callable[[], object]]) -> None:
    """Run requests to a store concurrently: they wait, and need no core. Fails as `run_all` does.

    16 at a time: an upload of a file holds some megabytes in memory.
    """
    run_all(call, requests, lambda _: 0, 0, 16)


def _collect(running: dict[Future[None], int]) -> None:
    """Wait for one item, at most POLL seconds, and remove finished ones. Raises what an item raised."""
    done, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
    if not done and not _alive():
        # Where memory ends, a thread can end without having told the result of its item.
        raise MemoryError("all threads have ended")
    for future in done:
        del running[future]
        future.result()


def _alive() -> bool:
    """True if a thread of a pool is left that could run an item."""
    return any(thread.name.startswith(THREADS) for thread in threading.enumerate())


class _Active:
    """Counts running items. The pool's own count is wrong if a signal arrives while it starts an item."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count an item as running within this context."""
        with self._changed:
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def wait_for_none(self) -> None:
        """Return once no item runs."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._count == 0, POLL) and _alive():
                pass


def _end(active: _Active, stop: threading.Event) -> None:
    """Wait until nothing runs, even if a signal arrives: running items still write files."""
    try:
        stop.set()
        active.wait_for_none()
    except BaseException:
        stop.set()
        active.wait_for_none()
        raise


def batches(
    items: Iterable[T], nbytes: Callable[[T], int], most: float = MOST_TOGETHER, room: int = BYTES_TOGETHER
) -> Iterator[list[T]]:
    """Group consecutive items up to a number of items and of bytes; a larger item stays alone.

    By default while they are small, to be done one after another by one thread: handing an item to a thread
    takes a tenth of a millisecond, which is more than many small ones take.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = nbytes(item)
        if batch and (len(batch) == most or total + size > room):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch
