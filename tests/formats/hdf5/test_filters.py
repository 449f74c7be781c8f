"""Decoding of chunks, by hand; test_hdf5.py has what h5py writes."""

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.filters import DEFLATE, SHUFFLE, Filter, decoded, short_name

DATA = bytes(range(200)) * 3


def test_filters_are_undone_in_reverse() -> None:
    shuffled = np.frombuffer(DATA, np.uint8).reshape(-1, 4).T.tobytes()
    assert decoded(zlib.compress(shuffled), (Filter(SHUFFLE, 4), Filter(DEFLATE)), len(DATA)) == DATA
    assert decoded(shuffled, (Filter(SHUFFLE, 4),), len(DATA)) == DATA
    assert decoded(zlib.compress(DATA), (Filter(DEFLATE),), len(DATA)) == DATA


def test_elements_that_do_not_fill_the_chunk_are_not_shuffled() -> None:
    assert decoded(b"acbdXY", (Filter(SHUFFLE, 4),), 6) == b"acbdXY"
    assert decoded(b"acbdXYZ", (Filter(SHUFFLE, 2),), 7) == b"adcXbYZ"


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for number in (DEFLATE, SHUFFLE):
        try:
            assert len(decoded(data, (Filter(number, 4),), 20)) == 20
        except SourceError as error:
            assert str(error).startswith("a chunk")


def test_names() -> None:
    gzip, shuffle = Filter(DEFLATE), Filter(SHUFFLE)
    names = [short_name(filters) for filters in ((shuffle, gzip), (shuffle,), ())]
    assert names == ["gzip", "shuffle", "raw"]
