"""The journal of a run: its finished tasks, from which another process can resume after this one was killed.

It has a line of JSON for each finished task, once everything that the task wrote is where it belongs: in a
file, or in objects of a store. A file is not synchronized with the disk: after a power cut, bytes may be
missing that it speaks of, which the checksums tell.
"""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.protocols import AdoptedFile, TaskResult
from ckpt_surgery.engine.staging.life import Lines
from ckpt_surgery.engine.tasks import Task

FLUSH_BYTES = 64 << 20
"""Decoded bytes of finished tasks that are flushed and noted together."""


class Journal:
    """Notes finished tasks. Safe to use from several threads."""

    def __init__(self, place: Lines, flush: Callable[[], None]):
        """`flush`: writes everything so far to the files before it returns."""
        self._place = place
        self._flush = flush
        self._pending: list[str] = []
        self._nbytes = 0
        self._lock = threading.Lock()

    def add(self, task: Task, done: TaskResult) -> None:
        """Note a written task, at once or batched with later ones. Raises StorageError."""
        with self._lock:
            self._pending.append(json.dumps(finished_json(task.number, done)) + "\n")
            self._nbytes += task.nbytes
            if self._nbytes >= FLUSH_BYTES:
                self._write()

    def close(self) -> None:
        """Flush, and note all tasks still pending. Raises StorageError."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        lines, self._pending, self._nbytes = self._pending, [], 0
        self._flush()
        if lines:
            self._place.add("".join(lines).encode("ascii"))


@dataclass(frozen=True)
class FinishedTask:
    """A finished task, as journals and parts of shards hold it."""

    task: int
    """Its number."""
    crc: int | None
    chunks: tuple[tuple[Shape, int], ...]
    files: tuple[AdoptedFile, ...]
    overflowed: int

    @property
    def result(self) -> TaskResult:
        """The result of the task."""
        return TaskResult(dict(self.chunks), self.files, self.crc, self.overflowed)


def finished_json(number: int, done: TaskResult) -> dict[str, Any]:
    """The JSON of a `FinishedTask`."""
    chunks, files = list(done.chunks.items()), list(map(asdict, done.files))
    return {"task": number, "crc": done.crc, "chunks": chunks, "files": files, "overflowed": done.overflowed}


def read_journal(place: Lines) -> dict[int, TaskResult]:
    """Read the finished tasks by number; empty if there is no journal. Raises StorageError."""
    results: dict[int, TaskResult] = {}
    for line in place.read().splitlines():
        # A line that is damaged, by a power cut for example: the task is done again.
        with suppress(ValueError):
            finished = msgspec.convert(json.loads(line), FinishedTask)
            results[finished.task] = finished.result
    return results
