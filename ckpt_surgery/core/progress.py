"""The progress of a run, which the engine reports, and its text."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ckpt_surgery.core.text import bytes_text, whole_seconds_text

WRITING, CHECKING, READING = "writing", "checking", "reading"


@dataclass(frozen=True)
class Progress:
    """Progress of one part of a run."""

    done_bytes: int
    """Bytes of the arrays, or of their regions, that are done."""
    total_bytes: int
    """Bytes of all arrays that this part of the run is about: shape × itemsize."""
    doing: str = WRITING
    """Current activity: `writing`; `checking`, for reading back what was written, and for what
    `restore` with `donate` computes before it deletes anything; `reading`."""


Report = Callable[[Progress], None]
"""Function that is called with the progress so far."""
ProgressLike = Report | bool | None
"""Values of the argument `progress`: a function; True or False for a bar or none; None for a bar where
somebody looks."""


class ByteCounter:
    """Counts the bytes that are done, and reports each step. Safe to use from several threads."""

    def __init__(self, total: int, report: Report | None, doing: str = WRITING):
        """`report` is called by one thread at a time; None: nothing is reported."""
        self._total, self._report, self._doing = total, report, doing
        self._done = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Count bytes as done, and report how many are done by now."""
        if self._report is None:
            return
        with self._lock:
            self._done += nbytes
            self._report(Progress(self._done, self._total, self._doing))


class Watch:
    """Measures the time since the current activity began."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._started = clock()
        self._doing: str | None = None

    def seconds(self, progress: Progress) -> float:
        """Seconds since the last report of another activity, or since the beginning."""
        if self._doing not in (None, progress.doing):
            self._started = self._clock()
        self._doing = progress.doing
        return self._clock() - self._started


def progress_text(progress: Progress, seconds: float) -> str:
    """`writing 1.20 GiB of 4.00 GiB, 250 MiB/s, 12 s left`; `seconds` have passed since it began."""
    done, total = progress.done_bytes, progress.total_bytes
    text = f"{progress.doing} {bytes_text(done)} of {bytes_text(total)}"
    if not done or seconds < 1:  # until then, a speed says more of the clock than of the run
        return text
    rate = done / seconds
    return f"{text}, {bytes_text(rate)}/s, {whole_seconds_text((total - done) / rate)} left"
