"""Runs that ended before they published, with finished tasks, and runs that go on with them."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.engine.staging import local
from tests.support.generations import NEW

IDENTITY = {"version": "1.0", "plan": "abc", "sources": "def"}


def stopped() -> Interrupted:
    return Interrupted(signal.SIGTERM, "stopped by SIGTERM")


def ended_by(failure: BaseException, destination: Path, tasks: int = 2, **options: Any) -> Path:
    """Let a run fail after some tasks; returns its temporary directory."""
    with pytest.raises(type(failure)) as caught, local.staged(destination, identity=IDENTITY) as staging:
        begin_work(staging, tasks)
        raise failure
    assert caught.value is failure
    return staging.directory


def begin_work(staging: local.Staging, tasks: int) -> None:
    (staging.work / "d").mkdir()
    (staging.work / "d" / "data").write_text(NEW)
    (staging.directory / "journal-0.jsonl").write_text('{"task": 1}\n' * tasks)


def go_on(
    destination: Path, identity: Mapping[str, str] = IDENTITY, overwrite: bool = False
) -> local.Staging:
    """Resume what `ended_by` has begun, or begin it, and publish it."""
    with local.staged(destination, identity=identity, resume=True) as staging:
        if not staging.resumed:
            begin_work(staging, 2)
        (staging.work / "_METADATA").write_text(NEW)
        local.publish(staging, overwrite)
    return staging
