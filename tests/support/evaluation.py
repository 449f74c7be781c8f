"""Evaluating one function on arrays, region by region, as the engine does."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named, kind
from ckpt_surgery.core.selections import Selection, distinct
from ckpt_surgery.functions.base import Function


def spec_of(array: np.ndarray) -> ArraySpec:
    return ArraySpec(array.shape, array.dtype)


def evaluate(function: Function, arrays: Sequence[np.ndarray], region: Region | None = None) -> np.ndarray:
    """A region of the result (all of it by default), from copies of just the regions that it needs."""
    specs = [spec_of(array) for array in arrays]
    result = function.infer(specs)
    region = Region.whole(result.shape) if region is None else region
    blocks = []
    for i, needed in function.needs(region, specs):
        bounds = zip(needed.starts, needed.stops, specs[i].shape, strict=True)
        assert all(0 <= start <= stop <= length for start, stop, length in bounds), (needed, specs[i])
        block = np.array(arrays[i][needed.slices])
        block.flags.writeable = False  # functions are pure
        blocks.append(block)
    found = function.apply(region, specs, blocks)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (region.shape, result.dtype)
    return found


def numbers(spec: str, seed: int = 0) -> np.ndarray:
    """Random values for `float32[3,4]`: small, of both signs where there are, zeros among them."""
    name, _, lengths = spec.rstrip("]").partition("[")
    shape = tuple(map(int, filter(None, lengths.split(","))))
    dtype = dtype_named(name)
    random = np.random.default_rng(seed)
    if kind(dtype) == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    if kind(dtype) == "f":
        return np.asarray(random.normal(size=shape)).astype(dtype)
    low, high = {"b": (0, 2), "i": (-2, 2), "u": (0, 4)}[kind(dtype)]
    return np.asarray(random.integers(low, high, size=shape)).astype(dtype)


@st.composite
def regions(draw: st.DrawFn, shape: tuple[int, ...]) -> Region:
    """Any region of an array of this shape, empty ones included."""
    starts, stops = [], []
    for length in shape:
        bounds = sorted(draw(st.tuples(st.integers(0, length), st.integers(0, length))))
        starts.append(bounds[0])
        stops.append(bounds[1])
    return Region(tuple(starts), tuple(stops))


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...]) -> Selection:
    """Any places along each axis of an array of this shape, ascending; none at all included."""
    places = [draw(st.sets(st.integers(0, length - 1)) if length else st.just(set())) for length in shape]
    return tuple(distinct(np.array(sorted(chosen), np.int64)) for chosen in places)
