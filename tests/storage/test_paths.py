"""Whether two paths mean one place, through links, `..` and names that do not exist."""

import errno
import os
from pathlib import Path

import pytest

from ckpt_surgery.storage.paths import absolute, exists, same_place
from tests.support.failing import refusing


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "file").touch()
    os.link(tmp_path / "file", tmp_path / "hard")
    return tmp_path


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


def test_where_nobody_may_look_the_paths_tell(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "stat", refusing(errno.EACCES))
    assert same_place(places / "file", places / "a" / ".." / "file")
    assert not same_place(places / "file", places / "hard")
