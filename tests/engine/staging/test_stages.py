"""What holds wherever a checkpoint is written: on a disk, in a store, and on its way into one."""

import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import (
    DataError,
    DestinationError,
    Interrupted,
    PlanError,
    StorageError,
    VerificationError,
)
from ckpt_surgery.engine.staging import life, owners
from ckpt_surgery.engine.staging.checks import lock_of
from ckpt_surgery.engine.staging.heartbeat import Lock
from ckpt_surgery.engine.staging.life import Staging
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.engine.staging.locks import FileLock, ObjectLock
from ckpt_surgery.engine.staging.objects import StoreStage
from ckpt_surgery.engine.staging.uploads import DirectoryUpload, FileUpload
from ckpt_surgery.storage.store import store_of
from ckpt_surgery.system import signals
from tests.support import object_runs
from tests.support.calls import record_calls
from tests.support.ended_runs import IDENTITY, stopped
from tests.support.failing import raising
from tests.support.generations import NEW, OLD, fill, fill_file, found, replaced_at
from tests.support.key_value import key_value

DISK = ("directory", "file")
IN_STORE = ("store", "upload", "uploaded file")


class Bench:
    """A destination of one kind, and what lies around it."""

    def __init__(self, kind: str, parent: Path):
        self.kind = kind
        self.parent = parent
        self.path = parent / "out"
        self.url = "kv://bucket/runs/out"
        self.name = self.url if kind in IN_STORE else str(self.path)

    def stage(self, overwrite: bool = False, identity: dict[str, str] = IDENTITY) -> Any:
        if self.kind in DISK:
            replaces = replaced_at(self.path, overwrite)
            return DiskStage(self.path, self.kind == "file", identity, replaces)
        if self.kind == "uploaded file":
            return FileUpload(self.url, identity, replaced_at(self.url, overwrite), 0)
        target = StoreStage(self.url, identity, replaced_at(self.url, overwrite))
        return target if self.kind == "store" else DirectoryUpload(target, 0)

    def write(self, at: Any, value: str) -> None:
        if self.kind == "store":
            object_runs.write(at, value)
        elif self.kind == "upload":
            (at.tree / "model-1.safetensors").write_text(value)
            (at.tree / "model.safetensors.index.json").write_text(value)
        elif self.kind == "directory":
            fill(at.tree, value)
        else:
            fill_file(at.output, value)

    def run(self, value: str, resume: bool = False, **options: Any) -> Staging:
        with life.staged(self.stage(**options), resume) as at:
            if not at.resumed:
                self.write(at, value)
            at.publish()
        assert isinstance(at, Staging)
        return at

    def fail(self, failure: BaseException, tasks: int = 2, **options: Any) -> str:
        """Let a run end before it publishes; returns what it says."""
        with pytest.raises(type(failure)) as caught, life.staged(self.stage(**options)) as at:
            self.write(at, NEW)
            for _ in range(tasks):
                at.journal("0").add(b"{}\n")
            raise failure
        assert caught.value is failure
        return str(failure) + "".join(getattr(failure, "__notes__", ()))

    def value(self) -> str | None:
        """The value of the one whole checkpoint that is there."""
        if self.kind in DISK:
            return found(self.path)
        if self.kind == "store":
            there = object_runs.state(self.url)
            return None if there == "uncommitted" else there
        store, name = store_of(self.url)
        objects = {key: store.read(key).decode() for key in store.walk(name) if ".ckpt-surgery/" not in key}
        if self.kind == "upload" and f"{name}/model.safetensors.index.json" not in objects:
            return None
        return None if not objects else {text.split("\n")[0] for text in objects.values()}.pop()

    def left(self) -> list[str]:
        """Names of everything that belongs to runs."""
        here = [path.name for path in (*self.parent.iterdir(), *(self.parent / "temporary").iterdir())]
        return [name for name in (*here, *store_of("kv://bucket")[0].walk()) if "ckpt-surgery" in name]

    # --- its lock -----------------------------------------------------------------------------------------

    def lock(self) -> Lock:
        if self.kind in DISK:
            return FileLock(lock_of(self.path))
        return ObjectLock(store_of(self.url)[0], "runs/.out.ckpt-surgery-lock")

    def put_lock(self, content: bytes) -> None:
        if self.kind in DISK:
            lock_of(self.path).write_bytes(content)
        else:
            store_of(self.url)[0].put("runs/.out.ckpt-surgery-lock", content)

    def remove_lock(self) -> None:
        if self.kind in DISK:
            lock_of(self.path).unlink()
        else:
            store_of(self.url)[0].delete(["runs/.out.ckpt-surgery-lock"])

    def age(self, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the lock be so old by the clock of the file system or the store."""
        sign = self.lock().read()
        assert sign is not None
        monkeypatch.setattr(type(self.lock()), "_now", lambda lock: sign.modified + seconds)


@pytest.fixture(params=[*DISK, *IN_STORE])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with key_value(tmp_path / "bucket"):
        yield Bench(request.param, tmp_path)


one_of_each = pytest.mark.parametrize("bench", ["directory", "store"], indirect=True)
"""For what the lock alone decides."""


# --- publication ------------------------------------------------------------------------------------------


def test_nothing_is_there_before_publication_and_nothing_else_after(bench: Bench) -> None:
    with life.staged(bench.stage()) as at:
        bench.write(at, NEW)
        assert bench.value() is None
        at.publish()
        assert bench.value() == NEW
    assert (at.published, at.resumed, at.notices) == (True, False, ())
    assert bench.left() == []


def test_the_older_checkpoint_is_whole_until_it_is_replaced(bench: Bench) -> None:
    bench.run(OLD)
    with pytest.raises(DestinationError):
        bench.run(NEW)
    assert bench.value() == OLD
    with life.staged(bench.stage(overwrite=True)) as at:
        bench.write(at, NEW)
        assert bench.value() == OLD
        at.publish()
    assert bench.value() == NEW
    assert bench.left() == []


def test_what_changed_since_it_was_looked_at_is_not_replaced(bench: Bench) -> None:
    bench.run(OLD)
    stage = bench.stage(overwrite=True)
    bench.run("other", overwrite=True)
    with pytest.raises(DestinationError, match="changed during this run"), life.staged(stage) as at:
        bench.write(at, NEW)
        at.publish()
    assert (bench.value(), bench.left()) == ("other", [])


@pytest.mark.parametrize("failure", [stopped(), DataError("overflow")], ids=repr)
def test_a_failure_after_publication_says_that_the_destination_is_complete(
    bench: Bench, failure: DataError | Interrupted
) -> None:
    failure = DataError("overflow") if isinstance(failure, DataError) else stopped()
    with pytest.raises(type(failure)) as caught, life.staged(bench.stage()) as at:
        bench.write(at, NEW)
        at.journal("0").add(b"{}\n")
        at.publish()
        raise failure
    assert f"{bench.name} is new and complete" in str(caught.value)
    assert (bench.value(), bench.left()) == (NEW, [])


def test_what_cannot_be_released_is_a_notice_after_publication(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.lock()), "_remove", raising(lambda: StorageError("no answer")))
        (notice,) = bench.run(NEW).notices
    assert f"{bench.name} is new and complete; {bench.lock().place} is left (no answer)" in notice
    assert bench.value() == NEW


# --- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("older", [False, True], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("failure", [Interrupted(15, "stopped"), StorageError("full"), KeyboardInterrupt()])
def test_an_ended_run_is_resumed(bench: Bench, failure: BaseException, older: bool) -> None:
    """In the same process, which is alive, as a notebook is."""
    failure = type(failure)(*((15, "stopped") if isinstance(failure, Interrupted) else failure.args))
    if older:
        bench.run(OLD)
    said = bench.fail(failure, overwrite=older)
    assert "what was written is kept" in said
    assert "`resume=True`" in said
    if isinstance(failure, Interrupted):
        state = "is as it was before" if older else "does not exist"
        assert f"nothing was published: {bench.name} {state}" in said
    assert bench.value() == (OLD if older else None)
    with life.staged(bench.stage(overwrite=older), True) as at:
        assert (at.resumed, at.notices) == (True, ())
        assert at.journal("0").read() == b"{}\n" * 2
        if bench.kind == "store":
            assert {"d/new0", "d/new1"} <= set(at.draft.data)
            bench.write(at, NEW)
        at.publish()
    assert (bench.value(), bench.left()) == (NEW, [])


@pytest.mark.parametrize(
    ("failure", "tasks"), [(DataError("overflow"), 2), (stopped(), 0), (StorageError("full"), 0)], ids=repr
)
def test_what_is_not_worth_keeping_is_removed(bench: Bench, failure: BaseException, tasks: int) -> None:
    assert "kept" not in bench.fail(failure, tasks)
    assert (bench.value(), bench.left()) == (None, [])


def test_what_is_kept_is_removed_by_a_run_that_does_not_resume(bench: Bench) -> None:
    bench.fail(stopped())
    (notice,) = bench.run("next").notices
    assert notice.startswith("removed ")
    assert notice.endswith(", which an unfinished run left behind")
    assert (bench.value(), bench.left()) == ("next", [])


def test_another_plan_is_not_resumed(bench: Bench) -> None:
    bench.fail(stopped())
    before = bench.left()
    with pytest.raises(PlanError, match="cannot be resumed: it was written with another recipe"):
        bench.run(NEW, resume=True, identity=IDENTITY | {"plan": "other"})
    assert bench.left() == before


def test_with_nothing_there_it_starts_afresh(bench: Bench) -> None:
    at = bench.run(NEW, resume=True)
    assert at.notices == (f"nothing can be resumed for {bench.name}: this run starts from the beginning",)
    assert (bench.value(), bench.left()) == (NEW, [])


@pytest.mark.parametrize("bench", ["file", "store", "upload"], indirect=True)
def test_nothing_written_is_not_published(bench: Bench) -> None:
    with pytest.raises(VerificationError), life.staged(bench.stage()) as at:
        at.publish()
    assert (bench.value(), bench.left()) == (None, [])


@pytest.mark.parametrize("failure", [stopped(), StorageError("full")], ids=repr)
def test_a_signal_while_a_failure_is_cleaned_up_after(
    bench: Bench, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = bench.stage()
    record_calls(monkeypatch, at, "remove", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(type(failure)) as caught, signals.interruptible(), life.staged(at):
        raise failure
    assert caught.value is failure
    assert bench.left() == []


@pytest.mark.parametrize("published", [False, True])
def test_a_signal_while_the_run_tidies_up_leaves_nothing(
    bench: Bench, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it lost, nor does it end the removal."""
    real = type(bench.lock()).read

    def read(lock: Any) -> Any:
        monkeypatch.setattr(type(lock), "read", real)
        os.kill(os.getpid(), signal.SIGTERM)
        return real(lock)

    with pytest.raises(Interrupted) as caught, signals.interruptible(), life.staged(bench.stage()) as at:
        if published:
            bench.write(at, NEW)
            at.publish()
        monkeypatch.setattr(type(at.lock), "read", read)
    assert ("is new and complete" in str(caught.value)) == published
    assert (bench.value(), bench.left()) == (NEW if published else None, [])


# --- the lock ---------------------------------------------------------------------------------------------

ELSEWHERE: dict[str, Any] = {"host": "elsewhere", "boot": "another", "namespace": "pid:[1]", "pid": 1}


def other_run(**changes: Any) -> owners.Owner:
    return replace(owners.this_process("0123456789abcdef"), **changes)


def note(owner: owners.Owner) -> bytes:
    return owners.note_bytes(owners.Note(owner))


def test_of_two_runs_the_first_wins(bench: Bench) -> None:
    with life.staged(bench.stage()) as at:
        with pytest.raises(DestinationError, match=f"process {os.getpid()} .*is writing this"):
            bench.run("second")
        bench.write(at, NEW)
        at.publish()
    assert (bench.value(), bench.left()) == (NEW, [])


@one_of_each
@pytest.mark.parametrize(
    ("changes", "silent", "dead"),
    [
        ({}, 0, False),  # this very process
        ({}, 9, False),  # it was stopped for a while
        ({"host": "renamed"}, 9, False),
        ({"started": "running"}, 9, False),  # its start time was unknown
        ({"started": "1"}, 0, True),  # its number was given to another process
        ({"host": "renamed", "started": "1"}, 0, True),
        ({"boot": "another", "started": "1"}, 0, False),  # another machine of the same name
        ({"boot": "another"}, 1.01, True),
        ({"namespace": "pid:[1]", "started": "1"}, 0, False),  # another container's processes
        ({"namespace": "pid:[1]"}, 1.01, True),
        ({"boot": "", "namespace": "", "started": "1"}, 0, False),  # a system that does not tell
        ({"boot": "", "namespace": ""}, 1.01, True),
        (ELSEWHERE, 0.99, False),
        (ELSEWHERE, 1.01, True),
        (ELSEWHERE, -9, False),  # the clock was set back
        (None, 0.99, False),  # a lock that tells nothing, as after a power cut
        (None, 1.01, True),
    ],
)
def test_whether_a_lock_is_dead(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any] | None, silent: float, dead: bool
) -> None:
    """`silent`: time without a sign of life, in limits."""
    limit = bench.lock().limit
    bench.put_lock(b"{" if changes is None else note(other_run(**changes)))
    bench.age(silent * limit, monkeypatch)
    if dead:
        bench.lock().check()
        (notice,) = bench.run(NEW).notices
        assert "has ended without" in notice
        assert bench.left() == []
        return
    for attempt in (lambda: bench.run(NEW), bench.lock().check):
        with pytest.raises(DestinationError, match="remove the lock file") as caught:
            attempt()
        assert f"(last sign of life {max(0, silent * limit):.0f} s ago)" in str(caught.value)
        known = changes in ({}, {"host": "renamed"}, {"started": "running"})
        assert known or f"taken over {limit - max(0, silent * limit):.0f} s from now" in str(caught.value)
    assert bench.value() is None


