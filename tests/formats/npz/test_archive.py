"""The bytes of an archive around its arrays, read by zipfile; numbers that need zip64."""

import io
import zipfile
import zlib

import numpy as np
import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.formats.npz.archive import comment_of, member_name, members_of
from ckpt_surgery.formats.shared.zip.layout import LOCAL_FIELDS, MOST_COMMENT_BYTES
from ckpt_surgery.formats.shared.zip.writing import CRC_AT, archive_end
from tests.support.leaves import array_leaf, key

VALUE = np.arange(6, dtype=np.float32).reshape(2, 3)
LEAVES = [array_leaf("a/w"), Leaf(key("é"), LeafKind.STRING, string="text"), array_leaf("z", (0,))]


def archive(comment: bytes = b"") -> bytes:
    """An archive of LEAVES, put together as it is planned."""
    data, crcs = b"", []
    members = members_of(LEAVES)
    for member in members:
        content = member.begin + (VALUE.tobytes() if member.text == "a/w" else b"")
        crcs.append(zlib.crc32(content))
        assert len(data) == member.place.header
        data += member.place.local_header(crcs[-1])
        assert (len(data), len(data) + len(content)) == (member.place.start, member.place.stop)
        data += content
    return data + archive_end([member.place for member in members], crcs, comment)


def check(data: bytes, comment: bytes = b"") -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert found.namelist() == ["a/w.npy", "é.npy", "z.npy"]
        assert found.testzip() is None
        assert found.comment == comment
    loaded = np.load(io.BytesIO(data))
    assert loaded["a/w"].tolist() == VALUE.tolist()
    assert loaded["é"].item() == "text"
    assert loaded["z"].shape == (0,)


def test_an_archive_is_what_zipfile_and_numpy_read() -> None:
    check(archive(b'{"a": 1}'), b'{"a": 1}')
    assert member_name("é") == b"\xc3\xa9.npy"


@pytest.mark.parametrize("limit", [1, 100, 200, 400])
def test_numbers_that_are_too_large_are_in_zip64_records(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = len(archive())
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.WIDE_FROM", limit)
    data = archive()
    assert len(data) > narrow
    check(data)


def test_many_members_are_counted_in_a_zip64_record(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = len(archive())
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.MOST_ENTRIES", 4)
    assert len(archive()) == narrow
    monkeypatch.setattr("ckpt_surgery.formats.shared.zip.writing.MOST_ENTRIES", 3)
    assert len(archive()) == narrow + 56 + 20


def test_the_checksum_lies_where_it_is_written_later() -> None:
    [member, *_] = members_of(LEAVES)
    header = member.place.local_header(0x01020304)
    assert header[CRC_AT : CRC_AT + 4] == b"\4\3\2\1"
    assert len(header) == LOCAL_FIELDS.size + len(b"a/w.npy")


def test_metadata_that_a_comment_cannot_hold_is_refused() -> None:
    assert comment_of({}) == b""
    assert comment_of({"é": 1}).isascii()
    fits = MOST_COMMENT_BYTES - len(comment_of({"a": ""}))
    assert len(comment_of({"a": "x" * fits})) == MOST_COMMENT_BYTES
    with pytest.raises(UsageError, match=r"takes 65536 bytes; an \.npz file holds 65535"):
        comment_of({"a": "x" * (fits + 1)})
