"""Publication: what a destination holds after success, faults, kills, signals and competing runs."""

import errno
import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.errors import (
    DestinationError,
    Interrupted,
    StorageError,
    SurgeryError,
    UsageError,
    VerificationError,
)
from ckpt_surgery.engine import signals
from ckpt_surgery.engine.staging import checks, local, renaming
from ckpt_surgery.storage import failures
from tests.support.generations import NEW, OLD, fill, fill_file, found, lock_of, names, put, write_lock

# --- success --------------------------------------------------------------------------------------


def test_publishes_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    assert put(tmp_path / "out", NEW) == ()
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


def test_nothing_is_visible_before_publication(tmp_path: Path) -> None:
    with local.staged(tmp_path / "out") as staging:
        fill(staging.directory, NEW)
        assert found(tmp_path / "out") is None
        assert staging.directory.parent == tmp_path
        assert staging.directory.name.startswith(".out.ckpt-surgery-")


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    put(tmp_path / "out", NEW)
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_overwrite_replaces_the_old_one(tmp_path: Path) -> None:
    put(tmp_path / "out", OLD)
    put(tmp_path / "out", NEW, overwrite=True)
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


def test_overwrite_of_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a checkpoint in one file")
    put(tmp_path / "out", NEW, overwrite=True)
    assert found(tmp_path / "out") == NEW
    assert names(tmp_path) == ["out"]


def test_overwrite_with_nothing_there(tmp_path: Path) -> None:
    put(tmp_path / "out", NEW, overwrite=True)
    assert found(tmp_path / "out") == NEW


def test_a_destination_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="came into being"), local.staged(tmp_path / "out") as staging:
        fill(staging.directory, NEW)
        (tmp_path / "out").mkdir()
        fill(tmp_path / "out", OLD)
        local.publish(staging, overwrite=False)
    assert found(tmp_path / "out") == OLD
    assert names(tmp_path) == ["out"]


def test_every_file_and_directory_is_synced_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, renaming._renameat2

    def recording_fsync(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def recording_rename(source: Path, target: Path, flags: int) -> None:
        done.append("rename")
        rename(source, target, flags)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(renaming, "_renameat2", recording_rename)
    with local.staged(tmp_path / "out") as staging:
        fill(staging.directory, NEW)
        local.publish(staging, overwrite=False)
    assert done == ["data", "d", "_METADATA", staging.directory.name, "rename", tmp_path.name]


def test_a_file_is_published_alone(tmp_path: Path) -> None:
    with local.staged(tmp_path / "out.bin", one_file=True) as staging:
        assert staging.product == staging.directory / "out.bin"
        fill_file(staging.product, NEW)
        assert names(tmp_path)[0].startswith(".out.bin.ckpt-surgery-")
        assert found(tmp_path / "out.bin") is None
        local.publish(staging, overwrite=False)
    assert found(tmp_path / "out.bin") == NEW
    assert (tmp_path / "out.bin").is_file()
    assert names(tmp_path) == ["out.bin"]


@pytest.mark.parametrize("before", [False, True], ids=["directory before", "file before"])
@pytest.mark.parametrize("after", [False, True], ids=["directory after", "file after"])
@pytest.mark.parametrize("stepwise", [False, True], ids=["renameat2", "plain rename"])
def test_overwrite_between_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool, after: bool, stepwise: bool
) -> None:
    if stepwise:
        monkeypatch.setattr(renaming, "_renameat2", unsupported)
    put(tmp_path / "out", OLD, one_file=before)
    with pytest.raises(DestinationError, match="came into being"):
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
    with pytest.raises(VerificationError, match=says), local.staged(tmp_path / "out", True) as staging:
        for name in written:
            path = staging.directory / name
            path.mkdir() if name.endswith("/") else path.write_text("x")
        local.publish(staging, overwrite=True)
    assert found(tmp_path / "out") == OLD
    assert names(tmp_path) == ["out"]


