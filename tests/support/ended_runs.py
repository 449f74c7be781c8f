"""Runs that ended before they published, with finished tasks, and runs that go on with them."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.engine.staging import heartbeat, life
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.owners import this_process
from tests.support.generations import NEW, staged

IDENTITY = {"version": "1.0", "plan": "abc", "sources": "def"}


def stopped() -> Interrupted:
    return Interrupted(signal.SIGTERM, "stopped by SIGTERM")


def ended_by(failure: BaseException, destination: Path, tasks: int = 2, **options: Any) -> Path:
    """Let a run fail after some tasks; returns its temporary directory."""
    with pytest.raises(type(failure)) as caught, staged(destination, identity=IDENTITY) as staging:
        begin_work(staging, tasks)
        raise failure
    assert caught.value is failure
    return staging.directory


def begin_work(staging: DiskStage, tasks: int) -> None:
    (staging.tree / "d").mkdir()
    (staging.tree / "d" / "data").write_text(NEW)
    (staging.directory / "journal-0.jsonl").write_text('{"task": 1}\n' * tasks)


def go_on(destination: Path, identity: Mapping[str, str] = IDENTITY, overwrite: bool = False) -> DiskStage:
    """Resume what `ended_by` has begun, or begin it, and publish it."""
    with staged(destination, identity=identity, resume=True, overwrite=overwrite) as staging:
        if not staging.resumed:
            begin_work(staging, 2)
        (staging.tree / "_METADATA").write_text(NEW)
        staging.publish()
    return staging


class Killed(BaseException):
    """The process has ended here, as far as the run can see."""


@contextmanager
def killed() -> Iterator[pytest.MonkeyPatch]:
    """A run that raises Killed in this context leaves all that a killed process leaves; it counts as dead.

    The context gives what can be patched until it ends.
    """
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(heartbeat, "this_process", lambda run: replace(this_process(run), started="1"))
        patch.setattr(life, "_clean_up", lambda *_: None)
        yield patch
