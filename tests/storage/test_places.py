"""Where the files of a new checkpoint go: the same in a directory and in a store."""

import os
from pathlib import Path

import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.storage.places import UNFINISHED, Places, open_places
from ckpt_surgery.storage.store import store_of
from tests.support.failing import raising

CONTENT = bytes(range(256)) * 40


@pytest.fixture(params=["directory", "store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    where = tmp_path if request.param == "directory" else request.getfixturevalue("bucket")
    return f"{where}/new"


@pytest.fixture
def places(root: str) -> Places:
    opened = open_places(root, LinkMode.HARDLINK)
    opened.create()
    return opened


@pytest.fixture
def source(root: str, tmp_path: Path) -> str:
    """A file that can be linked: in the same store, or on the same file system."""
    if "://" not in root:
        (tmp_path / "source").write_bytes(CONTENT)
        return str(tmp_path / "source")
    store_of(root)[0].put("source", CONTENT)
    return f"{root.removesuffix('/new')}/source"


def test_what_is_put_is_read_listed_and_deleted(places: Places) -> None:
    assert places.sizes() == {}
    places.put("a/b/c", [b"one", b"", b"three"])
    places.put("a/d", [])
    places.put("e", [b"old"])
    places.put("e", [b"new!"])
    assert places.sizes() == {"a/b/c": 8, "a/d": 0, "e": 4}
    assert places.sizes("a/b/") == {"a/b/c": 8}
    assert [places.size(name) for name in ("a/b/c", "a/x", "e/x")] == [8, None, None]
    assert places.read([Chunk("a/b/c", 1, 4), Chunk("e", 0, 4)]) == [b"neth", b"new!"]
    places.delete(["a/b/c", "a/d"])
    assert places.sizes() == {"e": 4}
    for chunk in (Chunk("e", 1, 4), Chunk("a/d", 0, 1)):  # too short, and missing
        with pytest.raises(SourceError):
            places.read([chunk])


def test_a_chunk_is_copied_to_a_file_of_its_own(places: Places, source: str) -> None:
    assert places.copy(Chunk(source, 7, 3000), "d/1") == bytes_crc(CONTENT[7:3007])
    assert places.read([Chunk("d/1", 0, 3000)]) == [CONTENT[7:3007]]
    with pytest.raises(SourceError, match="ends at byte 10240"):
        places.copy(Chunk(source, 10_000, 1000), "d/2")
    assert list(places.sizes()) == ["d/1"]


def test_a_file_is_linked_once(places: Places, source: str) -> None:
    (name, adopted), again = places.link(source, "worker/"), places.link(source, "worker/")
    assert again == (name, None)
    places.flush()
    assert places.sizes() == {name: len(CONTENT)}
    assert places.read([Chunk(name, 300, 10)]) == [CONTENT[300:310]]
    assert adopted is None or (adopted.name, adopted.how) == (name, LinkMode.HARDLINK)


def test_a_file_appears_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = open_places(tmp_path)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(os, "replace", raising(KeyboardInterrupt))
        killed.setattr(os, "unlink", raising(OSError))
        places.put("a", [b"half"])
    assert [path.name for path in tmp_path.iterdir()] == [UNFINISHED]
    assert places.sizes() == {}
    places.close()
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = open_places(tmp_path)
    monkeypatch.setattr(os, "replace", raising(lambda: OSError(28, "No space left on device")))
    with pytest.raises(StorageError, match=f"^{tmp_path}/a/b: No space left on device"):
        places.put("a/b", [b"1"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_directory_that_was_taken_away_is_not_made_again(tmp_path: Path) -> None:
    places = open_places(tmp_path / "new")
    places.create()
    places.put("a/b", [b"1"])
    (tmp_path / "new").rename(tmp_path / "old")
    with pytest.raises(StorageError):
        places.put("a/b", [b"2"])
    assert not (tmp_path / "new").exists()
