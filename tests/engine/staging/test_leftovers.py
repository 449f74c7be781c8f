"""Temporary directories of other runs: what is resumed, what is removed, and what is left alone."""

import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, PlanError, StorageError
from ckpt_surgery.engine.staging import leftovers
from ckpt_surgery.engine.staging.locks import read_note
from tests.support.calls import record_calls
from tests.support.directories import names
from tests.support.ended_runs import IDENTITY, begin_work, ended_by, go_on, stopped
from tests.support.failing import refusing
from tests.support.generations import NEW, fill, found, lock_of, put, staged

# --- resuming -------------------------------------------------------------------------------------


def test_a_resumed_run_can_be_ended_and_resumed_again(tmp_path: Path) -> None:
    ended_by(stopped(), tmp_path / "out")
    for _ in range(2):
        with (
            pytest.raises(StorageError, match="is kept in"),
            staged(tmp_path / "out", identity=IDENTITY, resume=True) as staging,
        ):
            assert staging.resumed
            assert (staging.tree / "d" / "data").read_text() == NEW
            note = read_note(staging.directory / "run.json")
            assert (note.owner, note.identity) == (staging.lock.owner, IDENTITY)
            raise StorageError("no space")
        assert names(tmp_path) == [staging.directory.name]
    assert go_on(tmp_path / "out").resumed
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": "1.1"}, "version 1.0 wrote it, this is 1.1"),
        ({"plan": "x"}, "it was written with another recipe, other options or another budget of memory"),
        ({"sources": "x"}, "the sources have changed since it was written"),
        ({"more": "x"}, "its more is None, this run's is x"),
    ],
)
def test_a_run_that_did_something_else_is_not_resumed(
    tmp_path: Path, changes: Mapping[str, str], says: str
) -> None:
    kept = ended_by(stopped(), tmp_path / "out")
    with pytest.raises(PlanError) as caught:
        go_on(tmp_path / "out", {**IDENTITY, **changes})
    assert str(caught.value) == (
        f"{kept} cannot be resumed: {says}\n"
        "  Without `resume=True`, the run removes it and starts from the beginning."
    )
    assert names(tmp_path) == [kept.name]
    assert go_on(tmp_path / "out").resumed


@pytest.mark.parametrize("text", ["", "[]", '{"owner": 1, "identity": 2}', None])
def test_a_directory_that_does_not_say_what_it_is(tmp_path: Path, text: str | None) -> None:
    """As after a power cut."""
    kept = ended_by(stopped(), tmp_path / "out")
    described = kept / "run.json"
    if text is None:
        described.unlink()
    else:
        described.write_text(text)
    with pytest.raises(PlanError, match=r"its run.json cannot be read"):
        go_on(tmp_path / "out")
    (notice,) = put(tmp_path / "out", NEW)
    assert notice == f"removed {kept}, which an unfinished run left behind"
    assert names(tmp_path) == ["out"]


def test_of_two_the_newest_is_resumed_and_the_other_removed(tmp_path: Path) -> None:
    older = ended_by(stopped(), tmp_path / "out")
    older.rename(tmp_path / "elsewhere")
    newer = ended_by(stopped(), tmp_path / "out", tasks=5)
    (tmp_path / "elsewhere").rename(older)
    with staged(tmp_path / "out", identity=IDENTITY, resume=True) as staging:
        assert (staging.directory / "journal-0.jsonl").read_text().count("\n") == 5
        assert not newer.exists()
        assert staging.notices == (f"removed {older}, which an unfinished run left behind",)


def test_what_has_no_finished_task_is_not_resumed(tmp_path: Path) -> None:
    kept = ended_by(stopped(), tmp_path / "out")
    (kept / "journal-0.jsonl").write_text("")
    staging = go_on(tmp_path / "out", {"plan": "another"})
    assert not staging.resumed
    assert len(staging.notices) == 2
    assert names(tmp_path) == ["out"]


