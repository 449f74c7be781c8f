"""The progress of a run, which the engine reports and the command line shows."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

WRITING = "writing"
CHECKING = "checking"
"""Reading back what was written, or computing everything once before `donate` deletes arrays."""
READING = "reading"


@dataclass(frozen=True)
class Progress:
    """How much of one part of a run is done."""

    done_bytes: int
    """Bytes of the arrays, or of their regions, that are done."""
    total_bytes: int
    """Bytes of all arrays that this part of the run is about: shape × itemsize."""
    doing: str = WRITING
    """What is being done: `writing`; `checking`, for reading back what was written, and for what
    `restore` with `donate` computes before it deletes anything; `reading`."""


class ByteCounter:
    """Counts the bytes that are done, and reports each step. Safe to use from several threads."""

    def __init__(self, total: int, report: Callable[[Progress], None] | None, doing: str = WRITING):
        """`report` is called by one thread at a time; None: nobody wants to know."""
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