def test_a_file_is_synced_before_the_rename_and_both_directories_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, rename = os.fsync, renaming._renameat2

    def recording_fsync(handle: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def recording_rename(source: Path, target: Path, flags: int) -> None:
        done.append("rename")
        rename(source, target, flags)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(renaming, "_renameat2", recording_rename)
    with local.staged(tmp_path / "out.bin", one_file=True) as staging:
        fill_file(staging.product, NEW)
        local.publish(staging, overwrite=False)
    staged = staging.directory.name
    assert done == ["out.bin", staged, "rename", tmp_path.name, staged]


def test_a_failure_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), local.staged(tmp_path / "out") as staging:
        fill(staging.directory, NEW)
        _ = 1 // 0
    assert names(tmp_path) == []


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("src", "src"),
        ("src", "src/"),  # a trailing slash
        ("src", "src/step/.."),  # up again
        ("src", "link"),  # the same directory by another name
        ("link", "src"),
        ("src", "src/step/out"),  # inside the source
        ("src", "link/step/out"),
        ("src/step", "src"),  # around the source
        ("link/step", "src"),
        ("src/step", "other/../link"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_destinations_that_would_harm_the_source(
    tmp_path: Path, source: str, destination: str, overwrite: bool
) -> None:
    (tmp_path / "src" / "step").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("src")
    with pytest.raises(UsageError, match="source"):
        checks.check_paths(
            [tmp_path / source], Path(os.path.join(tmp_path, destination)), overwrite=overwrite
        )


@pytest.mark.parametrize("name", ["model.index", "model.meta", "model.data-00000-of-00002"])
def test_the_files_of_a_source_that_is_a_prefix(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.index").touch()
    with pytest.raises(UsageError, match=f"{name}: the destination is a file of the source"):
        checks.check_paths([tmp_path / "model"], tmp_path / name, overwrite=True)
    checks.check_paths([tmp_path / "model"], tmp_path / "model.safetensors", overwrite=True)
    checks.check_paths([tmp_path / "model"], tmp_path / "model2.index", overwrite=True)


def test_the_files_that_a_source_names(tmp_path: Path) -> None:
    (tmp_path / "part").touch()
    (tmp_path / "link").symlink_to("part")
    for name in ("part", "link"):
        with pytest.raises(UsageError, match="part: the destination is a file of a source"):
            checks.check_files(["nowhere", str(tmp_path / name)], tmp_path / "part")
    checks.check_files([str(tmp_path / "part")], tmp_path / "other")


def test_neighbours_are_fine(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    checks.check_paths([tmp_path / "src"], tmp_path / "src2", overwrite=False)
    checks.check_paths([tmp_path / "src"], tmp_path / "src" / ".." / "out", overwrite=False)


def test_every_source_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="/b"):
        checks.check_paths([tmp_path / "a", tmp_path / "b"], tmp_path / "b" / "out", overwrite=False)


def test_an_existing_destination(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DestinationError, match="`overwrite=True`") as caught:
        checks.check_paths([], tmp_path / "out", overwrite=False)
    assert caught.value.exit_code == 4
    checks.check_paths([], tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "latest").symlink_to("gone")
    with pytest.raises(DestinationError, match="latest"):
        checks.check_paths([], tmp_path / "latest", overwrite=overwrite)


def test_the_working_directory_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "work")
    with pytest.raises(UsageError, match="working directory"):
        checks.check_paths([], tmp_path / "home", overwrite=True)
    with pytest.raises(UsageError, match="working directory"):
        checks.check_paths([], Path("/"), overwrite=True)


def test_a_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory") as caught:
        checks.check_paths([], tmp_path / "no" / "out", overwrite=False)
    assert caught.value.exit_code == 2


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(StorageError, match="cannot be written"):
        checks.check_paths([], tmp_path / "out", overwrite=False)


def test_documents_are_written_over_nothing_that_a_command_names(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "recipe.yaml").touch()
    others = [tmp_path / name for name in ("src", "recipe.yaml", "new.npz")]
    for name in ("recipe.yaml", "src/x.json", "link/x.json", "src/../new.npz", "src"):
        with pytest.raises(UsageError, match="a document cannot be written over or into"):
            checks.check_document(tmp_path / name, others)
    checks.check_document(tmp_path / "src.json", others)
    with pytest.raises(UsageError, match="no such directory"):
        checks.check_document(tmp_path / "gone" / "x.json", others)


def test_space(tmp_path: Path) -> None:
    checks.check_space(tmp_path / "out", 1)
    with pytest.raises(StorageError, match=r"1048576 TiB are to be written, [0-9.]+ [KMGT]?i?B are free"):
        checks.check_space(tmp_path / "out", 2**60)


def test_storage_errors_name_the_path_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught, failures.storage_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "d" / "0"))
    assert str(caught.value) == (
        f"{tmp_path}/d/0: No space left on device\n"
        "  Free some space, or choose a destination on another file system."
    )