@one_of_each
def test_a_lock_is_released_by_its_run_only(bench: Bench) -> None:
    first, second = bench.lock(), bench.lock()
    assert first.acquire() == ()
    second.release()
    with pytest.raises(DestinationError, match="is writing this destination"):
        second.acquire()
    first.release()
    assert bench.left() == []
    first.release()


def test_a_run_whose_lock_was_removed_by_hand_still_publishes(bench: Bench) -> None:
    with life.staged(bench.stage()) as at:
        bench.write(at, NEW)
        bench.remove_lock()
        at.publish()
        bench.remove_lock()  # and again: after publication that is no error
    assert at.notices == ()
    assert (bench.value(), bench.left()) == (NEW, [])


def test_a_run_whose_lock_another_one_has_does_not_publish(bench: Bench) -> None:
    bench.run(OLD)
    with pytest.raises(DestinationError) as caught, life.staged(bench.stage(overwrite=True)) as at:
        bench.write(at, NEW)
        bench.put_lock(note(other_run(**ELSEWHERE)))
        at.publish()
    said = f"{bench.lock().place}: process 1 on elsewhere has taken over this destination during this run"
    assert str(caught.value).startswith(said)
    assert "Nothing was published." in str(caught.value)
    assert bench.value() == OLD
    sign = bench.lock().read()
    assert sign is not None
    assert sign.owner == other_run(**ELSEWHERE)
