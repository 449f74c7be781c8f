"""Saved plans that are carried out in shards: by this process, by several, and by some that are killed."""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.api import sharding
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
from ckpt_surgery.engine.local_parts import LocalParts
from ckpt_surgery.engine.staging import syncing
from ckpt_surgery.engine.tasks import Task
from ckpt_surgery.formats.shared.orbax_layout import COMMIT_FILE
from ckpt_surgery.runs import run as runs
from ckpt_surgery.runs import shards as shard_jobs
from ckpt_surgery.storage import views
from ckpt_surgery.storage.stores import store_of
from ckpt_surgery.verification import new_checkpoints
from tests.support.checkpoints import restored, save_pytree
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.recipes import write_recipe

SUFFIXES = {"orbax": "", "zarr": ".zarr", "safetensors": ".safetensors", "npz": ".npz", "flax": ".msgpack"}
ARRAYS = {
    "big": np.arange(64 * 512, dtype=np.float32).reshape(64, 512),
    **{f"layer_{i}": np.arange(i, i + 3000, dtype=np.float32).reshape(50, 60) for i in range(30)},
    "ids": np.arange(100),
    "scalar": np.float32(7.5),
}
RECIPE = """\
version: 1
rules:
  - match: layer_(\\d+)
    to: blocks/\\1/w
    value: cast(x * 2, "bfloat16")
  - match: big
    value: transpose(x)
"""
MEMORY = "1MiB"


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Path]:
    """Makes the plan of a destination: an Orbax checkpoint, some of it kept, some computed."""
    save_pytree(tmp_path / "in", ARRAYS)
    recipe = write_recipe(tmp_path, RECIPE)

    def made(dst: object, **options: Any) -> Path:
        file = tmp_path / "plan.json"
        ckpt_surgery.plan(recipe, tmp_path / "in", dst=str(dst), out=file, **{"memory": MEMORY} | options)
        return file

    return made


def shards(plan: Path, dst: object, numbers: Any, count: int, **options: Any) -> list[Any]:
    return [sharding.apply_shard(plan, dst=str(dst), shard=f"{n}/{count}", **options) for n in numbers]


def parts_of(dst: Path) -> Path:
    return dst.with_name(f".{dst.name}.ckpt-surgery-parts")


def entries(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if "ckpt-surgery" in name)


@pytest.mark.parametrize("format", SUFFIXES)
def test_every_format_is_what_one_machine_writes(
    format: str, tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst, alone = tmp_path / f"out{SUFFIXES[format]}", tmp_path / f"alone{SUFFIXES[format]}"
    file = plan(dst)
    ckpt_surgery.apply(file, dst=alone)
    numbers = random.Random(format).sample(range(5), 5)
    found = shards(file, dst, [*numbers, 3], 5)
    assert [len(one.missing) for one in found] == [4, 3, 2, 1, 0, 0]
    assert [one.already for one in found] == [False] * 5 + [True]
    assert not dst.exists()
    result = sharding.commit(dst)
    assert result is not None
    assert (result.destination, result.notices) == (str(dst), ())
    assert not ckpt_surgery.diff(alone, dst, values=True).different
    assert ckpt_surgery.verify(dst, mode="full").flaws == ()
    assert entries(tmp_path) == []
    if format == "orbax":
        assert_same(restored(dst), restored(alone))
    if format in ("npz", "flax"):
        assert dst.read_bytes() == alone.read_bytes()


def test_sources_that_are_mounted_at_other_paths(tmp_path: Path, plan: Callable[..., Path]) -> None:
    """The record in a safetensors header names them, and all shards write at the same offsets."""
    dst, elsewhere = tmp_path / "out.safetensors", tmp_path / ("mounted" * 20)
    file = plan(dst)
    ckpt_surgery.apply(file, dst=tmp_path / "alone.safetensors")
    shutil.copytree(tmp_path / "in", elsewhere)
    other = tmp_path / "other.json"
    other.write_text(file.read_text().replace(f'"{tmp_path}/in"', f'"{elsewhere}"'))
    shards(other, dst, [1], 3)
    shards(file, dst, [0, 2], 3)
    assert sharding.commit(dst) is not None
    assert not ckpt_surgery.diff(tmp_path / "alone.safetensors", dst, values=True).different


def test_most_shards_can_have_nothing_to_do(tmp_path: Path, plan: Callable[..., Path]) -> None:
    file, dst = plan(tmp_path / "out"), tmp_path / "out"
    found = shards(file, dst, range(60), 60)
    assert min(one.tasks for one in found) == 0
    sharding.commit(dst)
    assert not ckpt_surgery.diff(dst, ckpt_surgery.apply(file, dst=tmp_path / "a").destination).different


# --- processes that are killed --------------------------------------------------------------------------


def _process(file: Path, dst: str, count: int, numbers: list[int], killed_at: int | None) -> None:
    """Do shards one after another; end without a word at a task, if `killed_at` says at which."""
    done = itertools.count()
    do = worker._Worker.do

    def counted(self: Any, task: Task, known: Any) -> Any:
        if next(done) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return do(self, task, known)

    worker._Worker.do = counted  # type: ignore[method-assign]
    shards(file, dst, numbers, count)


def in_processes(file: Path, dst: object, killed: dict[int, int]) -> list[int | None]:
    """Eight shards on four processes, of which some are killed at a task. Returns their exit codes."""
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_process, args=(file, str(dst), 8, [2 * n, 2 * n + 1], killed.get(n)))
        for n in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["orbax", "safetensors"])
