"""The rename that publishes, the record beside the destination, and faults right after the rename."""

import errno
import os
import signal
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, Interrupted, StorageError
from ckpt_surgery.engine.staging import leftovers, life, local, syncing
from ckpt_surgery.engine.staging.local import DiskStage
from ckpt_surgery.system.signals import interruptible
from tests.support.calls import record_calls
from tests.support.directories import names
from tests.support.ended_runs import IDENTITY, ended_by, stopped
from tests.support.failing import refusing
from tests.support.generations import NEW, OLD, fill, fill_file, found, lock_of, put, staged

# --- the record -----------------------------------------------------------------------------------

RECORD = "out.npz.ckpt_surgery.json"


def put_recorded(destination: Path, generation: str, overwrite: bool = False) -> DiskStage:
    """Publish one file with a record beside it."""
    with staged(destination, one_file=True, overwrite=overwrite) as staging:
        fill_file(staging.output, generation)
        (staging.directory / RECORD).write_text(f"the record of {generation}")
        staging.publish()
    return staging


def record_at(directory: Path) -> str | None:
    path = directory / RECORD
    return path.read_text() if path.exists() else None


@pytest.mark.parametrize("gone", [False, True])
def test_a_checkpoint_without_a_record_is_not_left_with_an_older_one(tmp_path: Path, gone: bool) -> None:
    put_recorded(tmp_path / "out.npz", OLD)
    if gone:
        (tmp_path / "out.npz").unlink()
    put(tmp_path / "out.npz", NEW, overwrite=not gone, one_file=True)
    assert names(tmp_path) == ["out.npz"]


def test_what_is_no_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / RECORD).mkdir()
    put(tmp_path / "out.npz", NEW, one_file=True)
    assert names(tmp_path) == ["out.npz", RECORD]


@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
def test_at_no_moment_is_a_checkpoint_beside_the_record_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stepwise: bool
) -> None:
    """Nor is any of it before all of it is durable."""
    put_recorded(tmp_path / "out.npz", OLD)
    seen: list[tuple[str | None, str | None]] = []
    synced = record_calls(monkeypatch, syncing, "_sync", lambda path, flags: path.name)
    one_step, plain = syncing._rename_in_one_step, os.rename

    def look() -> None:
        state = (found(tmp_path / "out.npz"), record_at(tmp_path))
        if not seen or seen[-1] != state:
            seen.append(state)

    def rename_in_one_step(source: Path, target: Path, exchange: bool = False) -> None:
        look()
        if stepwise:
            raise OSError(errno.EINVAL, "Invalid argument")
        one_step(source, target, exchange)
        look()

    def rename(source: Path, target: Path) -> None:
        look()
        if Path(target).name == RECORD:
            assert RECORD in synced
            assert synced[-2:] == [tmp_path.name, "result"]
        plain(source, target)
        look()

    monkeypatch.setattr(syncing, "_rename_in_one_step", rename_in_one_step)
    monkeypatch.setattr(os, "rename", rename)
    put_recorded(tmp_path / "out.npz", NEW, overwrite=True)
    absent: list[tuple[str | None, str | None]] = [(None, None)] if stepwise else []
    assert seen == [
        (OLD, "the record of old"),
        (OLD, None),
        *absent,
        (NEW, None),
        (NEW, "the record of new"),
    ]
    assert synced[-1] == tmp_path.name


