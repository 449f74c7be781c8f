"""Files and chunks that are whole, cut, gone or changed, without a value being read."""

import os
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
from google_crc32c import value as crc32c

from ckpt_surgery.core.arguments import LinkMode
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Codec, Manifest, bytes_codec, encoding_of
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.engine.worker import Means
from ckpt_surgery.verification import reading_back
from ckpt_surgery.verification.reading_back import Checker
from tests.support.counting import calls_of

ZSTD = Codec("zstd", (0,), encoding_of([bytes_codec("little"), {"name": "zstd"}]))
COUNT = 300


def leaves_in(path: Path) -> list[Leaf]:
    """Leaves of one compressed chunk each, all in one file."""
    spec, data, found = ArraySpec((50,), np.dtype(np.float32)), b"", []
    for i in range(COUNT):
        stored = bytes(numcodecs.Zstd().encode(np.random.default_rng(i).bytes(200)))
        manifest = Manifest(spec, (50,), ZSTD, {(0,): Chunk(str(path), len(data), len(stored))})
        found.append(Leaf(Key.parse(f"x{i}"), LeafKind.ARRAY, spec, manifest))
        data += stored
    path.write_bytes(data)
    return found


def flaws(leaves: list[Leaf]) -> list[tuple[Any, Any, str]]:
    checker = Checker(Means(1 << 30, 2))
    checker.check_chunks(leaves)
    return [(flaw.key, flaw.chunk, flaw.what) for flaw in checker.flaws]


def test_many_chunks_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened once, and each small chunk takes one read."""
    leaves, calls = leaves_in(tmp_path / "data"), calls_of(reading_back, monkeypatch)
    assert flaws(leaves) == []
    assert calls == ["open", *["read"] * COUNT]


def test_copies_of_whole_files(tmp_path: Path) -> None:
    data = os.urandom(9_000_000)
    (tmp_path / "copy").write_bytes(data)
    copy = AdoptedFile("copy", "/source", LinkMode.COPY, len(data), 1, crc32c(data))
    link = AdoptedFile("link", "/source", LinkMode.HARDLINK, 5, 1)
    checker = Checker(Means(1 << 30, 2))
    checker.check_copies(str(tmp_path), [copy, link])
    assert checker.flaws == []
    (tmp_path / "copy").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    checker.check_copies(str(tmp_path), [copy])
    (tmp_path / "copy").unlink()
    checker.check_copies(str(tmp_path), [copy])
    first, second = checker.flaws
    assert first.what.startswith("the file copy: its checksum is ")
    assert second.what.endswith("copy cannot be read: No such file or directory")


@pytest.mark.parametrize(
    ("how", "size", "earlier", "sample", "flaw", "retimed"),
    [
        (LinkMode.HARDLINK, 5, 0, crc32c(b"12345"), "", False),  # nothing has changed
        (LinkMode.HARDLINK, 5, 1, crc32c(b"12345"), "", True),  # a time decides nothing
        (LinkMode.REFLINK, 5, 1, crc32c(b"12345"), "", False),  # its time is another from the beginning
        (LinkMode.HARDLINK, 5, 0, crc32c(b"12346"), "content", False),  # the old time proves nothing
        (LinkMode.REFLINK, 5, 0, crc32c(b"12346"), "content", False),
        (LinkMode.COPY, 5, 0, crc32c(b"12346"), "content", False),
        (LinkMode.HARDLINK, 6, 0, crc32c(b"123456"), "size 6 → 5", False),
        (LinkMode.HARDLINK, 5, 0, None, "", False),  # the record of an earlier version
        (LinkMode.HARDLINK, 5, 1, None, "", True),
        (LinkMode.HARDLINK, 6, 1, None, "size 6 → 5", False),
    ],
)
def test_shared_files(
    how: LinkMode, size: int, earlier: int, sample: int | None, flaw: str, retimed: bool, tmp_path: Path
) -> None:
    (tmp_path / "one").write_bytes(b"12345")
    modified = (tmp_path / "one").stat().st_mtime_ns - earlier
    file = AdoptedFile("one", "/from\x1b", how, size, modified, sample=sample)
    checker = Checker(Means(1 << 30, 2))
    found = checker.check_shared(str(tmp_path), [file])
    shares = r", which it shares with /from\x1b," if how is LinkMode.HARDLINK else ""
    told = [f"its file one{shares} has changed since it was written: {flaw}"] if flaw else []
    assert [one.what for one in checker.flaws] == told
    assert found == ([file] if retimed else [])
