"""Reading values in blocks, within a budget."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Codec, Manifest
from ckpt_surgery.inference import reading
from ckpt_surgery.inference.formations import Value
from ckpt_surgery.inference.reading import blocks, evaluated, fingerprint_of, fingerprints_of
from ckpt_surgery.inference.values import node_of
from tests.inference.two_sides import assert_equal, fingerprint, leaf_of, normal, reader, side
from tests.support.comparing import same
from tests.support.leaves import array_leaf, leaf
from tests.support.strategies import chunk_shapes, shapes

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def encoded(shape: Shape, chunk: Shape) -> Leaf:
    """A leaf that is stored in compressed chunks."""
    spec = ArraySpec(shape, F32)
    codec = Codec("zstd", tuple(range(len(shape))), "[]")
    return array_leaf("w", shape, F32, manifest=Manifest(spec, chunk, codec, {}))


@given(shape=shapes(6, min_length=1, max_ndim=3), memory=st.integers(1, 2000), data=st.data())
def test_blocks_cover_a_leaf_once(shape: Shape, memory: int, data: st.DataObject) -> None:
    chunk = data.draw(st.none() | chunk_shapes(shape))
    one = array_leaf("w", shape) if chunk is None else encoded(shape, chunk)
    seen = np.zeros(shape, int)
    for region in blocks(one, memory):
        seen[region.slices] += 1
        assert chunk is not None or region.size * 4 <= max(4, memory // 8)
    assert (seen == 1).all()


def regions(found: Iterator[Region]) -> list[tuple[Shape, Shape]]:
    return [(region.starts, region.stops) for region in found]


def test_blocks_of_raw_leaves_are_rows() -> None:
    assert regions(blocks(array_leaf("w", (4, 6)), 8 * 48)) == [((0, 0), (2, 6)), ((2, 0), (4, 6))]


def test_chunks_are_read_whole() -> None:
    """A chunk that is read in parts is decoded once for each of them."""
    for region in blocks(encoded((5, 6), (2, 4)), 1 << 20):
        assert all(start % edge == 0 for start, edge in zip(region.starts, (2, 4), strict=True))


def test_fingerprints_of_all_numbers() -> None:
    arrays = {"a": normal(4, 6), "b": np.arange(5)}
    leaves = {key: leaf_of(key, array) for key, array in arrays.items()}
    leaves |= {"s": leaf("s", "string"), "e": leaf("e", "empty")}
    done: list[int] = []
    found = fingerprints_of(leaves, reader(arrays), 8 * 24, [BF16, F32], done.append)
    assert {key: set(known) for key, known in found.items()} == {"a": {F32, BF16}, "b": {arrays["b"].dtype}}
    assert_equal(found["a"][F32], fingerprint(arrays["a"]))
    assert_equal(found["a"][BF16], fingerprint(arrays["a"].astype(BF16)))
    assert_equal(found["b"][arrays["b"].dtype], fingerprint(arrays["b"]))
    assert done == [96, 40]


def test_the_fingerprint_of_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"a": normal(4, 6), "b": normal(4, 6, seed=1)}
    wanted = np.stack([arrays["a"].T, arrays["b"].T]) * np.float32(0.5)
    value = Value("rearrange(stack(xs), 'l a b -> l b a') * 0.5")
    leaves = [leaf_of(key, array) for key, array in arrays.items()]
    monkeypatch.setattr(reading, "BLOCK", 40)  # bytes: many blocks
    assert_equal(fingerprint_of(value, leaves, side(arrays), F32), fingerprint(wanted))
    assert_equal(fingerprint_of(value, leaves, side(arrays), BF16), fingerprint(wanted.astype(BF16)))
    wide = fingerprint_of(value, leaves, side(arrays), np.dtype(np.float64))
    assert_equal(wide, fingerprint(wanted.astype(np.float64)))


def test_a_region_of_an_expression() -> None:
    arrays = {"a": normal(4, 6)}
    node = node_of(Value("x.T"), [leaf_of("a", arrays["a"])])
    found = evaluated(node, Region((1, 2), (3, 4)), side(arrays))
    assert same(found, arrays["a"].T[1:3, 2:4])