def test_names_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m").mkdir()
    with pytest.raises(DestinationError) as caught:
        checks.check_paths([], tmp_path / "a\x1b[31m", overwrite=False)
    assert r"a\x1b[31m" in str(caught.value)


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="shorter name"), local.staged(tmp_path / ("x" * 240)):
        pass
    assert names(tmp_path) == []


# --- faults ---------------------------------------------------------------------------------------

CALLS = (
    *("open", "write", "mkdir", "fsync", "rename", "unlink", "rmdir", "scandir", "lstat", "close"),
    "listdir",
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
        patch.setattr(renaming, "_renameat2", faulty("renameat2", renaming._renameat2))
        yield made


def one_run(destination: Path, one_file: bool) -> None:
    """What is under test; the files are written without going through the faulty calls."""
    with local.staged(destination, one_file) as staging:
        faultless_fill(staging.product, one_file)
        local.publish(staging, overwrite=True)


def faultless_fill(product: Path, one_file: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, REAL[name])
        (fill_file if one_file else fill)(product, NEW)


REAL = {name: getattr(os, name) for name in CALLS}


def abandon(destination: Path) -> None:
    """Make a lock that was left look like a dead run's (in these tests it is this very process's)."""
    if lock_of(destination).exists() and lock_of(destination).stat().st_size:
        write_lock(destination, started="1")


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("stepwise", [False, True], ids=["renameat2", "plain rename"])
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
        monkeypatch.setattr(renaming, "_renameat2", unsupported)
    outcomes = set()
    for n in range(200):
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


def unsupported(source: Path, target: Path, flags: int) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


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
        assert names(destination.parent) == ["out"]
    else:
        assert now in ({before, NEW, None} if stepwise else {before, NEW})
    abandon(destination)
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
    fsync, rename, renamed = os.fsync, renaming._renameat2, []

    def recording_rename(*arguments: Any) -> None:
        renamed.append(arguments)
        rename(*arguments)

    def failing_fsync(handle: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if renamed and (synced == tmp_path) == (which == "parent"):
            raise OSError(errno.EIO, "Input/output error")
        fsync(handle)

    monkeypatch.setattr(renaming, "_renameat2", recording_rename)
    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(StorageError) as caught:
        put(tmp_path / "out", NEW, overwrite=True, one_file=one_file)
    assert len(renamed) == 2
    assert "new and complete" not in str(caught.value)
    assert found(tmp_path / "out") == before
    assert names(tmp_path) == (["out"] if before else [])


def test_a_checkpoint_that_was_moved_aside_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "out", OLD)
    (tmp_path / "out").rename(tmp_path / ".out.ckpt-surgery-old")
    write_lock(tmp_path / "out", started="1")
    with local.staged(tmp_path / "out") as staging:
        assert found(tmp_path / "out") == OLD
    assert "put" in staging.notices[1]
    assert found(tmp_path / "out") == OLD


def test_plain_rename_refuses_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renaming, "_renameat2", unsupported)
    (tmp_path / "out").mkdir()
    with pytest.raises(DestinationError, match="came into being"):
        put(tmp_path / "out", NEW)
    put(tmp_path / "out", NEW, overwrite=True)
    assert found(tmp_path / "out") == NEW


