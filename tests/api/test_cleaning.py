"""`clean`, after runs that were killed, and beside runs that live."""

import json
import os
import time
from pathlib import Path

import pytest

from ckpt_surgery.api.cleaning import State, clean
from ckpt_surgery.core.errors import DestinationError, UsageError
from ckpt_surgery.engine.staging.locks import FileLock
from ckpt_surgery.storage.record_files import beside
from tests.support.command_line import run
from tests.support.directories import names
from tests.support.ended_runs import Killed, killed
from tests.support.generations import NEW, OLD, fill, fill_file, found, staged


def leave(destination: Path, mode: str = "die") -> None:
    """Leave what a run leaves that was killed at its work."""
    with killed(), staged(destination) as staging:
        (staging.tree / "data").write_bytes(b"x" * 5000)
        (staging.directory / "journal-0.jsonl").write_text("{}\n")
        if mode == "aside":
            destination.rename(staging.directory / "old")
        raise Killed


def states(path: Path, remove: bool = False) -> list[tuple[str, State, bool]]:
    found = clean(path, remove=remove).remainders
    return sorted(
        (Path(one.path).name.partition(".ckpt-surgery-")[2][:4], one.state, one.removed) for one in found
    )


def test_a_killed_run_is_listed_and_then_removed(tmp_path: Path) -> None:
    leave(tmp_path / "new")
    before = names(tmp_path)
    listed = clean(tmp_path / "new")
    assert {one.state for one in listed.remainders} == {State.DEAD}
    directory = next(one for one in listed.remainders if Path(one.path).is_dir())
    assert 5000 < directory.bytes < 7000
    assert names(tmp_path) == before
    removed = clean(tmp_path / "new", remove=True)
    assert [one.removed for one in removed.remainders] == [True, True]
    assert os.listdir(tmp_path) == []
    assert clean(tmp_path / "new").remainders == ()


def test_the_command_lists_and_needs_yes_to_remove(tmp_path: Path) -> None:
    leave(tmp_path / "new")
    done = run("clean", tmp_path / "new", CKPT_SURGERY_YES="1")  # no variable stands in for --yes
    assert (done.exit_code, "--yes" in done.stdout) == (0, True)
    assert len(os.listdir(tmp_path)) == 2
    document = json.loads(run("clean", tmp_path / "new", "--yes", "--json").stdout)
    assert [(one["state"], one["removed"]) for one in document["remainders"]] == [("dead", True)] * 2
    assert os.listdir(tmp_path) == []
    assert "nothing" in run("clean", tmp_path / "new").stdout


def test_nothing_of_a_living_run_is_touched(tmp_path: Path) -> None:
    destination = tmp_path / "new"
    with staged(destination) as staging:
        leave(tmp_path / "other")
        before = names(tmp_path)
        assert {state for _, state, _ in states(destination, remove=True)} == {State.LIVE}
        assert names(tmp_path) == before
        assert {removed for *_, removed in states(tmp_path, remove=True)} == {True, False}
        assert any(name.startswith(".new") for name in names(tmp_path))
        assert not any(name.startswith(".other") for name in names(tmp_path))
        fill(staging.tree, NEW)
        staging.publish()
    assert found(destination) == NEW


