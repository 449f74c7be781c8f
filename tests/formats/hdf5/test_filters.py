"""Decoding of chunks, by hand; test_hdf5.py has what h5py writes."""

import zlib
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.filters import decoded

DATA = bytes(range(200)) * 3
GZIP = {"hdf5": "gzip"}


def shuffle(size: int) -> dict[str, Any]:
    return {"hdf5": "shuffle", "size": size}


def test_filters_are_undone_in_reverse() -> None:
    shuffled = np.frombuffer(DATA, np.uint8).reshape(-1, 4).T.tobytes()
    assert decoded(zlib.compress(shuffled), [shuffle(4), GZIP], len(DATA)) == DATA
    assert decoded(shuffled, [shuffle(4)], len(DATA)) == DATA
    assert decoded(zlib.compress(DATA), [GZIP], len(DATA)) == DATA


def test_elements_that_do_not_fill_the_chunk_are_not_shuffled() -> None:
    assert decoded(b"acbdXY", [shuffle(4)], 6) == b"acbdXY"
    assert decoded(b"acbdXYZ", [shuffle(2)], 7) == b"adcXbYZ"


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for step in (GZIP, shuffle(4)):
        try:
            assert len(decoded(data, [step], 20)) == 20
        except SourceError as error:
            assert str(error).startswith("a chunk")
