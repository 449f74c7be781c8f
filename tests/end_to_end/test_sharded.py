"""Saved plans that are carried out in shards: by this process, by several, and by some that are killed."""

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import (
    DestinationError,
    Interrupted,
    SourceError,
    StorageError,
    SurgeryError,
    UsageError,
    VerificationError,
)
from ckpt_surgery.engine import worker
from ckpt_surgery.engine.parts import LocalParts
from ckpt_surgery.engine.staging import syncing
from ckpt_surgery.engine.tasks import Task
from ckpt_surgery.formats.orbax.writer import OrbaxWriter
from ckpt_surgery.formats.shared.orbax_layout import COMMIT_FILE
from ckpt_surgery.runs import shards as shard_jobs
from ckpt_surgery.storage import views
from ckpt_surgery.storage.places import UNFINISHED
from ckpt_surgery.storage.store import store_of
from ckpt_surgery.verification import new_checkpoints
from tests.support.checkpoints import restored, save_pytree
from tests.support.command_line import run
from tests.support.ended_runs import Killed, killed
from tests.support.failing import raising
from tests.support.recipes import write_recipe
from tests.support.sharded_runs import ARRAYS, SUFFIXES, SavedRun, copy_source, entries

Planned = Callable[..., SavedRun]


@pytest.fixture
def planned(sharded: Path, tmp_path: Path) -> Planned:
    """`planned(dst)`: a saved plan of an Orbax checkpoint, for a name in the test's directory or a URL."""
    recipe = copy_source(sharded, tmp_path)

    def plan(dst: str = "out", recipe: Path | None = recipe, **options: Any) -> SavedRun:
        file, where = tmp_path / "plan.json", dst if "://" in dst else str(tmp_path / dst)
        ckpt_surgery.plan(recipe, tmp_path / "in", dst=where, out=file, **{"memory": "1MiB"} | options)
        return SavedRun(file, where)

    return plan


@pytest.fixture
def job(planned: Planned) -> SavedRun:
    """The plan of a new Orbax checkpoint on the disk."""
    return planned()


@pytest.fixture
def stored(planned: Planned, bucket: str) -> SavedRun:
    """The plan of a new Orbax checkpoint in a store."""
    return planned(f"{bucket}/out")


def test_shards_are_written_in_any_order_and_once(tmp_path: Path, job: SavedRun) -> None:
    found = job.shards([3, 1, 0, 4, 2, 3], 5)
    assert [len(one.missing_shards) for one in found] == [4, 3, 2, 1, 0, 0]
    assert [one.already_done for one in found] == [False] * 5 + [True]
    assert not job.path.exists()
    assert (job.parts.is_dir(), job.commit().destination) == (True, job.dst)
    assert job.wrote_the_same_as(job.alone())
    assert entries(tmp_path) == []


def test_sources_that_are_mounted_at_other_paths(tmp_path: Path, planned: Planned) -> None:
    """The record in a safetensors header names them, and all shards write at the same offsets."""
    job, elsewhere = planned("out.safetensors"), tmp_path / ("mounted" * 20)
    alone = job.alone()
    shutil.copytree(tmp_path / "in", elsewhere)
    other = SavedRun(tmp_path / "other.json", job.dst)
    other.plan.write_text(job.plan.read_text().replace(f'"{tmp_path}/in"', f'"{elsewhere}"'))
    other.shards([1], 3)
    job.shards([0, 2], 3)
    assert job.commit() is not None
    assert job.wrote_the_same_as(alone)


@pytest.mark.parametrize("format", ["orbax", "safetensors"])
def test_a_shard_that_was_killed_is_named_and_done_again(
    format: str, tmp_path: Path, planned: Planned
) -> None:
    job, tasks = planned(f"out{SUFFIXES[format]}"), itertools.count()
    do = worker._Worker.do

    def dying(self: Any, task: Task, known: Any) -> Any:
        if next(tasks) == 2:
            raise Killed
        return do(self, task, known)

    job.shards([0, 2], 3)
    with killed() as patch:
        patch.setattr(worker._Worker, "do", dying)
        job.shards([1], 3)
    with pytest.raises(SourceError, match="1/3") as raised:
        job.commit()
    assert (raised.value.exit_code, job.path.exists()) == (1, False)
    job.shards([1], 3)
    job.commit()
    assert job.wrote_the_same_as(job.alone())
    assert ckpt_surgery.verify(job.dst, mode="full").flaws == ()
    assert entries(tmp_path) == []
    if format == "orbax":  # nothing of the killed attempt is left
        assert len([name for name in os.listdir(job.dst) if name.startswith("ocdbt.process_")]) == 3


