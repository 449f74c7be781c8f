"""Decoding of chunks, by hand; test_hdf5.py has what h5py writes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.hdf5.filters import decoded

GZIP = {"hdf5": "gzip"}


def shuffle(size: int) -> dict[str, Any]:
    return {"hdf5": "shuffle", "size": size}


@given(st.binary(max_size=30))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for step in (GZIP, shuffle(4)):
        try:
            assert len(decoded(data, [step], 20)) == 20
        except SourceError as error:
            assert str(error).startswith("a chunk")
