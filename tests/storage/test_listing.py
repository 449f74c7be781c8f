"""What lies at a path: names by kind, links that stay inside, digests that do not depend on the place."""

import errno
import os
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.storage import listing
from ckpt_surgery.storage.listing import (
    FileStat,
    check_link,
    data_file,
    directory_names,
    exists,
    has_entry,
    is_directory,
    is_file,
    names_below,
    names_in,
    walk,
)
from tests.support.failing import refusing


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files, a directory with a file, and links to each and to nowhere."""
    root = tmp_path / "tree"
    (root / "inner").mkdir(parents=True)
    (root / "b").write_bytes(b"12")
    (root / "a").write_bytes(b"1")
    (root / "inner" / "c").write_bytes(b"123")
    (root / "to_file").symlink_to("a")
    (root / "to_directory").symlink_to("inner")
    return root


def stats(path: Path) -> FileStat:
    return FileStat(path.stat().st_size, path.stat().st_mtime_ns)


def test_names_are_sorted_and_told_by_what_they_lead_to(tree: Path) -> None:
    (tree / "nowhere").symlink_to("gone")
    found = directory_names(str(tree))
    assert (list(found.files), list(found.directories)) == (
        ["a", "b", "nowhere", "to_file"],
        ["inner", "to_directory"],
    )
    assert names_in(str(tree)) == sorted([*found.files, *found.directories])


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("a", (False, True, True, True)),
        ("inner", (True, False, True, True)),
        ("to_file", (False, True, True, True)),
        ("to_directory", (True, False, True, True)),
        ("nowhere", (False, False, False, True)),  # a link that leads nowhere takes a name
        ("gone", (False, False, False, False)),
    ],
)
def test_what_a_path_leads_to(name: str, answers: tuple[bool, ...], tree: Path) -> None:
    (tree / "nowhere").symlink_to("gone")
    path = str(tree / name)
    assert (is_directory(path), is_file(path), exists(path), has_entry(path)) == answers


def test_names_below_do_not_follow_links_to_directories(tree: Path) -> None:
    (tree / "loop").symlink_to("..")
    assert sorted(names_below(str(tree))) == ["a", "b", "inner/c", "loop", "to_directory", "to_file"]


def test_a_walk_follows_links_within_the_root(tree: Path) -> None:
    found = walk(str(tree), os.path.realpath(tree))
    assert found == {
        "a": stats(tree / "a"),
        "b": stats(tree / "b"),
        "inner/c": stats(tree / "inner" / "c"),
        "to_file": stats(tree / "a"),
        "to_directory/c": stats(tree / "inner" / "c"),
    }


def test_a_walk_refuses_what_leaves_the_root(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"")
    (tree / "inner" / "out").symlink_to("../../secret")
    with pytest.raises(SourceError, match=r"out is a symbolic link to .*secret, outside the checkpoint"):
        walk(str(tree), os.path.realpath(tree))


def test_a_walk_refuses_pipes_and_links_in_circles(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    with pytest.raises(SourceError, match="pipe is neither a file nor a directory"):
        walk(str(tree), os.path.realpath(tree))
    (tree / "pipe").unlink()
    (tree / "inner" / "circle").symlink_to("../inner")
    with pytest.raises(SourceError, match=r"nested more than 64 directories deep|cannot be"):
        walk(str(tree), os.path.realpath(tree))


def test_links_into_the_blobs_of_a_hugging_face_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "model" / "snapshots" / "main"
    snapshot.mkdir(parents=True)
    (snapshot / "blob").symlink_to("../../blobs/abc")
    (snapshot / "other").symlink_to("../../blobs2/abc")
    check_link(str(snapshot / "blob"), str(snapshot))
    with pytest.raises(SourceError, match="outside the checkpoint"):
        check_link(str(snapshot / "other"), str(snapshot))


def test_what_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone cannot be read: No such file(.|\n)*take another copy"):
        names_in(str(tmp_path / "gone"))
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="file cannot be read: Not a directory"):
        directory_names(str(tmp_path / "file"))


def test_an_entry_that_cannot_be_examined_is_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        name = path = "x"

        is_dir = stat = refusing(errno.EACCES)

        def is_symlink(self) -> bool:
            return False

    monkeypatch.setattr(listing, "_entries", lambda directory: [Entry()])
    assert directory_names(str(tmp_path)).files == ["x"]
    with pytest.raises(StorageError, match=r"x cannot be read: Permission denied(.|\n)*allowed"):
        walk(str(tmp_path), str(tmp_path))


def test_a_data_file_is_known_by_its_real_path(tree: Path) -> None:
    found = data_file(str(tree / "to_file"))
    status = (tree / "a").stat()
    assert (found.path, found.size, found.domain) == (
        os.path.realpath(tree / "a"),
        1,
        f"device:{status.st_dev}",
    )
