"""Tasks on threads of this process, bounded by bytes in flight, not by count."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")

DEFAULT_MEMORY = 2 << 30
POLL = 0.2
"""Seconds after which the waiting thread looks up, so that a signal is noticed."""


def default_memory() -> int:
    """Bytes: the smaller of 2 GiB and a quarter of what is available."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min(DEFAULT_MEMORY, available // 4)


def default_workers() -> int:
    """One thread per core that this process may use, and one more to overlap reading and writing."""
    return len(os.sched_getaffinity(0)) + 1


def run_all(
    work: Callable[[T], None], items: Iterable[T], weight: Callable[[T], int], budget: int, workers: int
) -> None:
    """Run `work` on every item, starting one whenever its bytes fit beside those in flight.

    An item heavier than the budget runs alone. The first failure is raised after the running ones
    have ended; no new ones are started.
    """
    stop = threading.Event()

    def guarded(item: T) -> None:
        if not stop.is_set():
            work(item)

    running: dict[Future[None], int] = {}
    with ThreadPoolExecutor(workers, thread_name_prefix="task") as pool:
        try:
            for item in items:
                cost = weight(item)
                while running and (len(running) >= 2 * workers or sum(running.values()) + cost > budget):
                    _collect(running)
                running[pool.submit(guarded, item)] = cost
            while running:
                _collect(running)
        finally:
            stop.set()


def _collect(running: dict[Future[None], int]) -> None:
    """Wait for one task or a short while; raise what a task raised."""
    done, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
    for future in done:
        del running[future]
        future.result()
