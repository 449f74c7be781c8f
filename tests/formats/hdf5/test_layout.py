"""The file object in which libhdf5 makes a file without its elements."""

import itertools
import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.formats.hdf5.layout import SparseFile, image_of
from tests.support.arrays import array
from tests.support.writing import leaf_of


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


def test_arrays_lie_apart_from_each_other_and_from_the_rest() -> None:
    arrays = {f"g{i % 5}/x{i}": array((i % 4, 7), "float32") for i in range(100)}
    arrays["large"], arrays["one"] = array((500, 600), "uint8"), np.array(3.0)
    image = image_of("x", [leaf_of(name, value) for name, value in arrays.items()], {"about": "x" * 500})
    ranges = [(at, at + len(data)) for at, data in image.pieces]
    of_arrays = {name: place.ranges for name, place in image.arrays.items()}
    ranges += [(at, at + length) for places in of_arrays.values() for at, length in places]
    ranges.sort()
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert ranges[-1][1] <= image.size
    lengths = {name: sum(length for _, length in places) for name, places in of_arrays.items()}
    assert lengths == {name: value.nbytes for name, value in arrays.items()}