def test_what_could_not_be_cleaned_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object, **keywords: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageError, match="the next run removes them"), local.staged(tmp_path / "out"):
        monkeypatch.setattr(os, "rmdir", refused)
        raise StorageError("no space")
    monkeypatch.undo()
    assert lock_of(tmp_path / "out").name in names(tmp_path)


# --- other processes: kills, signals, races -------------------------------------------------------

CHILD = textwrap.dedent(
    """
    import os, select, signal, sys
    from pathlib import Path
    import ckpt_surgery
    from ckpt_surgery.engine import signals
    from ckpt_surgery.engine.staging import local, renaming
    from ckpt_surgery.core.errors import Interrupted, SurgeryError

    # Tests that run in the background of a shell inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    destination, mode, generation = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    one_file = destination.suffix == ".bin"

    def run():
        with signals.interruptible(), local.staged(destination, one_file) as staging:
            if one_file:
                staging.product.write_text((generation + "\\n") * 3)
            else:
                (staging.directory / "d").mkdir()
                (staging.directory / "d" / "data").write_text(generation)
                (staging.directory / "_METADATA").write_text(generation)
            if mode == "wait":
                print("staged", flush=True)
                sys.stdin.readline()
            if mode == "stay":
                print("staged", flush=True)
                while not select.select([sys.stdin], [], [], 0.01)[0]:
                    pass
            local.publish(staging, overwrite=mode in ("lines", "die", "late"))
        for notice in staging.notices:
            print(notice)

    def dying(real, left=[int(sys.argv[4]) if mode == "die" else 0]):
        def call(*args, **keywords):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*args, **keywords)
        return call

    if mode == "die":
        for name in ("open", "write", "mkdir", "fsync", "unlink", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))
        renaming._renameat2 = dying(renaming._renameat2)
    def counted(frame, event, argument, left=[int(sys.argv[4]) if mode == "lines" else 0]):
        if package not in Path(frame.f_code.co_filename).parents:
            return None
        if event == "line":
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return counted

    package = Path(ckpt_surgery.__file__).parent
    if mode == "late":
        rename = renaming._renameat2
        def late(*args):
            os.kill(os.getpid(), signal.SIGTERM)
            rename(*args)
        renaming._renameat2 = late
    if mode == "limited":
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        run()
        if mode == "lines":
            sys.settrace(counted)
            run()
    except Interrupted as error:
        print(error, file=sys.stderr)
        sys.exit(128 + error.signal_number)
    except SurgeryError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    """
)


