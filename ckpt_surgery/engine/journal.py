"""The journal of a run: its finished tasks, from which another process can resume after this one was killed.

It has a line of JSON for each finished task, once everything that the task wrote is where it belongs: in a
file, or in objects of a store. A file is not synchronized with the disk: after a power cut, bytes may be
missing that it speaks of, which the checksums tell.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.protocols import AdoptedFile, TaskResult
from ckpt_surgery.engine.staging.lines import Lines
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
            self._pending.append(_line(task, done))
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


def _line(task: Task, done: TaskResult) -> str:
    return json.dumps({"task": task.number, "nbytes": task.nbytes, **result_json(done)}) + "\n"


def result_json(done: TaskResult) -> dict[str, Any]:
    """A task's result as JSON, with checksums in hexadecimal."""
    document: dict[str, Any] = {} if done.crc is None else {"crc32c": f"{done.crc:08x}"}
    if done.chunks:
        document["chunks"] = {",".join(map(str, index)): f"{crc:08x}" for index, crc in done.chunks.items()}
    if done.files:
        document["files"] = [{**asdict(file), "how": file.how.value} for file in done.files]
    if done.overflowed:
        document["overflowed"] = done.overflowed
    return document


def read_journal(place: Lines) -> dict[int, TaskResult]:
    """Read the finished tasks by number; empty if there is no journal. Raises StorageError."""
    results: dict[int, TaskResult] = {}
    for line in place.read().splitlines():
        try:
            number, done = _parsed(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # damaged, by a power cut for example: the task is done again
        results[number] = done
    return results


def _parsed(entry: Mapping[str, Any]) -> tuple[int, TaskResult]:
    number = entry["task"]
    if not isinstance(number, int):
        raise TypeError
    return number, parsed_result(entry)


def parsed_result(entry: Mapping[str, Any]) -> TaskResult:
    """Parse a task's result. Raises ValueError, TypeError, KeyError or AttributeError for anything else."""
    crc, overflowed = entry.get("crc32c"), entry.get("overflowed", 0)
    if not isinstance(overflowed, int):
        raise TypeError
    return TaskResult(
        {_index(text): int(value, 16) for text, value in entry.get("chunks", {}).items()},
        tuple(AdoptedFile(**{**file, "how": LinkMode(file["how"])}) for file in entry.get("files", ())),
        None if crc is None else int(crc, 16),
        overflowed,
    )


def _index(text: str) -> Shape:
    return tuple(int(part) for part in text.split(",") if part)
