"""Linked and copied data files."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.arrays import Chunk, LinkMode
from ckpt_surgery.errors import SourceError, StorageError
from ckpt_surgery.formats import data_files
from ckpt_surgery.formats.data_files import DataFiles
from ckpt_surgery.stopping import Stopped, until

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
    with pytest.raises(StorageError, match=r"(?s)cross-device.*--link-mode copy"):
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
    with pytest.raises(StorageError, match="No such file"):
        DataFiles(tmp_path / "new", LinkMode.AUTO).linked(Chunk(str(tmp_path / "gone"), 0, 1))


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
