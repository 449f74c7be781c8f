"""Linked and copied data files."""

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.cancellation import Cancelled, cancelled_by
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.protocols import LinkMode, Output
from ckpt_surgery.storage import adopting as data_files
from ckpt_surgery.storage import system_calls
from ckpt_surgery.storage.adopting import AdoptedFiles, copy_chunk
from ckpt_surgery.storage.listing import data_file

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


class Files:
    """The files of one new checkpoint, asked for a chunk at a time by one worker."""

    def __init__(self, directory: Path, mode: LinkMode, *copied: Chunk):
        self.adopted = AdoptedFiles(directory, mode, [adopted(copied)])
        self.adopted.create()

    def linked(self, chunk: Chunk) -> Chunk:
        self.adopted.bring(chunk, False, 0)
        return self.adopted.located(chunk, False)

    def copied(self, chunk: Chunk) -> Chunk:
        self.adopted.bring(chunk, True, 0)
        return self.adopted.located(chunk, True)


def adopted(chunks: Sequence[Chunk]) -> Output:
    """An output whose stored bytes are copied."""
    spec = ArraySpec((len(chunks),), np.dtype(np.uint8))
    manifest = Manifest(spec, (1,), raw_codec(1), {(i,): chunk for i, chunk in enumerate(chunks)})
    return Output(Leaf(Key.parse("x"), LeafKind.ARRAY, spec), (1,), manifest, copied=True)


def content(directory: Path, chunk: Chunk) -> bytes:
    return (directory / chunk.file).read_bytes()[chunk.offset : chunk.offset + chunk.length]


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_a_link_outlives_its_source(mode: LinkMode, source: Path, tmp_path: Path) -> None:
    files = Files(tmp_path / "new", mode)
    chunks = [files.linked(Chunk(str(source), offset, 100)) for offset in (0, 300)]
    assert chunks[0].file == chunks[1].file
    source.unlink()
    assert [content(tmp_path / "new", c) for c in chunks] == [CONTENT[:100], CONTENT[300:400]]


def test_modes_do_what_they_say(source: Path, tmp_path: Path) -> None:
    hard = Files(tmp_path / "hard", LinkMode.HARDLINK).linked(Chunk(str(source), 0, 1))
    copied = Files(tmp_path / "copy", LinkMode.COPY).linked(Chunk(str(source), 0, 1))
    assert os.path.samefile(tmp_path / "hard" / hard.file, source)
    assert not os.path.samefile(tmp_path / "copy" / copied.file, source)


def test_auto_takes_the_next_best_and_a_mode_alone_does_not(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(data_files, "_reflink", refuse)
    monkeypatch.setattr(os, "link", refuse)
    chunk = Files(tmp_path / "new", LinkMode.AUTO).linked(Chunk(str(source), 5, 10))
    assert content(tmp_path / "new", chunk) == CONTENT[5:15]
    with pytest.raises(StorageError, match=r'(?s)cross-device.*`link_mode="copy"`'):
        Files(tmp_path / "other", LinkMode.HARDLINK).linked(Chunk(str(source), 0, 1))


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
    asked = [Chunk(str(folder / "source"), offset, length) for offset, length in ranges]
    files = Files(folder / "new", LinkMode.AUTO, *asked)
    with pytest.MonkeyPatch.context() as patch:
        if not inside:
            patch.delattr(os, "copy_file_range")
            patch.setattr(os, "copy_file_range", _unsupported, raising=False)
        chunks = [files.copied(chunk) for chunk in asked]
    assert [content(folder / "new", c) for c in chunks] == [CONTENT[o : o + n] for o, n in ranges]


def _unsupported(*_: object) -> int:
    raise OSError(38, "Function not implemented")


def test_bytes_that_several_share_are_copied_once(source: Path, tmp_path: Path) -> None:
    files = Files(tmp_path / "new", LinkMode.AUTO, *[Chunk(str(source), 7, 50)] * 2)
    first, again = (files.copied(Chunk(str(source), 7, 50)) for _ in range(2))
    assert first == again
    assert (tmp_path / "new" / first.file).stat().st_size == 50


def test_a_source_that_is_too_short(source: Path, tmp_path: Path) -> None:
    beyond = Chunk(str(source), 10_000, 1000)
    with pytest.raises(SourceError, match="shorter than its index says"):
        Files(tmp_path / "new", LinkMode.AUTO, beyond).copied(beyond)


@pytest.mark.parametrize("way", ["copied", "linked"])
@pytest.mark.parametrize("found_before", [False, True])
def test_a_source_that_is_gone(way: str, found_before: bool, source: Path, tmp_path: Path) -> None:
    """Before anything was taken from it, and after something else was."""
    chunk = Chunk(str(source), 5, 10)
    files = AdoptedFiles(tmp_path / "new", LinkMode.AUTO, [adopted([chunk])])
    if found_before:
        files.create()
        files.bring(chunk, way == "linked", 0)
    source.unlink()
    with pytest.raises(SourceError, match=rf"{source} cannot be read: No such file(.|\n)*another copy"):
        files.bring(chunk, way == "copied", 0)


def test_copying_one_chunk_of_a_source_that_is_gone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "to").touch()
    with pytest.raises(SourceError, match="gone cannot be read: No such file"):
        copy_chunk(Chunk(str(tmp_path / "gone"), 0, 1), tmp_path / "to", 0)
    with pytest.raises(StorageError, match="No such file"):  # what it is copied to
        copy_chunk(Chunk(str(source), 0, 1), tmp_path / "nowhere", 0)
    with pytest.raises(StorageError, match="No such file"):
        copy_chunk(Chunk("", 0, 1, b"x"), tmp_path / "nowhere", 0)


