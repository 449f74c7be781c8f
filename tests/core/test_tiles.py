"""Blocks moved in tiles: the same elements, whatever the order in which they lie."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core import tiles
from ckpt_surgery.core.arrays import chunk_regions
from ckpt_surgery.core.tiles import contiguous_tile, copy_into, tile_shape, to_c_order
from tests.support.effort import examples
from tests.support.strategies import shapes

DTYPES = [
    np.dtype(t) for t in (np.int8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128)
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a few elements, so that small arrays have many of them."""
    monkeypatch.setattr(tiles, "EDGE", 4)
    monkeypatch.setattr(tiles, "ROWS", 10)
    monkeypatch.setattr(tiles, "CACHE", 0)


@st.composite
def blocks(draw: st.DrawFn, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Elements that differ, in C order, or permuted, reversed, with gaps, or cut out of a larger block."""
    ndim = draw(st.integers(0, 4)) if shape is None else len(shape)
    order = draw(st.permutations(range(ndim)))
    lengths = shape or tuple(draw(st.integers(0, 12)) for _ in range(ndim))
    steps = [draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in range(ndim)]
    stored = [0] * ndim
    for axis, place in enumerate(order):
        stored[place] = lengths[axis] * abs(steps[axis])
    dtype = draw(st.sampled_from(DTYPES))
    filled = np.arange(int(np.prod(stored)), dtype=np.int64).astype(np.int8).astype(dtype).reshape(stored)
    return filled.transpose(order)[(..., *(slice(None, None, step) for step in steps))]


@examples(200)
@given(block=blocks())
def test_a_straightened_block_has_the_same_elements(block: np.ndarray) -> None:
    straight = to_c_order(block)
    assert (straight.dtype, straight.shape) == (block.dtype, block.shape)
    assert straight.tobytes() == block.tobytes()
    assert contiguous_tile(block).tobytes() == block.tobytes()


@examples(200)
@given(data=st.data())
def test_a_block_is_copied_into_any_other(data: st.DataObject) -> None:
    shape = data.draw(shapes(9, 1))
    target, block = (data.draw(blocks(shape)) for _ in range(2))
    target = np.flip(target) if target.ndim else target.copy()
    expected = np.real(block).astype(np.real(target).dtype).astype(target.dtype)
    copy_into(target, np.real(block))
    np.testing.assert_array_equal(target, expected)


def test_a_large_transposed_block_becomes_c_order() -> None:
    block = np.arange(20.0).reshape(4, 5).T
    assert to_c_order(block).flags.c_contiguous
    rows = np.arange(20.0).reshape(4, 5)[:, :4]
    assert to_c_order(rows) is rows


@pytest.mark.parametrize(
    ("block", "tile"),
    [
        (np.zeros((7, 4)), (2, 4)),  # whole rows, no more than ten elements
        (np.zeros((7, 40)), (1, 10)),
        (np.zeros((40, 7)).T, (4, 4)),  # a square
        (np.zeros((2, 40)).T, (8, 2)),  # one side is short, so the other is longer
        (np.zeros((7, 6, 5)).transpose(2, 1, 0), (4, 1, 4)),  # the two near axes
        (np.zeros((2, 2, 2)).transpose(2, 1, 0), (2, 2, 2)),
    ],
)
def test_tile_shape(block: np.ndarray, tile: tuple[int, ...]) -> None:
    assert tile_shape(block.shape, [np.zeros(block.shape), block]) == tile


def test_what_is_transposed_within_the_cache_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices in a large array: their transposes stay in the cache."""
    monkeypatch.setattr(tiles, "CACHE", 1000)
    monkeypatch.setattr(tiles, "chunk_regions", lambda *given: pytest.fail("cut into tiles"))
    block = np.arange(1200.0).reshape(100, 4, 3).transpose(0, 2, 1)
    assert to_c_order(block).tobytes() == block.tobytes()
    monkeypatch.setattr(tiles, "chunk_regions", chunk_regions)
    far = np.arange(1200.0).reshape(100, 4, 3).transpose(2, 1, 0)
    assert to_c_order(far).tobytes() == far.tobytes()