@pytest.fixture
def child(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    script = tmp_path_factory.mktemp("child") / "child.py"
    script.write_text(CHILD)

    def start(destination: Path, mode: str, generation: str = NEW, *more: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        return subprocess.Popen(
            [sys.executable, str(script), str(destination), mode, generation, *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    return start


Child = Callable[..., "subprocess.Popen[str]"]


def finish(process: "subprocess.Popen[str]", text: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(text)
    return process.returncode, out, err


@pytest.mark.parametrize("name", ["out", "out.bin"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_nothing(
    tmp_path: Path, child: Child, number: signal.Signals, code: int, name: str
) -> None:
    process = child(tmp_path / name, "stay")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    returned, _, err = finish(process)
    assert returned == code
    before = f"{tmp_path}/{name} is as it was before"
    assert err == f"stopped by {number.name}\n\nnothing was published: {before}\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_a_signal_during_the_rename_comes_after_it(tmp_path: Path, child: Child, name: str) -> None:
    put(tmp_path / name, OLD)
    returned, _, err = finish(child(tmp_path / name, "late"))
    assert returned == 143
    assert err == f"stopped by SIGTERM\n\n{tmp_path}/{name} itself is new and complete\n"
    assert found(tmp_path / name) == NEW
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("failure", [Interrupted(signal.SIGINT, "stopped"), StorageError("full")])
def test_a_signal_while_a_failure_is_cleaned_up_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    real = local._remove

    def remove(path: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        real(path)

    monkeypatch.setattr(local, "_remove", remove)
    with pytest.raises(type(failure)) as caught, signals.interruptible(), local.staged(tmp_path / "out"):
        raise failure
    assert caught.value is failure
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    """As `nohup` and shells ignore them for what runs in the background."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with signals.interruptible():
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught, signals.interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_of_two_runs_the_first_wins(tmp_path: Path, child: Child) -> None:
    first = child(tmp_path / "out", "wait", "first")
    assert first.stdout is not None
    first.stdout.readline()
    code, _, err = finish(child(tmp_path / "out", "plain", "second"))
    assert code == 4
    assert f"process {first.pid}" in err
    assert finish(first, "go\n")[0] == 0
    assert found(tmp_path / "out") == "first"
    assert names(tmp_path) == ["out"]


def test_many_runs_at_a_dead_lock(tmp_path: Path, child: Child) -> None:
    write_lock(tmp_path / "out", boot="another")
    runs = [child(tmp_path / "out", "plain", str(i)) for i in range(4)]
    codes = [finish(run)[0] for run in runs]
    assert sorted(codes) == [0, 4, 4, 4]
    assert found(tmp_path / "out") == str(codes.index(0))
    assert names(tmp_path) == ["out"]


def test_a_full_disk_from_the_first_byte_on(tmp_path: Path, child: Child) -> None:
    code, _, err = finish(child(tmp_path / "out", "limited"))
    assert code == 5
    assert err.startswith(f"{tmp_path}/.out.ckpt-surgery-lock: File too large")
    assert names(tmp_path) == []


@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("call", [0, 1, 2, 5, 8, 10, 11, 12, 13, 15])
@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_killed_at_a_system_call(
    tmp_path: Path, child: Child, before: str | None, call: int, name: str
) -> None:
    if before:
        put(tmp_path / name, before, one_file=name == "out.bin")
    code, _, _ = finish(child(tmp_path / name, "die", NEW, str(call)))
    assert code in (0, -signal.SIGKILL)
    after_a_kill(tmp_path / name, {before, NEW})


@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_killed_at_random_lines(tmp_path: Path, child: Child, name: str) -> None:
    kill_at_random_lines(tmp_path / name, child, times=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_killed_at_many_random_lines(tmp_path: Path, child: Child, seed: int) -> None:
    kill_at_random_lines(tmp_path / ("out.bin" if seed % 2 else "out"), child, times=10, seed=seed)


LINES = 200
"""Lines of the package that a run takes, about."""


def kill_at_random_lines(destination: Path, child: Child, times: int, seed: int) -> None:
    """Each time a run that overwrites what the same process has published."""
    chance = random.Random(seed)
    for i in range(times):
        process = child(destination, "lines", str(i), str(chance.randrange(LINES)))
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        after_a_kill(destination, {str(i), "next"})


def after_a_kill(destination: Path, allowed: set[str | None]) -> None:
    assert found(destination) in allowed
    assert len(names(destination.parent)) <= 3  # the destination, a lock, a temporary directory
    put(destination, "next", overwrite=True, one_file=destination.suffix == ".bin")
    assert found(destination) == "next"
    assert names(destination.parent) == [destination.name]


def test_errors_carry_the_exit_code_of_their_kind() -> None:
    kinds: list[type[SurgeryError]] = [UsageError, DestinationError, StorageError]
    assert [kind.exit_code for kind in kinds] == [2, 4, 5]
