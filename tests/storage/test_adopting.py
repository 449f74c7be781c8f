"""Linked and copied data files."""

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
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.protocols import AdoptedFile, LinkMode, Output
from ckpt_surgery.storage import adopting, linking
from ckpt_surgery.storage.adopting import AdoptedFiles, copy_chunk
from ckpt_surgery.storage.linking import ReplacedFiles
from ckpt_surgery.storage.listing import data_file
from tests.support.failing import refusing

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


class Files:
    """The files of one new checkpoint, asked for a chunk at a time by one worker."""

    def __init__(self, directory: Path, mode: LinkMode, *copied: Chunk, replaced: Sequence[Path] = ()):
        roots = ReplacedFiles({str(path.resolve()): True for path in replaced})
        self.adopted = AdoptedFiles(directory, mode, [output(copied, copied=True)], roots)
        self.adopted.create()

    def linked(self, chunk: Chunk) -> Chunk:
        self.adopted.adopt(output([chunk]), {}, 0)
        return self.adopted.located(chunk, False)

    def copied(self, chunk: Chunk) -> Chunk:
        self.adopted.adopt(output([chunk], copied=True), {}, 0)
        return self.adopted.located(chunk, True)

    def brought(self, source: Path) -> AdoptedFile:
        """What is told of a file that is linked."""
        (file,) = self.adopted.adopt(output([Chunk(str(source), 0, 1)]), {}, 0).files
        return file


def output(chunks: Sequence[Chunk], copied: bool = False) -> Output:
    """An output whose stored bytes are copied, or linked."""
    spec = ArraySpec((len(chunks),), np.dtype(np.uint8))
    manifest = Manifest(spec, (1,), raw_codec(1), {(i,): chunk for i, chunk in enumerate(chunks)})
    return Output(Leaf(Key.parse("x"), LeafKind.ARRAY, spec), (1,), manifest, copied)


def content(directory: Path, chunk: Chunk) -> bytes:
    return (directory / chunk.file).read_bytes()[chunk.offset : chunk.offset + chunk.length]


def clone(one: Path, other: Path) -> None:
    """A reflink, as far as anybody sees."""
    shutil.copyfile(one, other)


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_a_link_outlives_its_source(mode: LinkMode, source: Path, tmp_path: Path) -> None:
    files = Files(tmp_path / "new", mode)
    chunks = [files.linked(Chunk(str(source), offset, 100)) for offset in (0, 300)]
    assert chunks[0].file == chunks[1].file
    source.unlink()
    assert [content(tmp_path / "new", c) for c in chunks] == [CONTENT[:100], CONTENT[300:400]]


def test_modes_do_what_they_say(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for mode in LinkMode:
        with monkeypatch.context() as patch:
            patch.setattr(linking, "reflink", clone)
            made.append(Files(tmp_path / mode, mode).brought(source))
    size, modified = source.stat().st_size, source.stat().st_mtime_ns
    name = made[0].name
    same = {"name": name, "source": str(source), "size": size, "modified": modified}
    same["sample"] = bytes_crc(CONTENT)
    assert made == [
        AdoptedFile(how=LinkMode.REFLINK, **same),
        AdoptedFile(how=LinkMode.REFLINK, **same),
        AdoptedFile(how=LinkMode.HARDLINK, **same),
        AdoptedFile(how=LinkMode.COPY, crc32c=bytes_crc(CONTENT), **same),
    ]
    assert [os.path.samefile(tmp_path / mode / name, source) for mode in LinkMode] == [
        *(False, False),
        *(True, False),
    ]


def test_auto_hard_links_what_is_replaced_and_copies_what_may_be_rewritten(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(errno.EOPNOTSUPP))
    file = Files(tmp_path / "copy", LinkMode.AUTO).brought(source)
    assert (file.how, file.crc32c, file.reason) == (
        *(LinkMode.COPY, bytes_crc(CONTENT)),
        os.strerror(errno.EOPNOTSUPP),
    )
    assert not os.path.samefile(tmp_path / "copy" / file.name, source)
    file = Files(tmp_path / "link", LinkMode.AUTO, replaced=[source.parent]).brought(source)
    assert (file.how, file.crc32c, file.reason) == (LinkMode.HARDLINK, None, "")
    assert os.path.samefile(tmp_path / "link" / file.name, source)


NOT_POSSIBLE = [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP]


@pytest.mark.parametrize("number", NOT_POSSIBLE)
@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK])
def test_what_cannot_be_linked_is_copied_and_told(
    mode: LinkMode, number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(errno.EINVAL))
    monkeypatch.setattr(os, "link", refusing(number))
    files = Files(tmp_path / "new", mode, replaced=[source])
    file = files.brought(source)
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
    assert (file.how, file.reason) == (LinkMode.COPY, os.strerror(number))
    assert file.crc32c == bytes_crc(CONTENT)


