"""What is refused of chunks, whatever index of them libhdf5 reads."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import Chunk
from ckpt_surgery.formats.hdf5.datasets import FileSpan, _Chunks, decoded

SPEC = ArraySpec((10, 6), np.dtype(np.float32))


def chunks() -> _Chunks:
    return _Chunks(SPEC, (4, 3), (), FileSpan("x.h5", 1000, 200))


def told(offset: tuple[int, ...], at: int, size: int = 48, mask: int = 0) -> SimpleNamespace:
    return SimpleNamespace(chunk_offset=offset, byte_offset=at, size=size, filter_mask=mask)


def test_chunks_by_their_index() -> None:
    found = chunks()
    for one in (told((0, 3), 0), told((8, 0), 100)):
        found.add(one)
    assert found.chunks == {(0, 1): Chunk("x.h5", 1000, 48), (2, 0): Chunk("x.h5", 1100, 48)}


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (told((0, 3), 100), "two chunks at"),
        (told((0, 1), 0), "outside of its grid"),
        (told((12, 0), 0), "outside of its grid"),
        (told((4, 0), 160), "begins at byte 160 of 200"),
        (told((4, 0), 2**63), "begins at byte"),
        (told((4, 0), 0, 47), "a chunk of 48 bytes is stored in 47"),
        (told((4, 0), 0, 153), "several chunks share them"),
        (told((4, 0), 100, mask=1), "stored without its filters"),
    ],
)
def test_chunks_that_cannot_be(one: SimpleNamespace, says: str) -> None:
    found = chunks()
    found.add(told((0, 3), 0))
    with pytest.raises(SourceError, match=says):
        found.add(one)


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
