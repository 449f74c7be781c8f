"""What a destination holds after success and after faults."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, StorageError, VerificationError
from ckpt_surgery.engine.staging import heartbeat, syncing
from tests.support.calls import record_calls
from tests.support.directories import names
from tests.support.failing import refusing
from tests.support.generations import NEW, OLD, fill, fill_file, found, put, staged

# --- success --------------------------------------------------------------------------------------


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    put(tmp_path / "out", NEW)
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and directories that are synced, and `rename to NAME`, in that order."""
    done = record_calls(monkeypatch, syncing, "_sync", lambda path, flags: path.name)

    def renaming_to(source: Path, target: Path) -> None:
        done.append(f"rename to {target.name}")

    record_calls(monkeypatch, syncing, "_rename_in_one_step", renaming_to)
    return done


@pytest.mark.parametrize(
    ("one_file", "of_tree"),
    [(False, ["data", "d", "_METADATA", "result"]), (True, ["out", "result"])],
    ids=["directory", "file"],
)
def test_all_is_synced_before_the_rename_and_both_directories_after(
    one_file: bool, of_tree: list[str], tmp_path: Path, synced: list[str]
) -> None:
    with staged(tmp_path / "out", one_file) as staging:
        (fill_file if one_file else fill)(staging.output, NEW)
        staging.publish()
    before = ["rename to .out.ckpt-surgery-lock", "run.json.new", *of_tree]
    after = [tmp_path.name, "result" if one_file else staging.directory.name]
    assert synced == [*before, "rename to out", *after]


@pytest.mark.parametrize("before", [False, True], ids=["directory before", "file before"])
@pytest.mark.parametrize("after", [False, True], ids=["directory after", "file after"])
@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
def test_overwrite_between_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, after: bool, stepwise: bool
) -> None:
    if stepwise:
        monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    put(tmp_path / "out", OLD, one_file=before)
    with pytest.raises(DestinationError, match="another program"):
        put(tmp_path / "out", NEW, one_file=after)
    assert found(tmp_path / "out") == OLD
    put(tmp_path / "out", NEW, overwrite=True, one_file=after)
    assert found(tmp_path / "out") == NEW
    assert (tmp_path / "out").is_file() == after
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (["out", "notes"], "out was to be written as one file; there is notes"),
        (["notes"], "there is notes"),
        ([], "there is something else"),
        (["out/"], "there is something else"),
    ],
)
def test_what_is_more_or_less_than_the_one_file_is_an_error(
    tmp_path: Path, written: list[str], says: str
) -> None:
    put(tmp_path / "out", OLD)
    with (
        pytest.raises(VerificationError, match=says),
        staged(tmp_path / "out", True, overwrite=True) as staging,
    ):
        for name in written:
            path = staging.tree / name
            path.mkdir() if name.endswith("/") else path.write_text("x")
        staging.publish()
    assert found(tmp_path / "out") == OLD
    assert names(tmp_path) == ["out"]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="shorter name"), staged(tmp_path / ("x" * 240)):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("refusal", [None, errno.ENOTSUP, errno.EIO])
def test_on_macos_the_disk_itself_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    """F_FULLFSYNC where it is supported, fsync(2) where it is not, and an error of the disk is one."""
    full: list[int] = []
    plain: list[int] = []

    def control(handle: int, request: int) -> int:
        assert request == 51
        full.append(handle)
        if refusal is not None:
            raise OSError(refusal, os.strerror(refusal))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", plain.append)
    if refusal == errno.EIO:
        with pytest.raises(StorageError, match="Input/output error"):
            put(tmp_path / "out", NEW)
        assert found(tmp_path / "out") is None
    else:
        put(tmp_path / "out", NEW)
        assert len(full) == 7
        assert plain == ([] if refusal is None else full)


# --- faults ---------------------------------------------------------------------------------------

CALLS = (
    *("open", "write", "mkdir", "fsync", "rename", "unlink", "rmdir", "scandir", "lstat", "close"),
    *("listdir", "link"),
)


