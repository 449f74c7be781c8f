"""Deflated members: streams that lie about their length, their end or their content."""

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zip.inflating import PIECE, Inflated, check_crc, read_member
from ckpt_surgery.formats.shared.zip.members import Member
from ckpt_surgery.storage.reading import OpenFile, opened
from tests.formats.bounds import bounded

DATA = random.Random(0).randbytes(1000) * 3
"""Neither all noise nor all the same."""


def deflated(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


STREAM = deflated(DATA)


@contextmanager
def member_in(
    path: Path, stream: bytes = STREAM, size: int = len(DATA), crc: int = zlib.crc32(DATA)
) -> Iterator[tuple[OpenFile, Member]]:
    """A file with a deflated member between other bytes, and what its directory says of it."""
    path.write_bytes(b"before" + stream + b"after")
    with opened(str(path)) as file:
        yield file, Member("a\nb", 6, len(stream), size, crc, True)


LIES = (
    ("inflates to more", {"size": len(DATA) - 1}, "should have 2999 bytes, but it inflates to more"),
    ("inflates to less", {"size": len(DATA) + 1}, "should have 3001 bytes, but it inflates to 3000 bytes on"),
    ("breaks off", {"stream": STREAM[:-1]}, "breaks off"),
    ("breaks off at once", {"stream": b""}, "breaks off"),
    ("is followed by bytes", {"stream": STREAM + b"\0"}, "ends before its stored bytes do"),
    ("is followed by a piece", {"stream": STREAM + bytes(PIECE)}, "ends before its stored bytes do"),
    ("is no stream", {"stream": b"\xff" * 100}, "it cannot be inflated"),
    ("has another content", {"crc": 5}, r"has the CRC-32 [0-9a-f]{8}, where 00000005 was recorded"),
)


@pytest.mark.parametrize(("lie", "says"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES])
def test_a_member_that_is_not_what_the_directory_says_is_refused(
    lie: dict[str, int | bytes], says: str, tmp_path: Path
) -> None:
    with (
        member_in(tmp_path / "x", **lie) as (file, member),  # type: ignore[arg-type]
        pytest.raises(SourceError, match=says) as caught,
    ):
        read_member(file, member, most=10**6)
    assert str(tmp_path / "x") in str(caught.value)
    assert "`a\\nb`" in str(caught.value)  # a name cannot break the message into lines


def test_a_whole_member_is_read_only_up_to_the_limit(tmp_path: Path) -> None:
    with member_in(tmp_path / "x") as (file, member):
        assert read_member(file, member, most=3000) == DATA
        with pytest.raises(SourceError, match="has 3000 bytes; 2999 is the limit"):
            read_member(file, member, most=2999)


def test_a_member_that_claims_too_much_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    with (
        member_in(tmp_path / "x", size=2**40) as (file, member),
        bounded(2**20),
        pytest.raises(SourceError, match=r"1099511627776 bytes; 1048576 is the limit"),
    ):
        read_member(file, member, most=2**20)


def test_a_bomb_produces_no_more_than_was_asked_for(tmp_path: Path) -> None:
    """A stream of 100 KB that inflates to 100 MB, of a member that claims 1 KB."""
    with member_in(tmp_path / "x", deflated(bytes(10**8)), size=1000) as (file, member), bounded(10**6):
        stream, buffer = Inflated(member), bytearray(b"\1" * 1000)
        stream.read_into(file, 0, memoryview(buffer))
        assert bytes(buffer) == bytes(1000)
        assert stream.position == 1000
        with pytest.raises(SourceError, match="it inflates to more"):
            stream.finish(file)


def test_stored_members_are_checked_too(tmp_path: Path) -> None:
    with member_in(tmp_path / "x", DATA) as (file, member):
        stored = replace(member, deflated=False)
        assert read_member(file, stored, most=3000) == DATA
        with pytest.raises(SourceError, match="where 00000000 was recorded"):
            read_member(file, replace(stored, crc=0), most=3000)
        check_crc(file.path, stored, zlib.crc32(DATA))


def test_reads_go_forwards_over_gaps_and_the_checksum_covers_the_gaps(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3 * PIECE)
    with member_in(tmp_path / "x", deflated(data), len(data), zlib.crc32(data)) as (file, member):
        stream = Inflated(member)
        for start, length in ((5, 10), (15, 1), (PIECE - 3, 6), (2 * PIECE, PIECE - 7)):
            buffer = bytearray(length)
            stream.within(file).read_into(start, memoryview(buffer))
            assert buffer == data[start : start + length]
            assert stream.position == start + length
        stream.finish(file)
        assert stream.position == len(data)


def test_an_empty_member_has_a_stream_that_must_end(tmp_path: Path) -> None:
    with member_in(tmp_path / "x", deflated(b""), 0, 0) as (file, member):
        assert read_member(file, member, most=0) == b""
    with (
        member_in(tmp_path / "x", deflated(b"?"), 0, 0) as (file, member),
        pytest.raises(SourceError, match="should have 0 bytes, but it inflates to more"),
    ):
        read_member(file, member, most=0)