def test_the_old_record_stays_where_the_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_recorded(tmp_path / "out.npz", OLD)
    with pytest.raises(DestinationError, match="another program created it"):
        put_recorded(tmp_path / "out.npz", NEW)
    assert (found(tmp_path / "out.npz"), record_at(tmp_path)) == (OLD, "the record of old")
    monkeypatch.setattr(local, "exchange", refusing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        put_recorded(tmp_path / "out.npz", NEW, overwrite=True)
    assert (found(tmp_path / "out.npz"), record_at(tmp_path)) == (OLD, "the record of old")
    assert names(tmp_path) == ["out.npz", RECORD]


def test_a_record_that_cannot_be_put_in_place_is_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = refusing(errno.EIO)
    record_calls(monkeypatch, os, "rename", lambda source, target: Path(target).name == RECORD and fail())
    staging = put_recorded(tmp_path / "out.npz", NEW)
    assert staging.notices == (
        f"{tmp_path / 'out.npz'} is new and complete; its record {tmp_path / RECORD} could not be written "
        "(Input/output error)",
    )
    assert names(tmp_path) == ["out.npz"]


# --- between the rename and the end ---------------------------------------------------------------


@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("one_file", [False, True], ids=["directory", "file"])
def test_what_was_published_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, one_file: bool, stepwise: bool
) -> None:
    """A run that dies right after the rename leaves its journal, and perhaps the old checkpoint."""
    if stepwise:
        monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    if before:
        put(tmp_path / "out", before, one_file=one_file)
    with monkeypatch.context() as patch, staged(tmp_path / "out", one_file, overwrite=True) as staging:
        (staging.directory / "journal-0.jsonl").write_text("x\n")
        (fill_file if one_file else fill)(staging.output, NEW)
        staging.publish()
        patch.setattr(life, "_end", lambda *_: None)
    lock_of(tmp_path / "out").unlink()
    with staged(tmp_path / "out", one_file, resume=True) as staging:
        assert not staging.resumed
        assert list(staging.tree.iterdir()) == []
        assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("one_file", [False, True], ids=["directory", "file"])
def test_a_signal_during_the_rename_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_file: bool
) -> None:
    def interrupt(source: Path, target: Path, *_: object) -> None:
        if target == tmp_path / "out":
            os.kill(os.getpid(), signal.SIGTERM)

    put(tmp_path / "out", OLD, one_file=one_file)
    record_calls(monkeypatch, syncing, "_rename_in_one_step", interrupt)
    with pytest.raises(Interrupted) as caught, interruptible():
        put(tmp_path / "out", NEW, overwrite=True, one_file=one_file)
    assert str(caught.value) == f"stopped by SIGTERM\n\n{tmp_path}/out is new and complete"
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("resume", [False, True])
def test_an_old_checkpoint_that_was_moved_aside_is_put_back(tmp_path: Path, resume: bool) -> None:
    put(tmp_path / "out", OLD)
    kept = ended_by(stopped(), tmp_path / "out")
    (tmp_path / "out").rename(kept / "old")
    with staged(tmp_path / "out", identity=IDENTITY, resume=resume) as staging:
        assert found(tmp_path / "out") == OLD
        assert staging.resumed == resume
        assert staging.notices[0] == (
            f"put {tmp_path / 'out'} back, which a run had moved aside before it ended"
        )
    assert found(tmp_path / "out") == OLD
    assert names(tmp_path) == ["out"]


def test_a_product_that_was_not_published_in_the_end_has_no_note(tmp_path: Path) -> None:
    """The number of its file may become another's, when it is made anew."""
    kept = ended_by(stopped(), tmp_path / "out")
    leftovers.announce(kept, os.lstat(kept / "result"))
    with staged(tmp_path / "out", identity=IDENTITY, resume=True) as staging:
        assert staging.resumed
        assert names(staging.directory) == ["journal-0.jsonl", "result", "run.json"]


# --- after publication ----------------------------------------------------------------------------


def test_what_cannot_be_removed_after_publication_is_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "out", OLD)
    with monkeypatch.context() as patch, staged(tmp_path / "out", overwrite=True) as staging:
        fill(staging.tree, NEW)
        staging.publish()
        patch.setattr(leftovers, "remove_tree", refusing(errno.EIO))
    assert staging.notices == (
        f"{tmp_path / 'out'} is new and complete; {staging.directory} is left (Input/output error); "
        "the next run removes it",
    )
    assert found(tmp_path / "out") == NEW
    assert put(tmp_path / "out", "next", overwrite=True) == (
        f"removed {staging.directory}, which an unfinished run left behind",
    )
    assert names(tmp_path) == ["out"]