def test_a_directory_that_cannot_be_taken_over_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ended_by(stopped(), tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left"):
        patch.setattr(leftovers, "sync_file", refusing(errno.ENOSPC))  # of what says whose the directory is
        go_on(tmp_path / "out")
    assert not kept.exists()
    assert len(names(tmp_path)) == 1
    assert go_on(tmp_path / "out").resumed
    assert names(tmp_path) == ["out"]


# --- runs that live although their lock is gone ---------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_whose_lock_was_removed_loses_its_directory_to_the_next_one(
    tmp_path: Path, resume: bool
) -> None:
    """A person removed the lock, and started a second run: it alone publishes."""
    with (
        pytest.raises(DestinationError, match="has taken over this destination"),
        staged(tmp_path / "out") as first,
    ):
        begin_work(first, 2)
        lock_of(tmp_path / "out").unlink()
        with staged(tmp_path / "out", resume=resume) as second:
            assert second.resumed == resume
            assert not first.directory.exists()
            if not resume:
                assert second.notices == (f"removed {first.directory}, which an unfinished run left behind",)
                begin_work(second, 2)
            (second.tree / "_METADATA").write_text(NEW)
            with pytest.raises(DestinationError, match="was taken over or removed during this run"):
                first.publish()
            second.publish()
            first.lock.confirm()
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


def test_a_run_that_lost_its_directory_while_its_lock_was_free_does_not_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is confirmed by making it anew may have been another run's meanwhile."""
    with (
        pytest.raises(DestinationError, match="was taken over or removed"),
        staged(tmp_path / "out") as first,
    ):
        fill(first.tree, "first")

        def late() -> None:
            lock_of(tmp_path / "out").unlink()
            put(tmp_path / "out", "second")

        record_calls(monkeypatch, first.lock, "confirm", late)
        first.publish()
    assert found(tmp_path / "out") == "second"
    assert names(tmp_path) == ["out"]


def test_nobody_writes_into_a_directory_that_is_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails to write there says why."""
    with (
        pytest.raises(StorageError, match=r"No such file[\s\S]*was taken over or removed"),
        staged(tmp_path / "out") as first,
    ):
        lock_of(tmp_path / "out").unlink()
        removed = record_calls(monkeypatch, leftovers, "remove", lambda directory: directory)
        put(tmp_path / "out", NEW)
        assert removed[0].parent == tmp_path
        assert removed[0] != first.directory
        first.journal("0").add(b"{}\n")
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


# --- what is left ---------------------------------------------------------------------------------


def test_short_lived_files_are_removed_and_what_is_nobodys_is_left(tmp_path: Path) -> None:
    (tmp_path / ".out.ckpt-surgery-lock-0123abcd").write_text("")
    (tmp_path / ".out.ckpt-surgery-0123456789abcdef").write_text("a file, which no run makes")
    kept = [".out.ckpt-surgery-notes", ".out.ckpt-surgery-parts", f".out.ckpt-surgery-parts-{'0' * 16}"]
    for name in kept:
        (tmp_path / name).mkdir()
    assert put(tmp_path / "out", NEW) == ()
    assert names(tmp_path) == [".out.ckpt-surgery-0123456789abcdef", *kept, "out"]


def test_what_cannot_be_removed_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's directory, in one that all may write to."""
    kept = ended_by(stopped(), tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(leftovers, "claim", refusing(errno.EPERM))
        (notice,) = put(tmp_path / "out", NEW)
    assert notice == (
        f"could not remove {kept}, which an unfinished run left behind (Operation not permitted)"
    )
    assert found(tmp_path / "out") == NEW


def test_what_is_removed_in_part_is_never_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ended_by(stopped(), tmp_path / "out")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(leftovers, "remove_tree", refusing(errno.EIO))
        leftovers.remove(kept)
    assert names(kept) == ["result", "run.json"]
    assert not go_on(tmp_path / "out").resumed