# --- several workers --------------------------------------------------------------------------------------


def test_where_bytes_go_follows_from_the_outputs(source: Path, tmp_path: Path) -> None:
    """In another process, and before anything is brought."""
    chunks = [Chunk(str(source), offset, 10 + offset) for offset in (0, 100, 50, 100)]
    one, other = (AdoptedFiles(tmp_path / name, LinkMode.AUTO, [adopted(chunks)]) for name in "ab")
    for chunk in chunks:
        assert one.located(chunk, True) == other.located(chunk, True)
        assert one.located(chunk, False) == other.located(chunk, False)
    assert len({one.located(chunk, True) for chunk in chunks}) == 3


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_two_workers_link_the_same_file(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins, and ends, while the first one is at it."""
    chunk, real = Chunk(str(source), 0, 10), data_files.link

    def slowly(*arguments: Any) -> None:
        monkeypatch.setattr(data_files, "link", real)
        AdoptedFiles(tmp_path / "new", mode, []).bring(chunk, False, 1)
        real(*arguments)

    monkeypatch.setattr(data_files, "link", slowly)
    files = AdoptedFiles(tmp_path / "new", mode, [])
    files.bring(chunk, False, 0)
    assert content(tmp_path / "new", files.located(chunk, False)) == CONTENT[:10]
    assert len(list((tmp_path / "new" / "d").iterdir())) == 1


def test_a_file_that_was_linked_in_part_is_linked_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was killed while it copied."""
    chunk, real = Chunk(str(source), 0, 10), data_files.copy_range

    def killed(source: Path, offset: int, length: int, destination: Path, at: int) -> None:
        real(source, offset, 5, destination, at)
        raise KeyboardInterrupt

    monkeypatch.setattr(data_files, "copy_range", killed)
    with pytest.raises(KeyboardInterrupt):
        AdoptedFiles(tmp_path / "new", LinkMode.COPY, []).bring(chunk, False, 0)
    monkeypatch.setattr(data_files, "copy_range", real)
    files = AdoptedFiles(tmp_path / "new", LinkMode.COPY, [])
    files.bring(chunk, False, 0)
    assert content(tmp_path / "new", files.located(chunk, False)) == CONTENT[:10]
    assert len(list((tmp_path / "new" / "d").iterdir())) == 1


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
    chunk = Files(tmp_path / "new", mode).linked(Chunk(str(snapshot), 3, 100))
    assert not (tmp_path / "new" / chunk.file).is_symlink()
    assert content(tmp_path / "new", chunk) == CONTENT[3:103]
    if mode is LinkMode.HARDLINK:
        assert (tmp_path / "new" / chunk.file).stat().st_ino == snapshot.stat().st_ino


def test_a_file_by_several_names_is_linked_and_copied_once(snapshot: Path, tmp_path: Path) -> None:
    names = [snapshot, snapshot.resolve(), snapshot.parent / ".." / snapshot.parent.name / snapshot.name]
    files = Files(tmp_path / "new", LinkMode.AUTO, *[Chunk(str(name), 0, 10) for name in names])
    assert len({files.linked(Chunk(str(name), 0, 10)) for name in names}) == 1
    assert len({files.copied(Chunk(str(name), 0, 10)) for name in names}) == 1
    assert len(list((tmp_path / "new" / "d").iterdir())) == 2


def test_each_file_is_resolved_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(data_files, "data_file", lambda path: asked.append(path) or data_file(path))
    files = Files(tmp_path / "new", LinkMode.AUTO, *[Chunk(str(source), offset, 1) for offset in range(5)])
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
    files = Files(tmp_path / "new", LinkMode.COPY, Chunk(str(source), 0, len(CONTENT)))
    with pytest.raises(Cancelled), cancelled_by(stop):
        getattr(files, way)(Chunk(str(source), 0, len(CONTENT)))
    assert len(pieces) == 1


# --- without what only Linux has ------------------------------------------------------------------


def test_copies_without_the_kernels_own_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(data_files, "PIECE", 1000)
    part = Chunk(str(source), 77, 3001)
    files = Files(tmp_path / "new", LinkMode.COPY, part)
    assert content(tmp_path / "new", files.copied(part)) == CONTENT[77:3078]
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
