"""The journal of finished tasks, and runs that go on with it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import StorageError
from ckpt_surgery.core.protocols import AdoptedFile, TaskResult
from ckpt_surgery.engine import worker as journals
from ckpt_surgery.engine.staging.life import FileLines
from ckpt_surgery.engine.tasks import Task
from ckpt_surgery.engine.worker import Journal, read_journal


def task(number: int, nbytes: int = 10) -> Task:
    return Task(number, 0, Region((0,), (1,)), nbytes, 0)


def note(path: Path, done: Mapping[int, TaskResult]) -> None:
    """Let one worker finish these tasks, by their numbers."""
    notes = Journal(FileLines(path), lambda: None)
    for number, finished in done.items():
        notes.add(task(number), finished)
    notes.close()


def test_what_is_noted_is_read_again(tmp_path: Path) -> None:
    done = {
        0: TaskResult(crc=0xDEADBEEF),
        7: TaskResult(chunks={(0, 10): 0, (1, 2): 0xFFFFFFFF}),
        8: TaskResult(chunks={(): 5}),
        9: TaskResult(files=(AdoptedFile("d/1", "/a", LinkMode.REFLINK, 5, 6),)),
        10: TaskResult(crc=1, overflowed=2),
    }
    note(tmp_path / "j", done)
    assert read_journal(FileLines(tmp_path / "j")) == done
    assert json.loads((tmp_path / "j").read_text().splitlines()[0]) == [0, [], [], 0xDEADBEEF, 0]


def test_tasks_are_noted_only_after_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And several together: a flush for each task would make many small commits."""
    assert read_journal(FileLines(tmp_path / "j")) == {}  # there is none
    monkeypatch.setattr(journals, "FLUSH_BYTES", 30)
    lines: list[int] = []
    notes = Journal(
        FileLines(tmp_path / "j"), lambda: lines.append(len(read_journal(FileLines(tmp_path / "j"))))
    )
    for number in range(7):
        notes.add(task(number), TaskResult(crc=number))
    assert lines == [0, 3]
    assert sorted(read_journal(FileLines(tmp_path / "j"))) == list(range(6))
    notes.close()
    assert lines == [0, 3, 6]
    assert sorted(read_journal(FileLines(tmp_path / "j"))) == list(range(7))


def test_a_flush_that_fails_notes_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        raise StorageError("no space")

    notes = Journal(FileLines(tmp_path / "j"), fail)
    notes.add(task(1), TaskResult(crc=1))
    with pytest.raises(StorageError, match="no space"):
        notes.close()
    assert read_journal(FileLines(tmp_path / "j")) == {}


@pytest.mark.parametrize("cut", range(1, 19))
def test_a_torn_last_line_is_dropped_and_not_continued(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "j"
    note(path, {number: TaskResult(crc=number) for number in (1, 2)})
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_journal(FileLines(path)) == {1: TaskResult(crc=1)}
    note(path, {3: TaskResult(crc=3)})
    assert read_journal(FileLines(path)) == {1: TaskResult(crc=1), 3: TaskResult(crc=3)}


@pytest.mark.parametrize(
    "line",
    [
        b"\0\0\0",
        b"[]",
        b"{}",
        b'["1"]',
        b'[1, [], [], "x", 0]',
        b"[1, [1], [], null, 0]",
        b"1",
    ],
)
def test_a_damaged_line_counts_as_not_done(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "j"
    note(path, {2: TaskResult(crc=2**32 - 1)})
    path.write_bytes(line + b"\n" + path.read_bytes())
    assert read_journal(FileLines(path)) == {2: TaskResult(crc=2**32 - 1)}
