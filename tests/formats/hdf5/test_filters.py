"""Decoding of chunks, against h5py and by hand."""

import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.filters import (
    DEFLATE,
    FLETCHER32,
    LZF,
    SHUFFLE,
    Filter,
    decoded,
    fletcher32,
    short_name,
)

DATA = bytes(range(200)) * 3


def by_hand(data: bytes) -> int:
    """The checksum as libhdf5 adds it up, carries and all."""
    low = high = 0
    padded = data + bytes(len(data) % 2)
    for at in range(0, len(padded), 2):
        low += padded[at] << 8 | padded[at + 1]
        high += low
        low, high = (low & 0xFFFF) + (low >> 16), (high & 0xFFFF) + (high >> 16)
    low, high = (low & 0xFFFF) + (low >> 16), (high & 0xFFFF) + (high >> 16)
    return high << 16 | low


@given(st.binary(max_size=50) | st.integers(0, 40).map(lambda n: b"\xff" * n))
def test_the_checksum_adds_up(data: bytes) -> None:
    assert fletcher32(data) == by_hand(data)


@pytest.mark.parametrize("count", [1, 2, 3, 719, 720, 721, 5000, 100_000])
def test_the_checksum_is_that_of_the_library(count: int, tmp_path: Path) -> None:
    value = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("x", data=value, chunks=(count,), fletcher32=True)
        made.flush()
        stored = made.id.read_direct_chunk((0,))[1]
    assert stored[-4:] == fletcher32(value.tobytes()).to_bytes(4, "little")


def test_filters_are_undone_in_reverse() -> None:
    shuffled = np.frombuffer(DATA, np.uint8).reshape(-1, 4).T.tobytes()
    sealed = shuffled + fletcher32(shuffled).to_bytes(4, "little")
    filters = (Filter(SHUFFLE, 4), Filter(FLETCHER32), Filter(DEFLATE))
    assert decoded(zlib.compress(sealed), filters, 0, len(DATA)) == DATA
    assert decoded(sealed, filters, 0b100, len(DATA)) == DATA
    assert decoded(DATA, filters, 0b111, len(DATA)) == DATA
    assert decoded(zlib.compress(DATA), filters, 0b011, len(DATA)) == DATA
    with pytest.raises(SourceError, match="do not have the checksum"):
        decoded(zlib.compress(sealed[:-1] + b"\0"), filters, 0, len(DATA))


def test_elements_that_do_not_fill_the_chunk_are_not_shuffled() -> None:
    assert decoded(b"acbdXY", (Filter(SHUFFLE, 4),), 0, 6) == b"acbdXY"
    assert decoded(b"acbdXYZ", (Filter(SHUFFLE, 2),), 0, 7) == b"adcXbYZ"


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"", b""),
        (b"\x02abc", b"abc"),
        (b"\x00a\x20\x00", b"aaaa"),  # three bytes from one before
        (b"\x02abc\x40\x02", b"abcabca"),
        (b"\x01ab\xe0\x05\x01", b"ab" * 8),  # a length of more than 8
        (b"\x02abc\x20\x02\x00d", b"abcabcd"),
    ],
)
def test_lzf(stream: bytes, found: bytes) -> None:
    assert decoded(stream, (Filter(LZF),), 0, len(found)) == found


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for number in (DEFLATE, LZF, FLETCHER32, SHUFFLE):
        try:
            assert len(decoded(data, (Filter(number, 4),), 0, 20)) == 20
        except SourceError as error:
            assert str(error).startswith("a chunk")


def test_names() -> None:
    gzip, lzf, shuffle, checked = (Filter(n) for n in (DEFLATE, LZF, SHUFFLE, FLETCHER32))
    assert [short_name(f) for f in ((shuffle, gzip, checked), (lzf, checked), (shuffle, checked), ())] == [
        *("gzip", "lzf", "fletcher32", "raw")
    ]
