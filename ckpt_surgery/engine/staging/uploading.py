"""Uploads of local files, several at a time, which a signal ends."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from ckpt_surgery.core.cancellation import Cancelled, cancelled_by
from ckpt_surgery.system.signals import deferred

POLL = 0.1
"""Longest wait in seconds; signals are handled between two waits."""
AT_A_TIME = 16
"""Largest number of files that are uploaded at a time."""


def carried_out(uploads: Sequence[Callable[[], object]]) -> None:
    """Carry out all of them in other threads. Raises what the first one raises that fails.

    After a failure, or when a signal raises an exception here, the others end where they next call
    `raise_if_cancelled`. None goes on when this returns or raises.
    """
    if not uploads:
        return
    stop = threading.Event()

    def one(upload: Callable[[], object]) -> None:
        with cancelled_by(stop):
            upload()

    with ThreadPoolExecutor(min(AT_A_TIME, len(uploads)), thread_name_prefix="upload") as pool:
        futures: list[Future[None]] = []
        try:
            with deferred():  # a thread that is being started would not be waited for
                futures += [pool.submit(one, upload) for upload in uploads]
            pending = set(futures)
            while pending and not any(map(_failure, futures)):
                pending = wait(pending, POLL, FIRST_EXCEPTION).not_done
        finally:
            stop.set()
            for future in futures:
                future.cancel()
    for future in futures:
        failure = _failure(future)
        if failure is not None and not isinstance(failure, Cancelled):
            raise failure


def _failure(future: Future[None]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None
