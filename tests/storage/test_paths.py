"""Whether two paths mean one place, through links, `..` and names that do not exist."""

import os
from pathlib import Path

import pytest

from ckpt_surgery.storage.paths import absolute, exists, lies_in, path_text, same_place


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "file").touch()
    os.link(tmp_path / "file", tmp_path / "hard")
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "link", True),
        ("a/b", "link/../a/b/", True),
        ("file", "hard", True),  # one file under two names
        ("gone", "a/../gone", True),  # neither exists
        ("link/gone", "a/gone", True),
        ("a", "a/b", False),
        ("gone", "gone2", False),
    ],
)
def test_the_same_place(one: str, other: str, same: bool, places: Path) -> None:
    assert same_place(Path(f"{places}/{one}"), Path(f"{places}/{other}")) is same


@pytest.mark.parametrize(
    ("inner", "outer", "inside"),
    [
        ("a/b", "a", True),
        ("a/b/c/d", "link", True),  # need not exist
        ("link/b", "a", True),
        ("a", "a", False),
        ("a", "a/b", False),
        ("ab", "a", False),
    ],
)
def test_lying_inside(inner: str, outer: str, inside: bool, places: Path) -> None:
    assert lies_in(places / inner, places / outer) is inside


def test_a_name_is_taken_by_a_link_that_leads_nowhere(places: Path) -> None:
    (places / "nowhere").symlink_to("gone")
    assert exists(places / "nowhere")
    assert not exists(places / "gone")
    assert not exists(places / "file" / "below")
    with pytest.raises(OSError, match="too long"):
        exists(places / ("x" * 300))


def test_only_the_parents_links_are_resolved(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(os.path.realpath(places))
    (places / "a" / "own").symlink_to("b")
    assert absolute(places / "link" / "own") == root / "a" / "own"
    monkeypatch.chdir(places / "a")
    assert absolute(Path("..")) == root
    assert absolute(Path("x")) == root / "a" / "x"


def test_paths_are_safe_to_print() -> None:
    assert path_text(Path("a\x1b[31m")) == "a\\x1b[31m"


def test_where_nobody_may_look_the_paths_tell(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", deny)
    assert same_place(places / "file", places / "a" / ".." / "file")
    assert not same_place(places / "file", places / "hard")
