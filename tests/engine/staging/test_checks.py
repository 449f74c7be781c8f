"""What is refused before anything is written."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import DestinationError, StorageError, UsageError
from ckpt_surgery.engine.staging import checks
from tests.support.generations import replaced_at

Refused = tuple[type[Exception], str] | None


INSIDE = UsageError, "source"
AROUND = DestinationError, "is not replaced, for it holds the source"


@pytest.mark.parametrize(
    ("source", "destination", "refused"),
    [
        ("src", "src", INSIDE),
        ("src", "src/", INSIDE),  # a trailing slash
        ("src", "src/step/..", INSIDE),  # up again
        ("src", "link", INSIDE),  # the same directory by another name
        ("link", "src", INSIDE),
        ("src", "src/step/out", INSIDE),
        ("src", "link/step/out", INSIDE),
        ("src/step", "src", AROUND),
        ("link/step", "src", AROUND),
        ("src/step", "other/../link", AROUND),
        ("src", "src2", None),
        ("src", "src/../out", None),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_destinations_that_would_harm_the_source(
    source: str, destination: str, refused: Refused, overwrite: bool, tmp_path: Path
) -> None:
    (tmp_path / "src" / "step").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to("src")
    sources = [str(tmp_path / "other"), "s3://bucket/src", str(tmp_path / source)]
    with nullcontext() if refused is None else pytest.raises(refused[0], match=refused[1]):
        checks.check_path(sources, Path(os.path.join(tmp_path, destination)), overwrite)


@pytest.mark.parametrize(
    ("destination", "refused"),
    [("src", INSIDE), ("src/out", INSIDE), ("", AROUND), ("src2", None), ("srcs/x", None)],
)
def test_urls_that_would_harm_the_source(destination: str, refused: Refused) -> None:
    place = f"s3://bucket/run/{destination}".rstrip("/")
    with nullcontext() if refused is None else pytest.raises(refused[0], match=refused[1]):
        checks.check_apart(["/src", "s3://bucket/other", "s3://bucket/run/src"], place)


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
    (tmp_path / "here").symlink_to(tmp_path)
    for file, place in (
        (tmp_path / "part", tmp_path / "part"),
        (tmp_path / "link", tmp_path / "part"),
        (tmp_path / "gone", tmp_path / "here" / "gone"),  # which is missing
        ("s3://bucket/part", "s3://bucket/part"),
    ):
        with pytest.raises(UsageError, match=r"(part|gone): the destination is a file of a source"):
            checks.check_files(["nowhere", "s3://bucket/x", str(file)], place)
    checks.check_files([str(tmp_path / "part"), "s3://bucket/part"], tmp_path / "other")


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
    replaces = replaced_at(out, overwrite=True)
    checks.check_same(out, replaces)
    change(out)
    with pytest.raises(DestinationError, match="changed during this run"):
        checks.check_same(out, replaces)


def test_what_is_gone_or_was_never_there_needs_no_check(tmp_path: Path) -> None:
    out = holder(tmp_path / "out")
    replaces = replaced_at(out, overwrite=True)
    out.rename(tmp_path / "away")
    assert checks.state_of(out) is None
    checks.check_same(out, replaces)
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


def test_a_parent_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(StorageError, match="cannot be written"):
        checks.check_path([], tmp_path / "out", overwrite=False)