@contextmanager
def faults(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> Iterator[list[str]]:
    """Let the n-th system call (from 0) fail where `fails(n)`. Gives the names of the calls made."""
    made: list[str] = []

    def faulty(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **keywords: object) -> object:
            made.append(name)
            failing = fails(len(made) - 1)
            if name == "close" and failing:
                real(*args, **keywords)  # close(2) frees the handle also when it fails
            if failing:
                raise OSError(errno.EIO, "Input/output error")
            return real(*args, **keywords)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, faulty(name, getattr(os, name)))
        one_step = faulty("rename in one step", syncing._rename_in_one_step)
        patch.setattr(syncing, "_rename_in_one_step", one_step)
        yield made


def one_run(destination: Path, one_file: bool) -> None:
    """What is under test; the files are written without going through the faulty calls."""
    with staged(destination, one_file, overwrite=True) as staging:
        faultless_fill(staging.output, one_file)
        staging.publish()


def faultless_fill(product: Path, one_file: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, REAL[name])
        (fill_file if one_file else fill)(product, NEW)


REAL = {name: getattr(os, name) for name in CALLS}


@pytest.mark.slow("lets each system call fail")
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("stepwise", [False, True], ids=["one step", "plain rename"])
@pytest.mark.parametrize("one_file", [False, True], ids=["directory", "file"])
def test_a_fault_at_every_system_call(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lasting: bool,
    before: str | None,
    stepwise: bool,
    one_file: bool,
) -> None:
    if stepwise:
        monkeypatch.setattr(syncing, "_rename_in_one_step", refusing(errno.EINVAL))
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a thousand waits for the disk take long
    monkeypatch.setattr(heartbeat, "has_ended", lambda owner: True)  # what is left is this very process's
    outcomes = set()
    for n in range(300):
        parent = tmp_path / str(n)
        parent.mkdir()
        destination = parent / "out"
        if before:
            put(destination, before, one_file=one_file)
        with faults(monkeypatch, (lambda i, n=n: i >= n) if lasting else (lambda i, n=n: i == n)) as made:
            outcome = attempt(destination, one_file)
        outcomes.add(outcome)
        check_promises(destination, before, outcome, stepwise)
        if len(made) <= n:
            break
    assert len(made) <= n, "more system calls than this test expects"
    assert outcomes == {"done", "failed"}


def attempt(destination: Path, one_file: bool) -> str:
    try:
        one_run(destination, one_file)
    except StorageError:
        return "failed"
    return "done"


def check_promises(destination: Path, before: str | None, outcome: str, stepwise: bool) -> None:
    now = found(destination)
    if outcome == "done":
        assert now == NEW
    else:
        assert now in ({before, NEW, None} if stepwise else {before, NEW})
    put(destination, "next", overwrite=True)
    assert found(destination) == "next"
    assert names(destination.parent) == ["out"]


@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize(("one_file", "which"), [(False, "parent"), (True, "parent"), (True, "staging")])
def test_what_is_not_durable_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, one_file: bool, which: str
) -> None:
    """Each directory that the rename changes is synced after it; where one fails, nothing has happened."""
    if before:
        put(tmp_path / "out", before, one_file=one_file)
    fail = refusing(errno.EIO)

    def target(source: Path, target: Path) -> str:
        return "the lock" if target.name.endswith("-lock") else target.name

    def sync(path: Path, flags: int) -> None:
        if set(renamed) - {"the lock"} and (path == tmp_path) == (which == "parent"):
            fail()

    renamed = record_calls(monkeypatch, syncing, "_rename_in_one_step", target)
    record_calls(monkeypatch, syncing, "_sync", sync)
    with pytest.raises(StorageError) as caught:
        put(tmp_path / "out", NEW, overwrite=True, one_file=one_file)
    assert len([name for name in renamed if name != "the lock"]) == 2
    assert "new and complete" not in str(caught.value)
    assert found(tmp_path / "out") == before
    assert names(tmp_path) == (["out"] if before else [])


def test_what_could_not_be_cleaned_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="the next run removes it"), staged(tmp_path / "out"):
        monkeypatch.setattr(os, "rmdir", refusing(errno.EIO))
        raise StorageError("no space")
    monkeypatch.undo()
    (left,) = names(tmp_path)
    assert left.startswith(".out.ckpt-surgery-")
    (notice,) = put(tmp_path / "out", NEW)
    assert left in notice
    assert names(tmp_path) == ["out"]
