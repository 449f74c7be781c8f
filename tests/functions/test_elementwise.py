"""Broadcasting: which elements of an input a region of the result is computed from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.functions.elementwise import broadcast_needs


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_broadcasting_needs_are_exact(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=4)))
    kept = data.draw(st.integers(0, len(shape)))
    part = tuple(data.draw(st.sampled_from([1, n])) for n in shape[kept:])
    starts = tuple(data.draw(st.integers(0, n)) for n in shape)
    stops = tuple(data.draw(st.integers(a, n)) for a, n in zip(starts, shape, strict=True))
    region = Region(starts, stops)
    array = np.arange(np.prod(part, dtype=int)).reshape(part)
    block = array[broadcast_needs(region, part).slices]
    assert np.array_equal(np.broadcast_to(block, region.shape), np.broadcast_to(array, shape)[region.slices])
    assert block.size <= region.size or not region.size