@pytest.mark.parametrize("number", NOT_POSSIBLE)
def test_reflinks_are_made_or_refused(
    number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(number))
    with pytest.raises(StorageError, match=rf"(?s){os.strerror(number)}"):
        Files(tmp_path / "new", LinkMode.REFLINK, replaced=[source]).brought(source)


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK])
def test_other_failures_are_no_reason_to_copy(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(errno.EIO))
    monkeypatch.setattr(os, "link", refusing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        Files(tmp_path / "new", mode).brought(source)


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK])
def test_a_copy_instead_of_a_link_needs_space(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(errno.EMLINK))
    monkeypatch.setattr(os, "link", refusing(errno.EMLINK))
    files = Files(tmp_path / "new", mode)
    for free in (len(CONTENT) - 1, len(CONTENT)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        if free == len(CONTENT):
            assert files.brought(source).how is LinkMode.COPY
            continue
        with pytest.raises(StorageError) as caught:
            files.brought(source)
        assert str(caught.value) == (
            f"{source} cannot be linked (Too many links), and a copy of it does not fit: it has 10.0 KiB, "
            "10.0 KiB are free\n  Free some space, or choose a destination on another file system."
        )
        assert list((tmp_path / "new").rglob("*worker*")) == []


@settings(deadline=None, max_examples=25)
@given(ranges=st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 1000)), max_size=8))
def test_copied_ranges_are_the_same_bytes(
    ranges: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    (folder / "source").write_bytes(CONTENT)
    asked = [Chunk(str(folder / "source"), offset, length) for offset, length in ranges]
    files = Files(folder / "new", LinkMode.AUTO, *asked)
    chunks = [files.copied(chunk) for chunk in asked]
    assert [content(folder / "new", c) for c in chunks] == [CONTENT[o : o + n] for o, n in ranges]


def test_bytes_that_several_share_are_copied_once(source: Path, tmp_path: Path) -> None:
    files = Files(tmp_path / "new", LinkMode.AUTO, *[Chunk(str(source), 7, 50)] * 2)
    first, again = (files.copied(Chunk(str(source), 7, 50)) for _ in range(2))
    assert first == again
    assert (tmp_path / "new" / first.file).stat().st_size == 50


def test_a_source_that_is_too_short(source: Path, tmp_path: Path) -> None:
    beyond = Chunk(str(source), 10_000, 1000)
    with pytest.raises(SourceError, match="shorter than its index says"):
        Files(tmp_path / "new", LinkMode.AUTO, beyond).copied(beyond)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("found_before", [False, True])
def test_a_source_that_is_gone(copied: bool, found_before: bool, source: Path, tmp_path: Path) -> None:
    """Before anything was taken from it, and after something else was."""
    chunk = Chunk(str(source), 5, 10)
    files = AdoptedFiles(tmp_path / "new", LinkMode.AUTO, [output([chunk], copied=True)])
    if found_before:
        files.create()
        files.adopt(output([chunk], copied=not copied), {}, 0)
    source.unlink()
    with pytest.raises(SourceError, match=rf"{source} cannot be read: No such file(.|\n)*another copy"):
        files.adopt(output([chunk], copied), {}, 0)


def test_copying_one_chunk_of_a_source_that_is_gone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "to").touch()
    with pytest.raises(SourceError, match="gone cannot be read: No such file"):
        copy_chunk(Chunk(str(tmp_path / "gone"), 0, 1), tmp_path / "to", [(0, 1)])
    with pytest.raises(StorageError, match="No such file"):  # what it is copied to
        copy_chunk(Chunk(str(source), 0, 1), tmp_path / "nowhere", [(0, 1)])
    with pytest.raises(StorageError, match="No such file"):
        copy_chunk(Chunk("", 0, 1, b"x"), tmp_path / "nowhere", [(0, 1)])


@pytest.mark.parametrize("inline", [False, True])
def test_a_chunk_is_dealt_to_places(inline: bool, source: Path, tmp_path: Path) -> None:
    part = CONTENT[40:50]
    chunk = Chunk("", 0, 10, part) if inline else Chunk(str(source), 40, 10)
    (tmp_path / "to").write_bytes(bytes(20))
    assert copy_chunk(chunk, tmp_path / "to", [(12, 3), (0, 7)]) == bytes_crc(part)
    assert (tmp_path / "to").read_bytes() == part[3:] + bytes(5) + part[:3] + bytes(5)


# --- what an earlier process brought ----------------------------------------------------------------------


