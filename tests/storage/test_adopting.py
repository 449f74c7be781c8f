"""Linked and copied data files."""

import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.cancellation import Cancelled, cancelled_by
from ckpt_surgery.core.digests import bytes_crc
from ckpt_surgery.core.errors import SourceError, StorageError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.storage import adopting, linking, reading
from ckpt_surgery.storage.adopting import FileLinks, copy_chunk
from ckpt_surgery.storage.linking import SafeToHardlink
from tests.support.failing import refusing

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def linked(source: Path, directory: Path, mode: LinkMode, replaced: Sequence[Path] = ()) -> Any:
    """What is told of a file that is linked into a new checkpoint."""
    roots = SafeToHardlink({str(path.resolve()): True for path in replaced})
    _, file = FileLinks(directory, mode, roots).link(str(source))
    return file


def test_modes_do_what_they_say(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for mode in LinkMode:
        with monkeypatch.context() as patch:
            patch.setattr(linking, "reflink", shutil.copyfile)  # as far as anybody sees
            made.append(linked(source, tmp_path / mode, mode))
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
    file = linked(source, tmp_path / "copy", LinkMode.AUTO)
    assert (file.how, file.crc32c, file.reason) == (
        *(LinkMode.COPY, bytes_crc(CONTENT)),
        os.strerror(errno.EOPNOTSUPP),
    )
    assert not os.path.samefile(tmp_path / "copy" / file.name, source)
    file = linked(source, tmp_path / "link", LinkMode.AUTO, replaced=[source.parent])
    assert (file.how, file.crc32c, file.reason) == (LinkMode.HARDLINK, None, "")
    assert os.path.samefile(tmp_path / "link" / file.name, source)


NOT_POSSIBLE = [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP]


@pytest.mark.parametrize("number", NOT_POSSIBLE)
def test_reflinks_are_made_or_refused(
    number: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(number))
    with pytest.raises(StorageError, match=rf"(?s){os.strerror(number)}"):
        linked(source, tmp_path / "new", LinkMode.REFLINK, replaced=[source])


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK])
def test_other_failures_are_no_reason_to_copy(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "reflink", refusing(errno.EIO))
    monkeypatch.setattr(os, "link", refusing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error"):
        linked(source, tmp_path / "new", mode)


@pytest.mark.parametrize("found_before", [False, True])
def test_a_source_that_is_gone(found_before: bool, source: Path, tmp_path: Path) -> None:
    (tmp_path / "to").touch()
    if found_before:
        copy_chunk(Chunk(str(source), 5, 10), tmp_path / "to", [(0, 10)])
    source.unlink()
    with pytest.raises(SourceError, match=rf"{source} cannot be read: No such file(.|\n)*another copy"):
        linked(source, tmp_path / "new", LinkMode.AUTO)


@pytest.mark.parametrize("inline", [False, True])
def test_a_chunk_is_dealt_to_places(inline: bool, source: Path, tmp_path: Path) -> None:
    part = CONTENT[40:50]
    chunk = Chunk("", 0, 10, part) if inline else Chunk(str(source), 40, 10)
    (tmp_path / "to").write_bytes(bytes(20))
    assert copy_chunk(chunk, tmp_path / "to", [(12, 3), (0, 7)]) == bytes_crc(part)
    assert (tmp_path / "to").read_bytes() == part[3:] + bytes(5) + part[:3] + bytes(5)


# --- what an earlier process brought ----------------------------------------------------------------------


def test_bytes_with_the_known_checksum_are_not_copied_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, real = [], adopting._copy_bytes
    monkeypatch.setattr(adopting, "_copy_bytes", lambda *given: moved.append(given[1]) or real(*given))
    chunk, to = Chunk(str(source), 300, 100), tmp_path / "to"
    to.touch()
    crc = copy_chunk(chunk, to, [(7, 100)])
    assert copy_chunk(chunk, to, [(7, 100)], crc) == crc
    assert moved == [300]
    to.write_bytes(bytes([1]) * 107)
    assert copy_chunk(chunk, to, [(7, 100)], crc) == crc == bytes_crc(CONTENT[300:400])
    assert moved == [300, 300]
    assert to.read_bytes()[7:] == CONTENT[300:400]


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_what_is_linked_is_told_again_by_another_process(
    mode: LinkMode, source: Path, tmp_path: Path
) -> None:
    first, second = (FileLinks(tmp_path / "new", mode, SafeToHardlink()) for _ in range(2))
    name, told = first.link(str(source))
    assert second.link(str(source)) == (name, told)
    assert (tmp_path / "new" / name).read_bytes() == CONTENT
    assert second.link(str(source)) == (name, None)  # once by each


# --- several workers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.HARDLINK, LinkMode.COPY])
def test_two_workers_link_the_same_file(
    mode: LinkMode, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one begins, and ends, while the first one is about to name its own."""
    real = Path.rename

    def slowly(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        linked(source, tmp_path / "new", mode)
        return real(path, target)

    monkeypatch.setattr(Path, "rename", slowly)
    file = linked(source, tmp_path / "new", mode)
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
    assert len(list((tmp_path / "new" / "d").iterdir())) == 1


def test_a_file_that_was_copied_in_part_is_copied_anew(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was killed while it copied."""
    real = adopting._copy_bytes

    def killed(reader: Any, offset: int, length: int, *to: Any) -> int:
        real(reader, offset, 5, *to)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adopting, "_copy_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            linked(source, tmp_path / "new", LinkMode.COPY)
    (unfinished,) = (tmp_path / "new" / "d").iterdir()
    assert unfinished.read_bytes() == CONTENT[:5]
    file = linked(source, tmp_path / "new", LinkMode.COPY)
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT


def test_a_file_by_several_names_is_linked_once(source: Path, tmp_path: Path) -> None:
    """As one of a Hugging Face cache: a relative link into its `blobs`."""
    snapshot = tmp_path / "snapshots" / "0123abcd" / "model.safetensors"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to("../../source")
    names = [snapshot, snapshot.resolve(), snapshot.parent / ".." / snapshot.parent.name / snapshot.name]
    links = FileLinks(tmp_path / "new", LinkMode.AUTO, SafeToHardlink())
    assert len({links.link(str(name))[0] for name in names}) == 1
    assert len(list((tmp_path / "new" / "d").iterdir())) == 1


@pytest.mark.parametrize("way", ["copied", "linked"])
def test_a_long_copy_ends_between_pieces(
    way: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, pieces, real = threading.Event(), [], reading.write_at

    def write(descriptor: int, at: int, data: memoryview) -> None:
        pieces.append(len(data))
        stop.set()
        real(descriptor, at, data)

    monkeypatch.setattr(reading, "PIECE", 100)
    monkeypatch.setattr(adopting, "write_at", write)
    (tmp_path / "to").touch()
    with pytest.raises(Cancelled), cancelled_by(stop):
        if way == "linked":
            linked(source, tmp_path / "new", LinkMode.COPY)
        else:
            copy_chunk(Chunk(str(source), 0, len(CONTENT)), tmp_path / "to", [(0, len(CONTENT))])
    assert pieces == [100]


def test_copies_in_pieces_without_what_only_linux_has(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(reading, "PIECE", 1000)
    part = Chunk(str(source), 77, 3001)
    (tmp_path / "to").touch()
    copy_chunk(part, tmp_path / "to", [(0, 3001)])
    assert (tmp_path / "to").read_bytes() == CONTENT[77:3078]
    file = linked(source, tmp_path / "new", LinkMode.COPY)
    assert (tmp_path / "new" / file.name).read_bytes() == CONTENT
    assert file.crc32c == bytes_crc(CONTENT)