def test_a_run_that_begins_meanwhile_keeps_all_as_living(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(tmp_path / "new")
    leave(tmp_path / "other")

    def begun(lock: FileLock) -> None:
        raise DestinationError(f"{lock.place}: another run is writing this destination")

    with monkeypatch.context() as patched:
        patched.setattr(FileLock, "acquire", begun)
        before = names(tmp_path)
        assert {state for _, state, _ in states(tmp_path / "new", remove=True)} == {State.LIVE}
        assert {state for _, state, _ in states(tmp_path, remove=True)} == {State.LIVE}
        assert names(tmp_path) == before
    clean(tmp_path, remove=True)
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_that_was_moved_aside_is_put_back_unless_its_place_is_taken(tmp_path: Path) -> None:
    destination = tmp_path / "new"
    destination.mkdir()
    (destination / "weights").write_text("precious")
    leave(destination, "aside")
    destination.mkdir()
    kept = next(one for one in clean(destination, remove=True).remainders if one.state is State.KEPT)
    assert not kept.removed
    assert (Path(kept.path) / "old" / "weights").read_text() == "precious"
    destination.rmdir()
    assert "put back" in run("clean", destination).stdout
    assert not destination.exists()
    clean(destination, remove=True)
    assert (destination / "weights").read_text() == "precious"
    assert os.listdir(tmp_path) == ["new"]


def test_an_old_record_goes_once_the_new_checkpoint_is_there(tmp_path: Path) -> None:
    destination = tmp_path / "new.npz"
    fill_file(destination, OLD)
    beside(destination).write_text("{}")
    with killed(), staged(destination, one_file=True, overwrite=True) as staging:
        fill_file(staging.output, NEW)
        staging.put_beside("{}")
        staging.publish()
        raise Killed
    assert any(tmp_path.glob(".new.npz.ckpt-surgery-*/old-record"))
    clean(destination, remove=True)
    assert (found(destination), names(tmp_path)) == (NEW, ["new.npz", beside(destination).name])
    leave(tmp_path / "other")
    (directory,) = tmp_path.glob(".other.ckpt-surgery-*/")
    (directory / "old-record").write_text("{}")
    assert State.KEPT in {state for _, state, _ in states(tmp_path / "other", remove=True)}
    assert (directory / "old-record").exists()


def test_a_record_that_was_being_written_goes(tmp_path: Path) -> None:
    leave(tmp_path / "new.npz")
    (directory,) = tmp_path.glob(".new.npz.ckpt-surgery-*/")
    (directory / f"{beside(tmp_path / 'new.npz').name}.tmp").write_text("{")
    clean(tmp_path / "new.npz", remove=True)
    assert names(tmp_path) == []


def test_what_no_run_made_stays(tmp_path: Path) -> None:
    ancient = time.time() - 1e6
    leave(tmp_path / "new")
    mine = next(path for path in tmp_path.iterdir() if path.is_dir())
    (mine / "notes.txt").write_text("mine")
    bare = tmp_path / ".new.ckpt-surgery-0123456789abcdef"
    bare.mkdir()
    (bare / "result").mkdir()
    file = tmp_path / ".new.ckpt-surgery-0000000000000000"
    file.write_text("a file")
    link = tmp_path / ".new.ckpt-surgery-1111111111111111"
    link.symlink_to(bare)
    text = tmp_path / ".new.ckpt-surgery-lock-00000000"
    text.write_text("not a lock")
    similar = tmp_path / ".newer.ckpt-surgery-lock-of-my-own"
    similar.write_text("mine")
    for path in (mine, bare, file, text, similar):
        os.utime(path, (ancient, ancient))
    before = set(names(tmp_path))
    clean(tmp_path / "new", remove=True)
    clean(tmp_path, remove=True)
    assert before - set(names(tmp_path)) <= {".new.ckpt-surgery-lock"}


def test_a_lock_that_is_not_a_runs_keeps_everything(tmp_path: Path) -> None:
    leave(tmp_path / "new")
    (tmp_path / ".new.ckpt-surgery-lock").write_text("locked by hand")
    before = names(tmp_path)
    os.utime(tmp_path / ".new.ckpt-surgery-lock", (1, 1))
    clean(tmp_path / "new", remove=True)
    assert names(tmp_path) == before


def test_parts_of_shards_stay(tmp_path: Path) -> None:
    (tmp_path / ".new.ckpt-surgery-parts" / "result").mkdir(parents=True)
    assert states(tmp_path / "new", remove=True) == [("part", State.KEPT, False)]
    assert (tmp_path / ".new.ckpt-surgery-parts").is_dir()


def test_what_another_machine_wrote_a_moment_ago_counts_as_living(tmp_path: Path) -> None:
    leave(tmp_path / "new")
    for file in (next(tmp_path.glob(".new.ckpt-surgery-*/run.json")), tmp_path / ".new.ckpt-surgery-lock"):
        document = json.loads(file.read_text())
        document["owner"]["boot"] = "another machine"
        file.write_text(json.dumps(document))
    before = names(tmp_path)
    assert {state for _, state, _ in states(tmp_path / "new", remove=True)} == {State.LIVE}
    assert names(tmp_path) == before


def test_a_directory_is_cleaned_for_each_destination_in_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for destination in ("run/10", "run/20", "run"):
        leave(tmp_path / destination)
    assert len(clean(tmp_path / "run", remove=True).dead) == 6
    assert os.listdir(tmp_path) == ["run"]
    assert os.listdir(tmp_path / "run") == []


def test_a_place_that_is_not_there_and_a_url(tmp_path: Path) -> None:
    assert clean(tmp_path / "no" / "where").remainders == ()
    with pytest.raises(UsageError):
        clean("s3://bucket/new")
