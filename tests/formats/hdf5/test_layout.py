"""The file object in which libhdf5 makes a file without its elements."""

import itertools
import os

from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.formats.hdf5.layout import SparseFile


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.binary(max_size=40)), max_size=12), st.integers(0, 21_000)
)
def test_it_is_a_file(writes: list[tuple[int, bytes]], size: int) -> None:
    """As bytes in memory are; its pieces are what was written, and lie apart from each other."""
    made, plain, touched = SparseFile(), bytearray(), set()
    for at, data in writes:
        made.seek(at)
        assert made.write(data) == len(data)
        if data:
            plain.extend(bytes(max(0, at + len(data) - len(plain))))
            plain[at : at + len(data)] = data
            touched |= set(range(at, at + len(data)))
    made.truncate(size)
    whole = bytes(plain[:size].ljust(size, b"\0"))
    made.seek(0)
    assert made.read(size) == whole
    assert made.seek(0, os.SEEK_END) == made.size == size
    pieces = list(made.pieces())
    assert all(whole[at : at + len(data)] == data for at, data in pieces)
    covered = [at + i for at, data in pieces for i in range(len(data))]
    assert covered == sorted(n for n in touched if n < size)
    assert all(a + len(data) < b for (a, data), (b, _) in itertools.pairwise(pieces))