def test_eight_shards_on_four_processes_two_of_which_are_killed(
    format: str, tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst, alone = tmp_path / f"out{SUFFIXES[format]}", tmp_path / f"alone{SUFFIXES[format]}"
    file = plan(dst)
    ckpt_surgery.apply(file, dst=alone)
    numbers = random.Random()
    killed = dict.fromkeys(numbers.sample(range(4), 2), 0)
    killed = {process: numbers.randrange(3) for process in killed}
    codes = in_processes(file, dst, killed)
    assert [code for n, code in enumerate(codes) if n in killed] == [-signal.SIGKILL] * 2, killed
    assert [code for n, code in enumerate(codes) if n not in killed] == [0, 0], killed
    with pytest.raises(SourceError, match="not done") as raised:
        sharding.commit(dst)
    assert raised.value.exit_code == 1
    assert not dst.exists()
    missing = [n for n in range(8) if not (parts_of(dst) / f"{n}.done.json").exists()]
    assert all(f"{n}/8" in str(raised.value) for n in missing)
    assert {n // 2 for n in missing} == set(killed)
    shards(file, dst, missing, 8)
    sharding.commit(dst)
    assert not ckpt_surgery.diff(alone, dst, values=True).different
    assert ckpt_surgery.verify(dst, mode="full").flaws == ()
    assert entries(tmp_path) == []
    if format == "orbax":  # nothing of the killed attempts is left
        databases = [name for name in os.listdir(dst) if name.startswith("ocdbt.process_")]
        assert len(databases) <= 8


# --- what happens ---------------------------------------------------------------------------------------


def test_the_first_of_two_attempts_at_once_wins(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, dst = plan(tmp_path / "out"), tmp_path / "out"
    shards(file, dst, [1], 2)
    both = threading.Barrier(2)
    sync = new_checkpoints.read_back

    def waiting(*arguments: Any) -> int:
        both.wait()
        return sync(*arguments)

    monkeypatch.setattr(shard_jobs, "read_back", waiting)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(shards(file, dst, [0], 2))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.already for one in found) == [False, True]
    sharding.commit(dst)
    assert not ckpt_surgery.diff(ckpt_surgery.apply(file, dst=tmp_path / "a").destination, dst).different
    assert len([name for name in os.listdir(dst) if name.startswith("ocdbt.process_0_")]) == 1


def test_many_first_shards_at_once_begin_one_directory_of_parts(
    tmp_path: Path, plan: Callable[..., Path]
) -> None:
    file, dst = plan(tmp_path / "out"), tmp_path / "out"
    failures: list[BaseException] = []

    def one(number: int) -> None:
        try:
            shards(file, dst, [number], 6)
        except BaseException as error:  # noqa: BLE001 (told below)
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert entries(tmp_path) == [parts_of(dst).name]
    sharding.commit(dst)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_shard_syncs_what_it_wrote_and_nothing_of_others(
    format: str, tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of other shards come and go: TensorStore writes each under the name of a lock at first."""
    dst = tmp_path / f"out{SUFFIXES[format]}"
    file, result = plan(dst), parts_of(dst) / "result"
    synced: set[Path] = set()
    sync = syncing._sync
    monkeypatch.setattr(syncing, "_sync", lambda path, flags: (synced.add(path), sync(path, flags)))
    shards(file, dst, [0], 3)
    # What is there for all shards was synced under the name that the parts had while they were made.
    assert set(result.rglob("*")) <= {
        result / path.relative_to(top) for path in synced for top in path.parents if top.name == "result"
    }
    for number in (1, 2):
        synced.clear()
        before = _contents(result)
        shards(file, dst, [number], 3)
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


def test_other_plans_numbers_and_versions_are_refused(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, [0], 4)
    before = sorted(os.listdir(parts_of(dst)))
    with pytest.raises(UsageError, match="in 4 shards, not 3") as raised:
        shards(file, dst, [1], 3)
    assert raised.value.exit_code == 2
    other = tmp_path / "other.json"
    ckpt_surgery.plan(None, tmp_path / "in", dst=dst, out=other, link_mode="copy")
    with pytest.raises(UsageError, match="another recipe") as raised:
        shards(other, dst, [1], 4)
    assert str(parts_of(dst)) in str(raised.value)
    with pytest.raises(UsageError, match="another recipe") as raised:  # before a worker is asked for anything
        ckpt_surgery.apply(None, tmp_path / "in", dst=dst, engine="dask", workers=1)
    assert raised.value.exit_code == 2
    head = json.loads((parts_of(dst) / "head.json").read_text())
    head["identity"]["version"] = "0.0.1"
    (parts_of(dst) / "head.json").write_text(json.dumps(head))
    with pytest.raises(UsageError, match=r"version 0\.0\.1"):
        shards(file, dst, [1], 4)
    assert sorted(os.listdir(parts_of(dst))) == before


@pytest.mark.parametrize("text", ["3/3", "x", "1", "-1/3", "0/0", "1/2/3", "0/70000", ""])
def test_shards_are_numbered_from_0(text: str, tmp_path: Path, plan: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="not I/N"):
        sharding.apply_shard(plan(tmp_path / "out"), shard=text)
    assert entries(tmp_path) == []


def test_only_saved_plans_have_shards(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "version: 1\n")
    with pytest.raises(UsageError, match="is not a saved plan"):
        sharding.apply_shard(recipe, dst=tmp_path / "out", shard="0/2")


def test_a_source_that_changed_is_told_by_shards_and_by_commit(
    tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, range(2), 2)
    (tmp_path / "in" / "_METADATA").write_text((tmp_path / "in" / "_METADATA").read_text() + " ")
    for again in (lambda: shards(file, dst, [0], 2), lambda: sharding.commit(dst)):
        with pytest.raises(SourceError, match="changed since") as raised:
            again()
        assert raised.value.exit_code == 1
    assert not dst.exists()


def stopping(name: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have a function of `shard_jobs` stopped by a signal."""

    def stopped(*arguments: Any, **options: Any) -> Any:
        raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")

    monkeypatch.setattr(shard_jobs, name, stopped)
    return monkeypatch


def test_an_interrupted_shard_says_how_to_go_on(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed to the letter, the commands that are printed lead to the result."""
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, [1], 2)
    for command, function in (
        (["apply", file, dst, "--shard", "0/2"], "work"),
        (["commit", dst], "verify_and_publish"),
    ):
        done_before = len(list(parts_of(dst).glob("*.done.json")))
        with monkeypatch.context() as patch:
            stopping(function, patch)
            done = run(*command)
        assert done.exit_code == 128 + signal.SIGTERM
        assert f"{done_before} of 2 shards are done, and kept in {parts_of(dst)}" in done.stderr
        (hint,) = (line.strip() for line in done.stderr.splitlines() if "Go on from there" in line)
        words = shlex.split(hint.partition(": ")[2])
        assert words == ["ckpt-surgery", *map(str, command)]
        assert run(*words[1:]).exit_code == 0
    np.testing.assert_array_equal(restored(dst)["ids"], ARRAYS["ids"])


def test_an_interrupted_shard_of_a_store_says_so_in_python(
    bucket: str, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = f"{bucket}/out"
    file = plan(dst)
    with monkeypatch.context() as patch, pytest.raises(Interrupted) as raised:
        stopping("work", patch)
        shards(file, dst, [0], 2)
    assert raised.value.problems[-1].message.startswith("0 of 2 shards are done, and kept in ")
    assert raised.value.problems[-1].hint == "Run the same again: it goes on with what is not done."
    shards(file, dst, [0, 1], 2)
    assert sharding.commit(dst) is not None


def test_parts_that_are_gone_are_not_called_kept(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal after publication: nothing is left to go on with."""
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, range(2), 2)
    clear = LocalParts.clear

    def stopped(parts: LocalParts) -> None:
        clear(parts)
        raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")

    monkeypatch.setattr(LocalParts, "clear", stopped)
    with pytest.raises(Interrupted) as raised:
        sharding.commit(dst)
    assert "kept" not in str(raised.value)
    np.testing.assert_array_equal(restored(dst)["ids"], ARRAYS["ids"])


def test_a_shard_after_the_commit_touches_nothing(tmp_path: Path, plan: Callable[..., Path]) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, range(2), 2)
    sharding.commit(dst)
    before = {path: path.stat().st_mtime_ns for path in dst.rglob("*")}
    for options in ({}, {"overwrite": True}):
        with pytest.raises(DestinationError) as raised:
            shards(file, dst, [1], 2, **options)
        assert raised.value.exit_code == 4
    assert entries(tmp_path) == []
    assert {path: path.stat().st_mtime_ns for path in dst.rglob("*")} == before
    assert sharding.commit(dst) is None


def test_there_must_be_something_to_commit(tmp_path: Path) -> None:
    save_pytree(tmp_path / "other", {"a": np.arange(3)})
    for place in (tmp_path / "none", tmp_path / "other"):
        with pytest.raises(UsageError, match="no parts to put together"):
            sharding.commit(place)


def test_an_attempt_that_nobody_needs_writes_while_the_others_are_published(
    tmp_path: Path, plan: Callable[..., Path]
) -> None:
    """As that of a machine that was taken for dead."""
    dst = tmp_path / "out"
    shards(plan(dst), dst, range(2), 2)
    database, over = parts_of(dst) / "result/ocdbt.process_0_late/d", threading.Event()

    def writing() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            with contextlib.suppress(OSError):
                database.mkdir(parents=parts_of(dst).exists(), exist_ok=True)
                (database / "1.__lock").write_bytes(b"late")
                os.rename(database / "1.__lock", database / str(number % 7))

    late = threading.Thread(target=writing)
    late.start()
    try:
        assert sharding.commit(dst) is not None
    finally:
        over.set()
        late.join()
    assert ckpt_surgery.verify(dst, mode="full").flaws == ()
    assert not [name for name in os.listdir(dst) if "late" in name]


def test_parts_begin_where_a_late_attempt_left_a_directory(tmp_path: Path, plan: Callable[..., Path]) -> None:
    """TensorStore makes the directories above what it writes, also after the parts were removed."""
    dst = tmp_path / "out"
    file = plan(dst)
    late = parts_of(dst) / "result/ocdbt.process_0_late/d/1"
    for _ in range(2):
        late.parent.mkdir(parents=True)
        late.write_bytes(b"late")
        assert entries(tmp_path) == [parts_of(dst).name]
        shards(file, dst, range(2), 2)
        assert not late.exists()
        assert sharding.commit(dst) is not None
        assert entries(tmp_path) == []
        np.testing.assert_array_equal(restored(dst)["ids"], ARRAYS["ids"])
        shutil.rmtree(dst)


def test_two_commits_at_once(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    shards(plan(dst), dst, range(2), 2)
    complete = runs.verify_and_publish

    def again(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(shard_jobs, "verify_and_publish", complete)
        with pytest.raises(DestinationError, match="is writing this destination") as raised:
            sharding.commit(dst)
        assert raised.value.exit_code == 4
        return complete(*arguments, **options)

    monkeypatch.setattr(shard_jobs, "verify_and_publish", again)
    assert sharding.commit(dst) is not None


def test_a_commit_that_is_killed_after_the_rename_is_completed(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_pytree(tmp_path / "old", {"a": np.arange(3)})
    dst = tmp_path / "out"
    shutil.copytree(tmp_path / "old", dst)
    file = plan(dst, overwrite=True)
    shards(file, dst, range(2), 2, overwrite=True)
    assert [leaf.key.text for leaf in ckpt_surgery.inspect(dst).leaves] == ["a"]

    class Killed(BaseException):
        pass

    def killed(self: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalParts, "clear", killed)
        with pytest.raises(Killed):
            sharding.commit(dst)
    # The old checkpoint lies where the parts were; putting them together again would bring it back.
    assert sharding.commit(dst) is None
    assert not ckpt_surgery.diff(ckpt_surgery.apply(file, dst=tmp_path / "a").destination, dst).different
    assert entries(tmp_path) == []


def test_a_commit_that_fails_leaves_the_parts(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    shards(plan(dst), dst, range(2), 2)

    def failing(*arguments: object, **options: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(shard_jobs, "verify_and_publish", failing)
        with pytest.raises(StorageError, match="full"):
            sharding.commit(dst)
    assert entries(tmp_path) == [parts_of(dst).name]
    assert sharding.commit(dst) is not None


def test_what_is_put_at_the_destination_meanwhile_is_not_replaced(
    tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    shards(file, dst, [0], 2)
    save_pytree(dst, {"a": np.arange(3)})
    for again in (lambda: shards(file, dst, [1], 2), lambda: sharding.commit(dst)):
        with pytest.raises(DestinationError, match="since the first shard began") as raised:
            again()
        assert raised.value.exit_code == 4
    assert [leaf.key.text for leaf in ckpt_surgery.inspect(dst).leaves] == ["a"]


def test_an_old_checkpoint_that_changed_is_not_replaced(tmp_path: Path, plan: Callable[..., Path]) -> None:
    dst = tmp_path / "out"
    save_pytree(dst, {"a": np.arange(3)})
    file = plan(dst, overwrite=True)
    shards(file, dst, range(2), 2, overwrite=True)
    (dst / "note").write_text("mine")
    with pytest.raises(DestinationError, match="changed during this run"):
        sharding.commit(dst)
    assert (dst / "note").read_text() == "mine"


@pytest.mark.parametrize("harm", ["lost", "short"])
@pytest.mark.parametrize("format", ["orbax", "safetensors", "zarr"])
def test_a_part_that_is_lost_or_short_is_not_published(
    format: str, harm: str, tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst = tmp_path / f"out{SUFFIXES[format]}"
    shards(plan(dst), dst, range(3), 3)
    written = parts_of(dst) / "result"
    files = {
        "orbax": lambda: max(written.glob("ocdbt.process_1_*/d/*"), key=lambda file: file.stat().st_size),
        "safetensors": lambda: written / dst.name,
        "zarr": lambda: sorted((written / "blocks/4/w").rglob("0"))[-1],
    }
    file = files[format]()
    if harm == "short":
        os.truncate(file, file.stat().st_size // 2)
    elif format == "orbax":
        shutil.rmtree(file.parent.parent)
    else:
        file.unlink()
    with pytest.raises(VerificationError) as raised:
        sharding.commit(dst)
    assert raised.value.exit_code == 3
    assert not dst.exists()
    assert parts_of(dst).exists()


@pytest.mark.parametrize("format", ["orbax", "safetensors"])
def test_bytes_that_changed_are_found_by_a_full_verification(
    format: str, tmp_path: Path, plan: Callable[..., Path]
) -> None:
    dst = tmp_path / f"out{SUFFIXES[format]}"
    shards(plan(dst), dst, range(3), 3)
    written = parts_of(dst) / "result"
    files = written.glob("ocdbt.process_*/d/*") if format == "orbax" else [written / dst.name]
    file = max(files, key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    # Workers of safetensors write into one file, so what they wrote is always read back.
    with pytest.raises(VerificationError) as raised:
        sharding.commit(dst, verify="full" if format == "orbax" else "fast")
    assert raised.value.exit_code == 3
    assert not dst.exists()


def test_a_shard_that_reads_back_something_else_is_not_done(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ckpt_surgery.formats.orbax.writer import OrbaxWriter

    dst = tmp_path / "out"
    file = plan(dst)
    write = OrbaxWriter.write

    def wrong(self: Any, output: Any, region: Any, block: np.ndarray) -> None:
        write(self, output, region, np.zeros_like(block) if "blocks/3" in output.leaf.key.text else block)

    with monkeypatch.context() as patch:
        patch.setattr(OrbaxWriter, "write", wrong)
        with pytest.raises(VerificationError, match="blocks/3/w") as raised:
            for number in range(3):
                shards(file, dst, [number], 3)
    assert raised.value.exit_code == 3
    shards(file, dst, range(3), 3)
    sharding.commit(dst)
    assert not ckpt_surgery.diff(ckpt_surgery.apply(file, dst=tmp_path / "a").destination, dst).different


def test_parts_that_are_removed_while_a_shard_runs(
    tmp_path: Path, plan: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    read_back = new_checkpoints.read_back

    def removed(*arguments: Any) -> int:
        found = read_back(*arguments)
        (parts_of(dst) / "head.json").unlink()
        return found

    monkeypatch.setattr(shard_jobs, "read_back", removed)
    with pytest.raises(StorageError, match="was removed"):
        shards(file, dst, [0], 2)


def test_steps_are_published_one_by_one(tmp_path: Path, plan: Callable[..., Path]) -> None:
    dst = tmp_path / "run"
    ckpt_surgery.apply(None, tmp_path / "in", dst=dst, dst_step=1)
    file = plan(dst, dst_step=2)
    shards(file, dst, range(2), 2)
    assert sharding.commit(dst) is not None
    assert (ckpt_surgery.inspect(dst).step, sorted(os.listdir(dst))) == (2, ["1", "2"])
    assert not ckpt_surgery.diff(ckpt_surgery.apply(file, dst=tmp_path / "a").destination, dst).different


def test_hooks_are_asked_for_again(tmp_path: Path) -> None:
    save_pytree(tmp_path / "in", ARRAYS)
    (tmp_path / "hooks.py").write_text("def twice(x):\n    return x * 2\n")
    text = "version: 1\nhooks: hooks.py\nrules:\n  - match: big\n    value: hooks.twice(x)\n"
    recipe, dst = write_recipe(tmp_path, text), tmp_path / "out"
    ckpt_surgery.plan(recipe, tmp_path / "in", dst=dst, out=tmp_path / "plan.json", allow_hooks=True)
    with pytest.raises(SurgeryError, match="has hooks"):
        shards(tmp_path / "plan.json", dst, [0], 2)
    shards(tmp_path / "plan.json", dst, range(2), 2, allow_hooks=True)
    with pytest.raises(SurgeryError, match="has hooks"):
        sharding.commit(dst)
    sharding.commit(dst, allow_hooks=True)
    assert np.array_equal(restored(dst)["big"], np.asarray(ARRAYS["big"]) * 2)


# --- the command line -----------------------------------------------------------------------------------


def test_the_commands(tmp_path: Path, plan: Callable[..., Path]) -> None:
    dst = tmp_path / "out"
    file = plan(dst)
    first = run("apply", file, dst, "--shard", "0/2", "--json", tmp_path / "shard.json")
    assert first.exit_code == 0, first.output
    assert "not done yet: 1/2" in first.output
    document = json.loads((tmp_path / "shard.json").read_text())
    assert (document["shard"], document["shards"], document["missing_shards"]) == (0, 2, [1])
    early = run("commit", dst)
    assert early.exit_code == 1
    assert "1/2" in early.output
    second = run("apply", file, "--shard", "1/2")
    assert second.exit_code == 0, second.output
    assert f"ckpt-surgery commit {dst}" in second.output.replace("\n", "")
    done = run("commit", dst, "--json", tmp_path / "commit.json")
    assert done.exit_code == 0, done.output
    assert "verified" in done.output
    assert json.loads((tmp_path / "commit.json").read_text())["destination"] == str(dst)
    again = run("commit", dst, "--json", "-")
    assert again.exit_code == 0
    assert "committed already" in again.output
    for wrong in (("--dry-run",), ("--resume",)):
        assert run("apply", file, dst, "--shard", "0/2", *wrong).exit_code == 2


# --- object stores --------------------------------------------------------------------------------------


def test_shards_into_a_store(tmp_path: Path, plan: Callable[..., Path], bucket: str) -> None:
    dst = f"{bucket}/out"
    file = plan(dst)
    ckpt_surgery.apply(file, dst=tmp_path / "alone")
    found = shards(file, dst, [2, 0, 1, 0], 3)
    assert [one.already for one in found] == [False, False, False, True]
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply(file, dst=dst)
    assert sharding.commit(dst) is not None
    views.forget()
    assert not ckpt_surgery.diff(tmp_path / "alone", dst, values=True).different
    store, _ = store_of(dst)
    names = list(store.walk())
    assert not [name for name in names if "ckpt-surgery/" in name or "ckpt-surgery-" in name]
    assert f"out/{COMMIT_FILE}" in names
    assert sharding.commit(dst) is None
    with pytest.raises(DestinationError):
        shards(file, dst, [1], 3)
    with pytest.raises(DestinationError):
        shards(file, dst, [1], 3, overwrite=True)
    assert list(store.walk()) == names


def test_shards_replace_what_is_in_a_store(tmp_path: Path, plan: Callable[..., Path], bucket: str) -> None:
    dst = f"{bucket}/out"
    save_pytree(tmp_path / "old", {"a": np.arange(3)})
    ckpt_surgery.apply(None, tmp_path / "old", dst=dst)
    file = plan(dst, overwrite=True)
    shards(file, dst, range(3), 3, overwrite=True)
    assert [leaf.key.text for leaf in ckpt_surgery.inspect(dst).leaves] == ["a"]
    sharding.commit(dst)
    ckpt_surgery.apply(file, dst=tmp_path / "alone")
    assert not ckpt_surgery.diff(tmp_path / "alone", dst, values=True).different
    assert not [name for name in store_of(dst)[0].walk() if "ckpt-surgery/" in name or "-parts" in name]


def test_objects_of_attempts_that_ended_are_deleted(
    tmp_path: Path, plan: Callable[..., Path], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dst = f"{bucket}/out"
    file = plan(dst)
    shards(file, dst, [0, 2], 3)

    def ended(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shard_jobs, "read_back", ended)
        with pytest.raises(KeyboardInterrupt):
            shards(file, dst, [1], 3)
    shards(file, dst, [1], 3)
    store, _ = store_of(dst)
    attempts = {name.split("/")[1] for name in store.walk("out/")}
    assert len([name for name in attempts if name.startswith("ocdbt.process_1_")]) == 2
    sharding.commit(dst)
    attempts = {name.split("/")[1] for name in store.walk("out/")}
    assert len([name for name in attempts if name.startswith("ocdbt.process_1_")]) == 1


def test_a_lost_object_of_a_part_is_found(tmp_path: Path, plan: Callable[..., Path], bucket: str) -> None:
    dst = f"{bucket}/out"
    shards(plan(dst), dst, range(3), 3)
    store, _ = store_of(dst)
    store.delete([next(name for name in store.walk("out/") if "/d/" in name)])
    with pytest.raises((VerificationError, SourceError)):
        sharding.commit(dst)
    assert f"out/{COMMIT_FILE}" not in store.walk()


def test_a_damaged_note_of_a_shard_is_named(tmp_path: Path, plan: Callable[..., Path]) -> None:
    dst = tmp_path / "out"
    shards(plan(dst), dst, [0], 1)
    (parts_of(dst) / "0.done.json").write_text("{")
    with pytest.raises(SourceError, match=r"0\.done\.json is damaged"):
        sharding.commit(dst)