def test_a_chunk_with_the_known_checksum_is_not_copied_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [Chunk(str(source), offset, 100) for offset in (0, 300)]
    copied = output(chunks, copied=True)
    first = AdoptedFiles(tmp_path / "new", LinkMode.AUTO, [copied])
    first.create()
    crcs = first.adopt(copied, {}, 0).chunks
    assert crcs == {(0,): bytes_crc(CONTENT[:100]), (1,): bytes_crc(CONTENT[300:400])}
    again = AdoptedFiles(tmp_path / "new", LinkMode.AUTO, [copied])
    again.create()
    places = [again.located(chunk, True) for chunk in chunks]
    with (tmp_path / "new" / places[1].file).open("r+b") as file:  # one bit of the second
        file.seek(places[1].offset + 7)
        file.write(bytes([CONTENT[307] ^ 1]))
    moved, real = [], adopting._copy_bytes
    monkeypatch.setattr(adopting, "_copy_bytes", lambda *given: moved.append(given[1]) or real(*given))
    assert again.adopt(copied, crcs, 0).chunks == crcs
    assert moved == [300]
    assert [content(tmp_path / "new", place) for place in places] == [CONTENT[:100], CONTENT[300:400]]


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_what_is_linked_is_told_again_by_another_process(
    mode: LinkMode, source: Path, tmp_path: Path
) -> None:
    told = [Files(tmp_path / "new", mode).brought(source) for _ in range(2)]
    assert told[0] == told[1]
    assert (tmp_path / "new" / told[0].name).read_bytes() == CONTENT
    files = Files(tmp_path / "new", mode)
    files.brought(source)
    assert files.adopted.adopt(output([Chunk(str(source), 0, 1)]), {}, 0).files == ()  # once by each


# --- several workers --------------------------------------------------------------------------------------


def test_where_bytes_go_follows_from_the_outputs(source: Path, tmp_path: Path) -> None:
    """In another process, and before anything is brought."""
    chunks = [Chunk(str(source), offset, 10 + offset) for offset in (0, 100, 50, 100)]
    one, other = (
        AdoptedFiles(tmp_path / name, LinkMode.AUTO, [output(chunks, copied=True)]) for name in "ab"
    )
    for chunk in chunks:
        assert one.located(chunk, True) == other.located(chunk, True)
        assert one.located(chunk, False) == other.located(chunk, False)
    assert len({one.located(chunk, True) for chunk in chunks}) == 3


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_two_workers_link_the_same_file(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins, and ends, while the first one is about to name its own."""
    asked, real = output([Chunk(str(source), 0, 10)]), Path.rename

    def slowly(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        AdoptedFiles(tmp_path / "new", mode, []).adopt(asked, {}, 1)
        return real(path, target)

    monkeypatch.setattr(Path, "rename", slowly)
    files = AdoptedFiles(tmp_path / "new", mode, [])
    (file,) = files.adopt(asked, {}, 0).files
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
    assert len(list((tmp_path / "new" / "d").iterdir())) == 1


def test_a_file_that_was_copied_in_part_is_copied_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was killed while it copied."""
    asked, real = output([Chunk(str(source), 0, 10)]), adopting._copy_bytes

    def killed(reader: Any, offset: int, length: int, *to: Any) -> int:
        real(reader, offset, 5, *to)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adopting, "_copy_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            AdoptedFiles(tmp_path / "new", LinkMode.COPY, []).adopt(asked, {}, 0)
    (unfinished,) = (tmp_path / "new" / "d").iterdir()
    assert unfinished.read_bytes() == CONTENT[:5]
    (file,) = AdoptedFiles(tmp_path / "new", LinkMode.COPY, []).adopt(asked, {}, 0).files
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
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
    monkeypatch.setattr(adopting, "data_file", lambda path: asked.append(path) or data_file(path))
    files = Files(tmp_path / "new", LinkMode.AUTO, *[Chunk(str(source), offset, 1) for offset in range(5)])
    for offset in range(5):
        files.linked(Chunk(str(source), offset, 1))
        files.copied(Chunk(str(source), offset, 1))
    assert asked == [str(source)]


@pytest.mark.parametrize("way", ["copied", "linked"])
def test_a_long_copy_ends_between_pieces(
    way: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, pieces, real = threading.Event(), [], adopting._write_all

    def write(descriptor: int, data: memoryview, at: int) -> None:
        pieces.append(len(data))
        stop.set()
        real(descriptor, data, at)

    monkeypatch.setattr(adopting, "PIECE", 100)
    monkeypatch.setattr(adopting, "_write_all", write)
    files = Files(tmp_path / "new", LinkMode.COPY, Chunk(str(source), 0, len(CONTENT)))
    with pytest.raises(Cancelled), cancelled_by(stop):
        getattr(files, way)(Chunk(str(source), 0, len(CONTENT)))
    assert pieces == [100]


def test_copies_in_pieces_without_what_only_linux_has(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(adopting, "PIECE", 1000)
    part = Chunk(str(source), 77, 3001)
    files = Files(tmp_path / "new", LinkMode.COPY, part)
    assert content(tmp_path / "new", files.copied(part)) == CONTENT[77:3078]
    file = files.brought(source)
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
    assert file.crc32c == bytes_crc(CONTENT)
