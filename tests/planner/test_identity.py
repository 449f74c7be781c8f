"""Runs that were ended, and taken up again by another process: for every format that can be written."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError, Interrupted
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.engine import journal as journals
from ckpt_surgery.engine.staging.lines import FileLines
from ckpt_surgery.engine.tasks import outputs_of
from ckpt_surgery.engine.worker import Means, run
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.system.signals import interruptible
from tests.support.memory import MemorySource
from tests.support.plans import COMPUTED
from tests.support.reading import values

WRITTEN = [name for name, known in formats.formats().items() if known.writable]
RECIPE = "version: 1\nrules:\n  - {match: '(.*)', value: x * 2}\n"
ARRAYS = {f"layer/w_{i}": np.arange(i, 3000 + i, dtype=np.float32).reshape(50, 60) for i in range(6)}
DOUBLED = {key: array * 2 for key, array in ARRAYS.items()}
CHUNKS = dict.fromkeys(ARRAYS, (10, 60))
MEMORY = 50_000


class EndingSource(MemorySource):
    """Ends the run at one of the reads."""

    def __init__(self, ends_at: int, error: Exception) -> None:
        super().__init__(ARRAYS, CHUNKS)
        self.ends_at = ends_at
        self.error = error

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        if len(self.regions) == self.ends_at:
            raise self.error
        return super().read(leaf, region)


class SignallingSource(MemorySource):
    """Asks its own process to stop at the eighth read."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        if len(self.regions) == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return super().read(leaf, region)


def planned(format: str) -> Plan:
    destination = replace(COMPUTED, encoder=opening.encoder(format, SinkOptions()), format=format)
    loaded = parse_recipe(RECIPE, "recipe.yaml")
    return make_plan(
        loaded, {"source": MemorySource(ARRAYS, CHUNKS).leaves()}, None, [], {}, destination, MEMORY, 1
    )


def begun(format: str, directory: Path, source: MemorySource) -> None:
    """A run with one thread, so that tasks are done in their order."""
    plan = planned(format)
    work = directory / "result"
    work.mkdir(parents=True, exist_ok=True)
    sink = opening.open_sink(format, work, SinkOptions(), outputs_of(plan))
    run(plan, {"source": source}, sink, Means(MEMORY, 1), journal=FileLines(directory / "journal"))


def assert_doubled(format: str, directory: Path) -> None:
    found = values(opening.open_source(os.fspath(directory / "result"), format))
    assert sorted(found) == sorted(DOUBLED)
    for key, array in DOUBLED.items():
        np.testing.assert_array_equal(found[key], array)


@pytest.fixture(autouse=True)
def each_task_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "FLUSH_BYTES", 1)


@pytest.mark.parametrize("format", WRITTEN)
def test_finished_tasks_are_not_done_again(format: str, tmp_path: Path) -> None:
    everything = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "whole", everything)
    assert len(everything.regions) > 10
    killed = EndingSource(7, DataError("as if killed"))
    with pytest.raises(DataError):
        begun(format, tmp_path / "run", killed)
    rest = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "run", rest)
    assert rest.regions == everything.regions[7:]
    assert_doubled(format, tmp_path / "run")


@pytest.mark.parametrize("format", WRITTEN)
def test_a_run_that_ended_while_it_finished(format: str, tmp_path: Path) -> None:
    """Everything is there already."""
    begun(format, tmp_path / "run", MemorySource(ARRAYS, CHUNKS))
    again = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "run", again)
    assert again.regions == []
    assert_doubled(format, tmp_path / "run")


@pytest.mark.parametrize("format", WRITTEN)
def test_what_was_damaged_meanwhile_is_done_again(format: str, tmp_path: Path) -> None:
    """After a power cut, bytes of finished tasks can be missing."""
    with pytest.raises(DataError):
        begun(format, tmp_path / "run", EndingSource(9, DataError("as if killed")))
    for file in (tmp_path / "run/result").rglob("*"):
        if file.is_file() and file.suffix not in (".json", ".zarray", ".zgroup", ".ocdbt"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            file.write_bytes(data)
    again = MemorySource(ARRAYS, CHUNKS)
    begun(format, tmp_path / "run", again)
    assert len(again.regions) > len(planned(format).steps)
    assert_doubled(format, tmp_path / "run")


def test_an_interrupted_run_notes_what_it_has_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even what was not flushed yet."""
    monkeypatch.setattr(journals, "FLUSH_BYTES", 1 << 40)
    with pytest.raises(Interrupted), interruptible():
        begun("orbax", tmp_path, SignallingSource(ARRAYS, CHUNKS))
    again = MemorySource(ARRAYS, CHUNKS)
    begun("orbax", tmp_path, again)
    whole = MemorySource(ARRAYS, CHUNKS)
    begun("orbax", tmp_path / "whole", whole)
    assert len(again.regions) <= len(whole.regions) - 7
    assert_doubled("orbax", tmp_path)
