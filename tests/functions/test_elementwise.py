"""Broadcasting: which elements of an input a region of the result is computed from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.functions.elementwise import broadcast_needs
from tests.support.strategies import regions, shapes


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_broadcasting_needs_are_exact(data: st.DataObject) -> None:
    shape = data.draw(shapes(4, 1))
    kept = data.draw(st.integers(0, len(shape)))
    part = tuple(data.draw(st.sampled_from([1, n])) for n in shape[kept:])
    region = data.draw(regions(shape))
    array = np.arange(np.prod(part, dtype=int)).reshape(part)
    block = array[broadcast_needs(region, part).slices]
    assert np.array_equal(np.broadcast_to(block, region.shape), np.broadcast_to(array, shape)[region.slices])
    assert block.size <= region.size or not region.size
