"""What is refused before anything is written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import (
    DestinationError,
    StorageError,
    SurgeryError,
    UsageError,
)
from ckpt_surgery.engine.staging import checks


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
        checks.check_path(
            [str(tmp_path / source)], Path(os.path.join(tmp_path, destination)), overwrite=overwrite
        )


@pytest.mark.parametrize(
    ("source", "destination"), [("src/step", "src"), ("link/step", "src"), ("src/step", "other/../link")]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_destinations_around_a_source(tmp_path: Path, source: str, destination: str, overwrite: bool) -> None:
    (tmp_path / "src" / "step").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("src")
    with pytest.raises(DestinationError, match="is not replaced, for it holds the source"):
        checks.check_path(
            [str(tmp_path / source)], Path(os.path.join(tmp_path, destination)), overwrite=overwrite
        )


@pytest.mark.parametrize("inside", ["out/recipe.yaml", "link/recipe.yaml", "out"])
def test_destinations_around_other_files_that_are_read(tmp_path: Path, inside: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(DestinationError, match="which this run reads"):
        checks.check_path([], tmp_path / "out", True, [tmp_path / inside])
    checks.check_path([], tmp_path / "out", True, [tmp_path / "recipe.yaml"])


def test_the_files_that_a_source_names(tmp_path: Path) -> None:
    (tmp_path / "part").touch()
    (tmp_path / "link").symlink_to("part")
    for name in ("part", "link"):
        with pytest.raises(UsageError, match="part: the destination is a file of a source"):
            checks.check_files(["nowhere", str(tmp_path / name)], tmp_path / "part")
    checks.check_files([str(tmp_path / "part")], tmp_path / "other")


def test_a_file_of_a_source_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="gone: the destination is a file of a source"):
        checks.check_files([str(tmp_path / "gone")], tmp_path / "link" / "gone")


def test_neighbours_are_fine(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    checks.check_path([str(tmp_path / "src")], tmp_path / "src2", overwrite=False)
    checks.check_path([str(tmp_path / "src")], tmp_path / "src" / ".." / "out", overwrite=False)


def test_every_source_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="/b"):
        checks.check_path([str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "b" / "out", overwrite=False)


def test_an_existing_destination(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DestinationError, match="`overwrite=True`") as caught:
        checks.check_path([], tmp_path / "out", overwrite=False)
    assert caught.value.exit_code == 4
    checks.check_path([], tmp_path / "out", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_is_never_replaced(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "latest").symlink_to("gone")
    with pytest.raises(DestinationError, match="latest"):
        checks.check_path([], tmp_path / "latest", overwrite=overwrite)


def test_the_working_directory_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "work")
    with pytest.raises(DestinationError, match="it holds the working directory"):
        checks.check_path([], tmp_path / "home", overwrite=True)
    with pytest.raises(DestinationError, match="it holds the working directory"):
        checks.check_path([], Path("/"), overwrite=True)


# --- what is replaced -------------------------------------------------------------------------------------


def holder(path: Path) -> Path:
    """A directory with a file, a link and a directory in it."""
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_bytes(b"abc")
    (path / "link").symlink_to("inner")
    return path


def rewritten(path: Path) -> None:
    """Replace a file by another one with the same bytes and the same time."""
    before = path.stat()
    path.with_name("new").write_bytes(path.read_bytes())
    os.replace(path.with_name("new"), path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / "inner" / "file").write_bytes(b"abcd"),
        lambda path: os.utime(path / "inner" / "file", ns=(0, 5)),
        lambda path: (path / "inner" / "new").touch(),
        lambda path: (path / "new").mkdir(),
        lambda path: (path / "inner" / "file").rename(path / "file"),
        lambda path: (path / "link").unlink(),
        lambda path: rewritten(path / "inner" / "file"),
        lambda path: [path.rename(path.with_name("away")), holder(path)],
    ],
)
def test_what_changed_since_it_was_checked_is_not_replaced(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    out = holder(tmp_path / "out")
    state = checks.state_of(out)
    assert state is not None
    checks.check_same(out, state)
    change(out)
    with pytest.raises(DestinationError, match="changed during this run"):
        checks.check_same(out, state)


def test_what_is_gone_or_was_never_there_needs_no_check(tmp_path: Path) -> None:
    out = holder(tmp_path / "out")
    state = checks.state_of(out)
    out.rename(tmp_path / "away")
    assert checks.state_of(out) is None
    checks.check_same(out, state)
    checks.check_same(tmp_path / "away", None)  # publication refuses what appeared meanwhile


def test_the_state_of_what_a_killed_run_moved_aside(tmp_path: Path) -> None:
    """The next run puts it back, and must then find it in the state in which it was checked."""
    out = holder(tmp_path / "out")
    state = checks.state_of(out)
    aside = tmp_path / ".out.ckpt-surgery-0123456789abcdef" / "old"
    aside.parent.mkdir()
    out.rename(aside)
    assert checks.replaced_by(out) == aside
    assert checks.state_of(out) == state
    with pytest.raises(DestinationError, match="exists already"):
        checks.check_path([], out, overwrite=False)
    checks.check_path([], out, overwrite=True)


# --- the place --------------------------------------------------------------------------------------------


def test_a_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory") as caught:
        checks.check_path([], tmp_path / "no" / "out", overwrite=False)
    assert caught.value.exit_code == 2


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(StorageError, match="cannot be written"):
        checks.check_path([], tmp_path / "out", overwrite=False)


def test_space(tmp_path: Path) -> None:
    checks.check_space(tmp_path / "out", 1)
    with pytest.raises(StorageError, match=r"1048576 TiB are to be written, [0-9.]+ [KMGT]?i?B are free"):
        checks.check_space(tmp_path / "out", 2**60)


def test_names_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m").mkdir()
    with pytest.raises(DestinationError) as caught:
        checks.check_path([], tmp_path / "a\x1b[31m", overwrite=False)
    assert r"a\x1b[31m" in str(caught.value)


def test_errors_carry_the_exit_code_of_their_kind() -> None:
    kinds: list[type[SurgeryError]] = [UsageError, DestinationError, StorageError]
    assert [kind.exit_code for kind in kinds] == [2, 4, 5]
