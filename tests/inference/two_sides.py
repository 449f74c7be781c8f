"""Arrays in memory as the two sides of `infer`, and random layouts of their elements."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.expressions.expression_text import keys_and_value
from ckpt_surgery.inference.expressions.formations import Value
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.expressions.source_expressions import SourceExpression, laid, of_leaves
from ckpt_surgery.inference.values.fingerprints import Fingerprint, fingerprints
from ckpt_surgery.inference.values.reading import Side, evaluated, fingerprints_of, node_of
from tests.support.leaves import leaf

Arrays = Mapping[str, np.ndarray]
MEMORY = 1 << 30


def fingerprint(
    array: np.ndarray, block: Sequence[int] | None = None, rounded: np.dtype[Any] | None = None
) -> Fingerprint:
    """The fingerprint of an array that is read in blocks, or that of its values rounded to a dtype."""
    spec = ArraySpec(array.shape, array.dtype)
    shape = tuple(max(1, n) for n in (array.shape if block is None else block))
    roundings = () if rounded is None else (rounded,)
    fingerprints_by_dtype = fingerprints(lambda region: array[region.slices], spec, shape, roundings)
    return fingerprints_by_dtype[array.dtype if rounded is None else rounded]


def assert_equal(one: Fingerprint, other: Fingerprint) -> None:
    """Assert that two fingerprints are the same in every part."""
    assert (one.shape, one.total, one.limits) == (other.shape, other.total, other.limits)
    assert [list(sums) for sums in one.axes] == [list(sums) for sums in other.axes]


def side(arrays: Arrays, others: Mapping[str, str] | None = None, rounded_to: Arrays | None = None) -> Side:
    """Arrays as one side, with their fingerprints.

    `others`: leaves without values to read, as `tests.support.leaves.leaf` describes them. `rounded_to`: the
    arrays of the other side, to whose dtypes values are rounded.
    """
    leaves = {key: leaf_of(key, array) for key, array in arrays.items()}
    dtypes = sorted({array.dtype for array in (rounded_to or {}).values()}, key=str)
    known = fingerprints_of(leaves, reader(arrays), MEMORY, dtypes)
    more = {key: leaf(key, described) for key, described in (others or {}).items()}
    return Side({**leaves, **more}, known, reader(arrays))


def sides(source: Arrays, target: Arrays) -> tuple[Side, Side]:
    """Both sides, read as `infer` reads them."""
    return side(source, rounded_to=target), side(target)


def leaf_of(key: str, array: np.ndarray) -> Leaf:
    """An array as a leaf."""
    return leaf(key, f"{array.dtype.name}[{','.join(map(str, array.shape))}]")


def reader(arrays: Arrays) -> Any:
    """Function that reads regions of the arrays."""
    return lambda one, region: arrays[one.key.text][region.slices]


def computed(value: Value, arrays: Arrays) -> np.ndarray:
    """An expression over the arrays, in their order."""
    node = node_of(value, [leaf_of(key, array) for key, array in arrays.items()])
    return evaluated(node, Region.whole(node.spec.shape), side(arrays))


def array_of(expression: SourceExpression, arrays: Arrays) -> np.ndarray:
    """The array of an expression."""
    keys, value = keys_and_value(expression)
    array = computed(value, {key: arrays[key] for key in keys})
    assert array.shape == expression.shape
    return array


def text_of(expression: SourceExpression) -> str:
    """The text of an expression."""
    return str(keys_and_value(expression)[1])


def text_of_layout(layout: Layout, stacked: int = 0) -> str:
    """The expression of a layout of a leaf, or of leaves that are stacked along the first axes."""
    lengths, each = layout.shape_in[:stacked], layout.shape_in[stacked:]
    return text_of(laid(layout, of_leaves(list(map(str, range(math.prod(lengths)))), lengths, each)))


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Random numbers, no two of which are equal in all likelihood."""
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def arranged(layout: Layout, array: np.ndarray) -> np.ndarray:
    """Apply a layout to an array, by NumPy alone."""
    digits = array.reshape(layout.lengths).transpose(layout.order)
    return np.ascontiguousarray(digits).reshape(layout.shape_out)


@st.composite
def layouts(draw: st.DrawFn, most_axes: int = 3, most_digits: int = 4) -> Layout:
    """Any layout: axes that are cut into digits, in any order, joined to any axes."""
    lengths = draw(st.lists(st.integers(2, 4), min_size=0, max_size=most_digits))
    before = _cut(draw, range(len(lengths)), most_axes)
    after = _cut(draw, draw(st.permutations(range(len(lengths)))), most_axes)
    return Layout.of(before, after, dict(enumerate(lengths)))


def _cut(draw: st.DrawFn, items: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """The items in groups one behind the other, some of them perhaps empty."""
    count = draw(st.integers(1 if items else 0, most))
    inner = max(0, count - 1)
    ends = sorted(draw(st.lists(st.integers(0, len(items)), min_size=inner, max_size=inner)))
    bounds = [0, *ends, len(items)] if count else [0]
    return tuple(tuple(items[a:b]) for a, b in itertools.pairwise(bounds))
