"""The bytes of an archive around its arrays, read by zipfile; numbers that need zip64."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Output
from ckpt_surgery.formats.npz.archive import comment_of
from ckpt_surgery.formats.opening import open_sink
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.shared.zip.layout import MOST_COMMENT_BYTES
from tests.support.leaves import array_leaf, key
from tests.support.writing import write_all

VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)
LEAVES = [array_leaf("a/w"), Leaf(key("é"), LeafKind.STRING, string="text"), array_leaf("z", (0,))]


def archive(directory: Path, metadata: Mapping[str, Any] | None = None) -> bytes:
    """An archive of LEAVES."""
    outputs = [Output(leaf, (2, 3)) for leaf in LEAVES]
    options = SinkOptions(metadata=metadata or {})
    write_all(open_sink("npz", directory, options, outputs), {"a/w": VALUE, "z": np.ones(0, np.float32)})
    return (directory / "checkpoint.npz").read_bytes()


def check(data: bytes, comment: bytes = b"") -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert found.namelist() == ["a/w.npy", "é.npy", "z.npy"]
        assert found.testzip() is None
        assert found.comment == comment
    loaded = np.load(io.BytesIO(data))
    assert loaded["a/w"].tolist() == VALUE.tolist()
    assert loaded["é"].item() == "text"
    assert loaded["z"].shape == (0,)


def test_an_archive_is_what_zipfile_and_numpy_read(tmp_path: Path) -> None:
    check(archive(tmp_path, {"a": 1}), b'{"a":1}')


@pytest.mark.parametrize("limit", [1, 100, 200, 400])
def test_numbers_that_are_too_large_are_in_zip64_records(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = len(archive(tmp_path))
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.WIDE_FROM", limit)
    data = archive(tmp_path)
    assert len(data) > narrow
    check(data)


def test_many_members_are_counted_in_a_zip64_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = len(archive(tmp_path))
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.MOST_ENTRIES", 4)
    assert len(archive(tmp_path)) == narrow
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.MOST_ENTRIES", 3)
    assert len(archive(tmp_path)) == narrow + 56 + 20


def test_metadata_that_a_comment_cannot_hold_is_refused() -> None:
    assert comment_of({}) == b""
    assert comment_of({"é": 1}).isascii()
    fits = MOST_COMMENT_BYTES - len(comment_of({"a": ""}))
    assert len(comment_of({"a": "x" * fits})) == MOST_COMMENT_BYTES
    with pytest.raises(UsageError, match=r"takes 65536 bytes; an \.npz file holds 65535"):
        comment_of({"a": "x" * (fits + 1)})
