"""Faults around the rename: what was published is complete, and is never taken for unfinished."""

import errno
import os
from pathlib import Path

import pytest

from ckpt_surgery.engine.staging import leftovers, life, renaming
from tests.support.directories import names
from tests.support.ended_runs import IDENTITY, ended_by, stopped
from tests.support.failing import refusing
from tests.support.generations import NEW, OLD, fill, fill_file, found, lock_of, put, staged

# --- between the rename and the end ---------------------------------------------------------------


@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("one_file", [False, True], ids=["directory", "file"])
def test_what_was_published_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, one_file: bool, stepwise: bool
) -> None:
    """A run that dies right after the rename leaves its journal, and perhaps the old checkpoint."""
    if stepwise:
        monkeypatch.setattr(renaming, "_rename_in_one_step", refusing(errno.EINVAL))
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
