"""Linked and copied data files."""

import ctypes
import errno
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.cancellation import Stopped, until
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.storage import adopting as data_files
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.adopting import DataFiles, copy_chunk
from ckpt_surgery.storage.listing import data_file

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def content(directory: Path, chunk: Chunk) -> bytes:
    return (directory / chunk.file).read_bytes()[chunk.offset : chunk.offset + chunk.length]


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_a_link_outlives_its_source(mode: LinkMode, source: Path, tmp_path: Path) -> None:
    files = DataFiles(tmp_path / "new", mode)
    chunks = [files.linked(Chunk(str(source), offset, 100)) for offset in (0, 300)]
    assert chunks[0].file == chunks[1].file
    source.unlink()
    assert [content(tmp_path / "new", c) for c in chunks] == [CONTENT[:100], CONTENT[300:400]]


def test_modes_do_what_they_say(source: Path, tmp_path: Path) -> None:
    hard = DataFiles(tmp_path / "hard", LinkMode.HARDLINK).linked(Chunk(str(source), 0, 1))
    copied = DataFiles(tmp_path / "copy", LinkMode.COPY).linked(Chunk(str(source), 0, 1))
    assert os.path.samefile(tmp_path / "hard" / hard.file, source)
    assert not os.path.samefile(tmp_path / "copy" / copied.file, source)


def test_auto_takes_the_next_best_and_a_mode_alone_does_not(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(data_files, "_reflink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    chunk = DataFiles(tmp_path / "new", LinkMode.AUTO).linked(Chunk(str(source), 5, 10))
    assert content(tmp_path / "new", chunk) == CONTENT[5:15]
    with pytest.raises(StorageError, match=r'(?s)cross-device.*`link_mode="copy"`'):
        DataFiles(tmp_path / "other", LinkMode.HARDLINK).linked(Chunk(str(source), 0, 1))


@settings(deadline=None, max_examples=25)
@given(
    ranges=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 1000)), max_size=8), inside=st.booleans()
)
def test_copied_ranges_are_the_same_bytes(
    ranges: list[tuple[int, int]], inside: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the kernel's own copy, and without it."""
    folder = tmp_path_factory.mktemp("copy")
    (folder / "source").write_bytes(CONTENT)
    files = DataFiles(folder / "new", LinkMode.AUTO)
    with pytest.MonkeyPatch.context() as patch:
        if not inside:
            patch.delattr(os, "copy_file_range")
            patch.setattr(os, "copy_file_range", _unsupported, raising=False)
        chunks = [files.copied(Chunk(str(folder / "source"), offset, length)) for offset, length in ranges]
    assert [content(folder / "new", c) for c in chunks] == [CONTENT[o : o + n] for o, n in ranges]


def _unsupported(*_: object) -> int:
    raise OSError(38, "Function not implemented")


def test_bytes_that_several_share_are_copied_once(source: Path, tmp_path: Path) -> None:
    files = DataFiles(tmp_path / "new", LinkMode.AUTO)
    first, again = (files.copied(Chunk(str(source), 7, 50)) for _ in range(2))
    assert first == again
    assert (tmp_path / "new" / first.file).stat().st_size == 50


def test_a_source_that_is_too_short(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="shorter than its index says"):
        DataFiles(tmp_path / "new", LinkMode.AUTO).copied(Chunk(str(source), 10_000, 1000))


@pytest.mark.parametrize("way", ["copied", "linked"])
@pytest.mark.parametrize("found_before", [False, True])
def test_a_source_that_is_gone(way: str, found_before: bool, source: Path, tmp_path: Path) -> None:
    """Before anything was taken from it, and after something else was."""
    files = DataFiles(tmp_path / "new", LinkMode.AUTO)
    if found_before:
        (files.copied if way == "linked" else files.linked)(Chunk(str(source), 0, 1))
    source.unlink()
    with pytest.raises(SourceError, match=rf"{source} cannot be read: No such file(.|\n)*another copy"):
        getattr(files, way)(Chunk(str(source), 5, 10))


def test_copying_one_chunk_of_a_source_that_is_gone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "to").touch()
    with pytest.raises(SourceError, match="gone cannot be read: No such file"):
        copy_chunk(Chunk(str(tmp_path / "gone"), 0, 1), tmp_path / "to", 0)
    with pytest.raises(StorageError, match="No such file"):  # what it is copied to
        copy_chunk(Chunk(str(source), 0, 1), tmp_path / "nowhere", 0)
    with pytest.raises(StorageError, match="No such file"):
        copy_chunk(Chunk("", 0, 1, b"x"), tmp_path / "nowhere", 0)