# --- what happens ---------------------------------------------------------------------------------------


def test_the_first_of_two_attempts_at_once_wins(job: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    job.shards([1], 2)
    both = threading.Barrier(2)
    sync = new_checkpoints.read_back

    def waiting(*arguments: Any) -> None:
        both.wait()
        sync(*arguments)

    monkeypatch.setattr(shard_jobs, "read_back", waiting)
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda _: job.shards([0], 2), range(2)))
    assert sorted(one.already_done for (one,) in found) == [False, True]
    job.commit()
    assert job.wrote_the_same_as(job.alone())
    assert len([name for name in os.listdir(job.dst) if name.startswith("ocdbt.process_0_")]) == 1


def test_many_first_shards_at_once_begin_one_directory_of_parts(tmp_path: Path, job: SavedRun) -> None:
    with ThreadPoolExecutor(6) as threads:
        assert len(list(threads.map(lambda number: job.shards([number], 6), range(6)))) == 6
    assert entries(tmp_path) == [job.parts.name]
    job.commit()
    assert entries(tmp_path) == []


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_shard_syncs_what_it_wrote_and_nothing_of_others(
    format: str, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of other shards come and go: each is written in a directory of unfinished ones at first."""
    job = planned(f"out{SUFFIXES[format]}")
    synced: set[Path] = set()
    sync = syncing._sync
    monkeypatch.setattr(syncing, "_sync", lambda path, flags: (synced.add(path), sync(path, flags)))
    job.shards([0], 3)
    result = job.result
    assert {path for path in result.rglob("*") if path.name != UNFINISHED} <= synced
    for number in (1, 2):
        synced.clear()
        before = _contents(result)
        job.shards([number], 3)
        after = _contents(result)
        assert {path for path in after if after[path] != before.get(path)} <= synced
        below = {path for path in synced if result in path.parents and path.is_file()}
        assert below <= {path for path in after if after[path] != before.get(path)}


def _contents(directory: Path) -> dict[Path, object]:
    """Bytes of each file, and names in each directory."""
    return {
        path: path.read_bytes() if path.is_file() else sorted(os.listdir(path))
        for path in (directory, *directory.rglob("*"))
    }


def test_other_plans_numbers_and_versions_are_refused(tmp_path: Path, job: SavedRun) -> None:
    job.shards([0], 4)
    before = sorted(os.listdir(job.parts))
    with pytest.raises(UsageError, match="in 4 shards, not 3") as raised:
        job.shards([1], 3)
    assert raised.value.exit_code == 2
    other = SavedRun(tmp_path / "other.json", job.dst)
    ckpt_surgery.plan(None, tmp_path / "in", dst=job.dst, out=other.plan, link_mode="copy")
    with pytest.raises(UsageError, match="another recipe") as raised:
        other.shards([1], 4)
    assert str(job.parts) in str(raised.value)
    with pytest.raises(UsageError, match="another recipe") as raised:  # before a worker is asked for anything
        ckpt_surgery.apply(None, tmp_path / "in", dst=job.dst, engine="dask", workers=1)
    assert raised.value.exit_code == 2
    head = json.loads((job.parts / "head.json").read_text())
    head["identity"]["version"] = "0.0.1"
    (job.parts / "head.json").write_text(json.dumps(head))
    with pytest.raises(UsageError, match=r"version 0\.0\.1"):
        job.shards([1], 4)
    assert sorted(os.listdir(job.parts)) == before


@pytest.mark.parametrize("text", ["3/3", "x", "1", "-1/3", "0/0", "1/2/3", "0/70000", ""])
def test_shards_are_numbered_from_0(text: str, tmp_path: Path, job: SavedRun) -> None:
    with pytest.raises(UsageError, match="not I/N"):
        applying.apply_shard(job.plan, shard=text)
    assert entries(tmp_path) == []


stopped = raising(lambda: Interrupted(signal.SIGTERM, "stopped by SIGTERM"))


def test_an_interrupted_shard_says_how_to_go_on(job: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followed to the letter, the commands that are printed lead to the result."""
    job.shards([1], 2)
    for command, function in (
        (["apply", str(job.plan), job.dst, "--shard", "0/2"], "shards.work"),
        (["commit", job.dst], "run.verify_and_publish"),
    ):
        done_before = len(list(job.parts.glob("*.done.json")))
        with monkeypatch.context() as patch:
            patch.setattr(f"ckpt_surgery.runs.{function}", stopped)
            done = run(*command)
        assert done.exit_code == 128 + signal.SIGTERM
        assert f"{done_before} of 2 shards are done, and kept in {job.parts}" in done.stderr
        (hint,) = (line.strip() for line in done.stderr.splitlines() if "Go on from there" in line)
        words = shlex.split(hint.partition(": ")[2])
        assert words == ["ckpt-surgery", *command]
        assert run(*words[1:]).exit_code == 0
    np.testing.assert_array_equal(restored(job.path)["ids"], ARRAYS["ids"])
    again = run("commit", job.dst)
    assert (again.exit_code, "committed already" in again.output) == (0, True)
    for wrong in ("--dry-run", "--resume"):
        assert run("apply", job.plan, job.dst, "--shard", "0/2", wrong).exit_code == 2


def test_parts_that_are_gone_are_not_called_kept(job: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal after publication: nothing is left to go on with."""
    job.shards(range(2), 2)
    clear = LocalParts.clear
    monkeypatch.setattr(LocalParts, "clear", lambda parts: (clear(parts), stopped()))
    with pytest.raises(Interrupted) as raised:
        job.commit()
    assert "kept" not in str(raised.value)
    np.testing.assert_array_equal(restored(job.path)["ids"], ARRAYS["ids"])


def test_a_shard_after_the_commit_touches_nothing(tmp_path: Path, job: SavedRun) -> None:
    job.shards(range(2), 2)
    job.commit()
    before = {path: path.stat().st_mtime_ns for path in job.path.rglob("*")}
    for options in ({}, {"overwrite": True}):
        with pytest.raises(DestinationError) as raised:
            job.shards([1], 2, **options)
        assert raised.value.exit_code == 4
    assert entries(tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in job.path.rglob("*")} == before
    assert job.commit() is None


def test_an_attempt_that_nobody_needs_writes_while_the_others_are_published(job: SavedRun) -> None:
    """As that of a machine that was taken for dead."""
    job.shards(range(2), 2)
    database, over = job.result / "ocdbt.process_0_late/d", threading.Event()

    def writing() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            with contextlib.suppress(OSError):
                database.mkdir(parents=job.parts.exists(), exist_ok=True)
                (database / "1.__lock").write_bytes(b"late")
                os.rename(database / "1.__lock", database / str(number % 7))

    late = threading.Thread(target=writing)
    late.start()
    try:
        assert job.commit() is not None
    finally:
        over.set()
        late.join()
    assert ckpt_surgery.verify(job.dst, mode="full").flaws == ()
    assert not [name for name in os.listdir(job.dst) if "late" in name]


def test_parts_begin_where_a_late_attempt_left_a_directory(tmp_path: Path, job: SavedRun) -> None:
    """TensorStore makes the directories above what it writes, also after the parts were removed."""
    job.shards(range(2), 2)
    late = job.result / "ocdbt.process_0_late/d/1"
    done = {path: path.read_bytes() for path in job.parts.glob("*.done.json")}
    shutil.rmtree(job.parts)
    late.parent.mkdir(parents=True)
    for path, content in {late: b"late", **done}.items():
        path.write_bytes(content)
    with pytest.raises(UsageError, match="no parts"):
        job.commit()
    assert [shard.missing_shards for shard in job.shards(range(2), 2)] == [(1,), ()]
    assert job.commit() is not None
    assert entries(tmp_path) == []
    np.testing.assert_array_equal(restored(job.path)["ids"], ARRAYS["ids"])


def test_a_commit_that_is_killed_after_the_rename_is_completed(
    tmp_path: Path, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_pytree(tmp_path / "out", {"a": np.arange(3)})
    job = planned(overwrite=True)
    job.shards(range(2), 2, overwrite=True)
    assert job.keys() == ["a"]

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(LocalParts, "clear", raising(Killed))
        job.commit()
    # The old checkpoint lies where the parts were; putting them together again would bring it back.
    assert job.commit() is None
    assert job.wrote_the_same_as(job.alone())
    assert entries(tmp_path) == []


def test_what_is_put_at_the_destination_meanwhile_is_not_replaced(job: SavedRun) -> None:
    job.shards([0], 2)
    save_pytree(job.path, {"a": np.arange(3)})
    for again in (lambda: job.shards([1], 2), job.commit):
        with pytest.raises(DestinationError, match="since the first shard began") as raised:
            again()
        assert raised.value.exit_code == 4
    assert job.keys() == ["a"]


@pytest.mark.parametrize("harm", ["lost", "short", "changed"])
@pytest.mark.parametrize("format", ["orbax", "safetensors", "zarr"])
def test_a_part_that_is_damaged_is_not_published(format: str, harm: str, planned: Planned) -> None:
    job = planned(f"out{SUFFIXES[format]}")
    job.shards(range(3), 3)
    written = job.result
    files = {
        "orbax": lambda: max(written.glob("ocdbt.process_1_*/d/*"), key=lambda file: file.stat().st_size),
        "safetensors": lambda: written / job.path.name,
        "zarr": lambda: sorted((written / "blocks/4/w").rglob("0"))[-1],
    }
    file = files[format]()
    size = file.stat().st_size
    if harm == "short":
        os.truncate(file, size // 2)
    elif harm == "changed":
        data = bytearray(file.read_bytes())
        data[size // 2] ^= 255
        file.write_bytes(data)
    elif format == "orbax":
        shutil.rmtree(file.parent.parent)
    else:
        file.unlink()
    # Workers of safetensors write into one file, so what they wrote is always read back.
    full = harm == "changed" and format != "safetensors"
    with pytest.raises(VerificationError) as raised:
        job.commit(verify="full" if full else "fast")
    assert raised.value.exit_code == 3
    assert not job.path.exists()
    assert job.parts.exists()


def test_a_shard_that_reads_back_something_else_is_not_done(
    job: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = OrbaxWriter.write

    def wrong(self: Any, output: Any, region: Any, block: np.ndarray) -> None:
        write(self, output, region, np.zeros_like(block) if "blocks/3" in output.leaf.key.text else block)

    with monkeypatch.context() as patch, pytest.raises(VerificationError, match="blocks/3/w") as raised:
        patch.setattr(OrbaxWriter, "write", wrong)
        job.shards(range(3), 3)
    assert raised.value.exit_code == 3
    job.shards(range(3), 3)
    job.commit()
    assert job.wrote_the_same_as(job.alone())


def test_parts_that_are_removed_while_a_shard_runs(job: SavedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    read_back = new_checkpoints.read_back

    def removed(*arguments: Any) -> None:
        read_back(*arguments)
        (job.parts / "head.json").unlink()

    monkeypatch.setattr(shard_jobs, "read_back", removed)
    with pytest.raises(StorageError, match="was removed"):
        job.shards([0], 2)


def test_a_damaged_note_of_a_shard_is_named(job: SavedRun) -> None:
    job.shards([0], 1)
    next(job.parts.glob("*-0.done.json")).write_text("{")
    with pytest.raises(SourceError, match=r"-0\.done\.json is damaged"):
        job.commit()


def test_hooks_are_asked_for_again(tmp_path: Path, planned: Planned) -> None:
    (tmp_path / "hooks.py").write_text("def twice(x):\n    return x * 2\n")
    text = "version: 1\nhooks: hooks.py\nrules:\n  - match: big\n    value: hooks.twice(x)\n"
    job = planned(recipe=write_recipe(tmp_path, text), allow_hooks=True)
    with pytest.raises(SurgeryError, match="has hooks"):
        job.shards([0], 2)
    job.shards(range(2), 2, allow_hooks=True)
    with pytest.raises(SurgeryError, match="has hooks"):
        job.commit()
    job.commit(allow_hooks=True)
    assert np.array_equal(restored(job.path)["big"], np.asarray(ARRAYS["big"]) * 2)


# --- object stores --------------------------------------------------------------------------------------


def test_shards_into_a_store(stored: SavedRun) -> None:
    alone = stored.alone()
    found = stored.shards([2, 0, 1, 0], 3)
    assert [one.already_done for one in found] == [False, False, False, True]
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply(stored.plan, dst=stored.dst)
    assert stored.commit() is not None
    views.forget()
    assert stored.wrote_the_same_as(alone)
    store, _ = store_of(stored.dst)
    names = list(store.walk())
    assert not [name for name in names if "ckpt-surgery/" in name or "ckpt-surgery-" in name]
    assert f"out/{COMMIT_FILE}" in names
    assert stored.commit() is None
    for options in ({}, {"overwrite": True}):
        with pytest.raises(DestinationError):
            stored.shards([1], 3, **options)
    assert list(store.walk()) == names


def test_objects_of_attempts_that_ended_are_deleted(
    stored: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.shards([0, 2], 3)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shard_jobs, "read_back", raising(KeyboardInterrupt))
        stored.shards([1], 3)
    stored.shards([1], 3)
    for attempts in (2, 1):
        found = {name.split("/")[1] for name in store_of(stored.dst)[0].walk("out/")}
        assert len([name for name in found if name.startswith("ocdbt.process_1_")]) == attempts
        stored.commit()


def test_a_lost_object_of_a_part_is_found(stored: SavedRun) -> None:
    stored.shards(range(3), 3)
    store, _ = store_of(stored.dst)
    store.delete([next(name for name in store.walk("out/") if "/d/" in name)])
    with pytest.raises((VerificationError, SourceError)):
        stored.commit()
    assert f"out/{COMMIT_FILE}" not in store.walk()
