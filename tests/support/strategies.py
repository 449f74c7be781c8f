"""What properties are tried on: shapes, regions, chunks, arrays, texts, documents, damaged files."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import dtype_named, limits
from ckpt_surgery.core.selections import Selection, distinct
from tests.support.arrays import array

Damages = Sequence[tuple[int, int]]
"""Offsets in a file, and the bytes that are written there."""


def shapes(
    max_length: int, min_length: int = 0, min_ndim: int = 0, max_ndim: int = 4
) -> st.SearchStrategy[Shape]:
    """Shapes of so many axes, each of a length between the bounds."""
    return st.lists(st.integers(min_length, max_length), min_size=min_ndim, max_size=max_ndim).map(tuple)


@st.composite
def regions(draw: st.DrawFn, shape: Shape, empty: bool = True) -> Region:
    """Any region of an array of this shape; with `empty`, regions without elements too."""
    starts, stops = [], []
    for length in shape:
        start = draw(st.integers(0, length if empty else length - 1))
        starts.append(start)
        stops.append(draw(st.integers(start if empty else start + 1, length)))
    return Region(tuple(starts), tuple(stops))


@st.composite
def regions_of_shapes(draw: st.DrawFn, of: st.SearchStrategy[Shape]) -> tuple[Shape, Region]:
    """A shape, and any region of it."""
    shape = draw(of)
    return shape, draw(regions(shape))


@st.composite
def selections(draw: st.DrawFn, shape: Shape) -> Selection:
    """Any places along each axis of an array of this shape, ascending; none at all included."""
    places = [draw(st.sets(st.integers(0, length - 1)) if length else st.just(set())) for length in shape]
    return tuple(distinct(np.array(sorted(chosen), np.int64)) for chosen in places)


def chunk_shapes(shape: Shape) -> st.SearchStrategy[Shape]:
    """Shapes of chunks, none longer than the array; most of them divide nothing evenly."""
    return st.tuples(*(st.integers(1, max(1, length)) for length in shape))


def named_arrays(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, np.ndarray]]:
    """A few small arrays by name, of one, two and eight bytes per element; none at all included."""
    arrays = st.builds(array, shapes(4), st.sampled_from(["uint8", "bfloat16", "float64"]))
    return st.dictionaries(names, arrays, max_size=6)


def integers_of(dtype: str) -> st.SearchStrategy[int]:
    """Every integer of a dtype; its limits and small numbers most often."""
    low, high = map(int, limits(dtype_named(dtype)))
    near = [n for n in (low, low + 1, -3, -1, 0, 1, 2, 3, high // 2, high - 1, high) if low <= n <= high]
    return st.sampled_from(near) | st.integers(low, high)


def unicode(max_size: int, without: str = "") -> st.SearchStrategy[str]:
    """Texts that UTF-8 can encode: everything but lone surrogates, and the characters in `without`."""
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters=without), max_size=max_size)


def documents(
    leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[Any], max_leaves: int = 100
) -> st.SearchStrategy[Any]:
    """Leaves, and lists and dictionaries of documents."""
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=max_leaves,
    )


def damages(
    end: int, least: int = 0, most: int = 3, written: Iterable[int] = range(256)
) -> st.SearchStrategy[Damages]:
    """Between `least` and `most` bytes that are written at offsets up to `end`; see `damaged`."""
    places = st.tuples(st.integers(0, end), st.sampled_from(list(written)))
    return st.lists(places, min_size=least, max_size=most)


def damaged(data: bytes, damages: Damages, end: int | None = None) -> bytes:
    """A copy of `data` with bytes overwritten; offsets wrap around at `end`, by default that of the data."""
    changed = bytearray(data)
    for offset, byte in damages:
        changed[offset % (len(data) if end is None else end)] = byte
    return bytes(changed)