# --- links in a source --------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(source: Path, tmp_path: Path) -> Path:
    """A file of a Hugging Face cache: a relative link into its `blobs`."""
    blobs, snapshots = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshots.mkdir(parents=True)
    source.rename(blobs / "e3b0")
    (snapshots / "model.safetensors").symlink_to("../../blobs/e3b0")
    return snapshots / "model.safetensors"


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_what_is_linked_is_the_file_and_no_link_to_it(mode: LinkMode, snapshot: Path, tmp_path: Path) -> None:
    """os.link(2) makes another name of the symbolic link, whose target is relative to where it was."""
    chunk = DataFiles(tmp_path / "new", mode).linked(Chunk(str(snapshot), 3, 100))
    assert not (tmp_path / "new" / chunk.file).is_symlink()
    assert content(tmp_path / "new", chunk) == CONTENT[3:103]
    if mode is LinkMode.HARDLINK:
        assert (tmp_path / "new" / chunk.file).stat().st_ino == snapshot.stat().st_ino


def test_a_file_by_several_names_is_linked_and_copied_once(snapshot: Path, tmp_path: Path) -> None:
    names = [snapshot, snapshot.resolve(), snapshot.parent / ".." / snapshot.parent.name / snapshot.name]
    files = DataFiles(tmp_path / "new", LinkMode.AUTO)
    assert len({files.linked(Chunk(str(name), 0, 10)) for name in names}) == 1
    assert len({files.copied(Chunk(str(name), 0, 10)) for name in names}) == 1
    assert len(list((tmp_path / "new" / "d").iterdir())) == 2


def test_each_file_is_resolved_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(data_files, "data_file", lambda path: asked.append(path) or data_file(path))
    files = DataFiles(tmp_path / "new", LinkMode.AUTO)
    for offset in range(5):
        files.linked(Chunk(str(source), offset, 1))
        files.copied(Chunk(str(source), offset, 1))
    assert asked == [str(source)]


@pytest.mark.parametrize("way", ["copied", "linked"])
def test_a_long_copy_ends_between_pieces(
    way: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, pieces, real = threading.Event(), [], data_files._move

    def move(*arguments: int) -> int:
        pieces.append(arguments)
        stop.set()
        return real(*arguments)

    monkeypatch.setattr(data_files, "PIECE", 100)
    monkeypatch.setattr(data_files, "_move", move)
    files = DataFiles(tmp_path / "new", LinkMode.COPY)
    with pytest.raises(Stopped), until(stop):
        getattr(files, way)(Chunk(str(source), 0, len(CONTENT)))
    assert len(pieces) == 1


# --- without what only Linux has ------------------------------------------------------------------


def test_copies_without_the_kernels_own_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(data_files, "PIECE", 1000)
    files = DataFiles(tmp_path / "new", LinkMode.COPY)
    assert content(tmp_path / "new", files.copied(Chunk(str(source), 77, 3001))) == CONTENT[77:3078]
    assert (tmp_path / "new" / files.linked(Chunk(str(source), 0, 1)).file).read_bytes() == CONTENT


@pytest.mark.parametrize("refusal", [None, errno.ENOTSUP, errno.EIO])
def test_macos_clones_files(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    def clonefile(one: bytes, other: bytes, flags: int) -> int:
        assert flags == 0
        if refusal is not None:
            ctypes.set_errno(refusal)
            return -1
        shutil.copyfile(one, other)
        return 0

    monkeypatch.setattr(system_calls, "_library", lambda: SimpleNamespace(clonefile=clonefile))
    if refusal is None:
        data_files.link(source, tmp_path / "new", LinkMode.REFLINK)
    else:
        with pytest.raises(OSError, match=os.strerror(refusal)):
            data_files.link(source, tmp_path / "new", LinkMode.REFLINK)
    if refusal == errno.ENOTSUP:
        data_files.link(source, tmp_path / "new", LinkMode.AUTO)
        assert (tmp_path / "new").samefile(source)
    if refusal != errno.EIO:
        assert (tmp_path / "new").read_bytes() == CONTENT
