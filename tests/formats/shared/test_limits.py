"""What no array may exceed."""

import pytest

from ckpt_surgery.formats.shared.limits import MOST_BYTES, beyond_memory


@pytest.mark.parametrize(
    ("shape", "itemsize", "beyond"),
    [
        ((), 8, False),
        ((MOST_BYTES,), 1, False),
        ((MOST_BYTES,), 2, True),
        ((2**32, 2**31), 1, True),
        ((0, 2**62, 2**62), 1, True),  # NumPy counts the other axes all the same
        ((0,), 8, False),
        ((MOST_BYTES,), 0, False),  # elements without bytes count as one each
    ],
)
def test_shapes_beyond_memory(shape: tuple[int, ...], itemsize: int, beyond: bool) -> None:
    assert beyond_memory(shape, itemsize) is beyond
