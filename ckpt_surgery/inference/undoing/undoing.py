"""Undo one function: from a held region of its result to held regions of its inputs.

A function that loses something raises Lost. `*` and `/` by a power of two count as undone: they are exact
unless a number leaves the range of its dtype.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import DType, has_infinity, has_nan, is_integer, kind, limits
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.selections import as_array, whole
from ckpt_surgery.functions.arrays import Apply, axis_of, reads
from ckpt_surgery.functions.base import Number
from ckpt_surgery.functions.dtypes import Bitcast, Cast, Rounded, number_as
from ckpt_surgery.functions.indexing import Copies, Index, Take
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Pad, Reshape, Transpose
from ckpt_surgery.functions.nonfinite import AllowNonfinite
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.quantization import Quantize
from ckpt_surgery.inference.expressions.layouts import Layout, reshaping, restricted, transposing
from ckpt_surgery.inference.expressions.source_expressions import (
    INNER,
    SourceExpression,
    called,
    cast,
    cut,
    laid,
    mapped,
    reshaped,
    rows,
    squeezed,
)

NOT_ALL = "no output holds all of it"
MOST_LISTED = 1000
"""Maximum count of indices written out in an expression to give the order of elements."""


class Lost(Exception):
    """A function keeps less than its input. The message is a clause without a full stop."""


@frozen()
class Held:
    """A region of an array, as an expression over outputs."""

    region: Region
    expression: SourceExpression
    """Expression that gives an array of the region's shape."""
    dtype: DType
    """Dtype of the expression. If the array has another, the values are the same, none of them rounded."""
    first: int
    """Number of the first output that the expression needs."""
    cut: Shape = ()
    """Shape that the region is of, where it is not the array's: some of its axes are cut in two."""

    def of(self, region: Region, expression: SourceExpression) -> "Held":
        """The same output and dtype for a region of another array."""
        return Held(region, expression, self.dtype, self.first)


Undone = Iterator[tuple[int, Held]]
"""Number of an input, and its held region."""


def undo_function(node: Apply, held: Held) -> list[tuple[int, Held]]:
    """Propagate a held region of a result to the function's inputs. Raises Lost."""
    undo = _UNDO.get(type(node.function))
    if undo is None or not node.inputs:
        raise _lost(node)
    if node.spec.size:
        return list(undo(node.function, node, held))
    empty = [(number, one.spec.shape) for number, one in enumerate(node.inputs) if one.spec.size == 0]
    return [(i, held.of(Region.whole(shape), _as(held.expression, shape))) for i, shape in empty]


def _as(expression: SourceExpression, shape: Shape) -> SourceExpression:
    return expression if expression.shape == shape else reshaped(expression, shape)


def _lost(node: Apply) -> Lost:
    """The error for a function without a known inverse."""
    leaves = len({(read.source, read.leaf.key.text) for read in reads(node)})
    name = node.function.called()
    return Lost(f"computed from {leaves} leaves" if leaves > 1 else f"no expression undoes `{name}`")


def as_dtype(held: Held, dtype: DType) -> Held:
    """Cast the expression to another dtype, which has all of its values."""
    if held.dtype == dtype:
        return held
    return replace(held, expression=cast(held.expression, dtype), dtype=dtype)


# --- layout -----------------------------------------------------------------------------------------------


def _layout(function: Reshape | Transpose, node: Apply, held: Held) -> Undone:
    """`reshape`, `transpose`."""
    shape = node.inputs[0].spec.shape
    turned = isinstance(function, Transpose) and transposing(shape, function.permutation(len(shape)))
    layout = turned or reshaping(shape, node.spec.shape)
    part = None if layout is None else before(layout, held)
    if part is not None:
        yield 0, part
    elif held.region == Region.whole(node.spec.shape):
        yield 0, held.of(Region.whole(shape), reshaped(held.expression, shape))
    else:
        raise Lost(NOT_ALL)


def before(layout: Layout, held: Held) -> Held | None:
    """The region that a layout makes a held region of; None if that is no region."""
    part = restricted(layout, held.region)
    return None if part is None else held.of(part[0], laid(part[1].inverse(), held.expression))


def _choice(function: Index | Take | Copies, node: Apply, held: Held) -> Undone:
    """A choice of indices along axes: subscripts, `take`, `repeat`, `tile`.

    Every second index along an axis is one index of this axis cut in two, so that halves can be joined.
    """
    old, new = node.inputs[0].spec.shape, node.spec.shape
    chosen = function.picks(whole(new), old)
    layout = reshaping(tuple(map(len, chosen)), new)
    part = None if layout is None else before(layout, held)
    assert part is not None, "only axes of length 1 come and go"
    expression = part.expression
    shape: list[int] = []
    starts: list[int] = []
    stops: list[int] = []
    for axis, (picked, length) in enumerate(zip(chosen, old, strict=True)):
        taken = picked[part.region.starts[axis] : part.region.stops[axis]]
        step = taken.step if isinstance(taken, range) and len(taken) > 1 else 1
        if step > 1 and length % step == 0:
            first, last = (divmod(taken[end], step) for end in (0, -1))
            shape += [length // step, step]
            starts += first
            stops += [last[0] + 1, last[1] + 1]
        else:
            indices = as_array(taken)
            shape.append(length)
            starts.append(int(indices.min()))
            stops.append(int(indices.max()) + 1)
            expression = _in_order(indices - starts[-1], axis, expression)
    region = Region(tuple(starts), tuple(stops))
    held = held.of(region, _as(expression, region.shape))
    yield 0, held if len(shape) == len(old) else replace(held, cut=tuple(shape))


def _in_order(indices: np.ndarray, axis: int, expression: SourceExpression) -> SourceExpression:
    """An array with all elements in order along an axis, of one that has them at these indices, from 0."""
    shape, length = expression.shape, int(indices.max()) + 1
    distinct, first = np.unique(indices, return_index=True)
    if len(distinct) < length:
        raise Lost(NOT_ALL)
    place, out = axis - len(shape), (*shape[:axis], length, *shape[axis + 1 :])
    start, step = int(first[0]), int(first[1] - first[0]) if length > 1 else 1
    if not np.array_equal(first, start + step * np.arange(length)):
        if length > MOST_LISTED:
            raise Lost(f"the order of its elements takes {length:,} numbers")
        return called(f"take({INNER}, {first.tolist()}, axis={place})", expression, out)
    if step == 1:
        return cut(rows(shape, axis, start, start + length), expression)
    if step == -1 and len(indices) == length:
        return called(f"flip({INNER}, axis={place})", expression, out)
    stop = start + step * length
    chosen = f"{start or ''}::{step}" if step > 0 else f"{start}:{'' if stop < 0 else stop}:{step}"
    return called(f"{INNER}[..., {chosen}{', :' * (-place - 1)}]", expression, out)


def _pad(function: Pad, node: Apply, held: Held) -> Undone:
    inside = held.region.common(Region.whole(node.inputs[0].spec.shape))
    if inside is not None:
        yield 0, held.of(inside, _cut(held, inside))


def _cut(held: Held, region: Region) -> SourceExpression:
    """The expression of a region inside the held one."""
    return cut(region.relative_to(held.region.starts), held.expression)


def _stack(function: Stack, node: Apply, held: Held) -> Undone:
    axis = axis_of(function.axis, node.spec.ndim, function.name)
    starts, stops = held.region.starts, held.region.stops
    rest = Region((*starts[:axis], *starts[axis + 1 :]), (*stops[:axis], *stops[axis + 1 :]))
    for place, number in function.by_place(len(node.inputs)).items():
        if starts[axis] <= place < stops[axis]:
            at = place - starts[axis]
            part = cut(rows(held.region.shape, axis, at, at + 1), held.expression)
            yield number, held.of(rest, squeezed(part, axis))


def _concat(function: Concat, node: Apply, held: Held) -> Undone:
    axis = axis_of(function.axis, node.spec.ndim, function.name)
    begin = 0
    for number, child in enumerate(node.inputs):
        shape = child.spec.shape
        here = rows(shape, axis, begin, begin + shape[axis])
        common = held.region.common(here)
        if common is not None:
            yield number, held.of(common.relative_to(here.starts), _cut(held, common))
        elif child.spec.size == 0:
            nothing = rows(held.region.shape, axis, 0, 0)
            yield number, held.of(Region.whole(shape), cut(nothing, held.expression))
        begin += shape[axis]


# --- dtypes -----------------------------------------------------------------------------------------------


def _cast(function: Cast | Quantize, node: Apply, held: Held) -> Undone:
    narrow = node.inputs[0].spec.dtype
    if not isinstance(function, Cast) or not holds_all(function.dtype, narrow):
        raise Lost(f"keeps {function.dtype.name} of its {narrow.name}")
    yield 0, held


def _rounded(function: Rounded, node: Apply, held: Held) -> Undone:
    """Skip the rounding of a wider dtype: arithmetic that can be undone does not round."""
    yield 0, held


def _bitcast(function: Bitcast, node: Apply, held: Held) -> Undone:
    child, old = node.inputs[0].spec, node.spec
    text = f"bitcast({INNER}, '{child.dtype.name}')"
    held = as_dtype(held, old.dtype)
    if child.dtype.itemsize == old.dtype.itemsize:
        yield 0, Held(held.region, mapped(text, held.expression), child.dtype, held.first)
        return
    if held.region.starts[-1] != 0 or held.region.stops[-1] != old.shape[-1]:
        raise Lost(NOT_ALL)
    region = Region(held.region.starts, (*held.region.stops[:-1], child.shape[-1]))
    yield 0, Held(region, called(text, held.expression, region.shape), child.dtype, held.first)


# --- arithmetic -------------------------------------------------------------------------------------------


def _binary(function: Binary, node: Apply, held: Held) -> Undone:
    """An operator with a number."""
    child = node.inputs[0].spec.dtype
    number = function.right if function.left is None else function.left
    if number is None or kind(child) in "bc" or kind(node.spec.dtype) != kind(child) or function.op.isalpha():
        raise _lost(node)
    first = function.left is not None
    text = (_undo_integers if is_integer(child) else _undo_floats)(function.op, number, first, child)
    if text is None:
        text = f"{number} {function.op}" if first else f"{function.op} {number}"
        rounds = function.op in ("+", "-", "*", "/")
        raise Lost(f"`{text}` rounds" if rounds else f"no expression undoes `{text}`")
    if kind(held.dtype) != kind(child):
        held = as_dtype(held, child)
    if text != INNER:
        held = held.of(held.region, mapped(text, held.expression))
    yield 0, held


def _undo_floats(op: str, number: Number, number_first: bool, dtype: DType) -> str | None:
    """Text that undoes an operator with a number; None if nothing exact does."""
    if op not in ("*", "/") or (op == "/" and number_first) or not scales_exactly(number, dtype):
        return None
    factor = float(number) if op == "*" else 1.0 / number
    if factor == 1.0:
        return INNER
    return f"{INNER} / {factor}" if abs(factor) > 1 else f"{INNER} * {1.0 / factor}"


def _undo_integers(op: str, number: Number, number_first: bool, dtype: DType) -> str | None:
    """The same for integers, whose sums and products are exact, or errors outside their range."""
    shown = f"({int(number)})" if number < 0 else str(int(number))
    if op == "-" and number_first:
        return f"{shown} - {INNER}"
    undone = {"+": "-", "-": "+", "*": "//"}.get(op)
    if undone is None or (op == "*" and not number):
        return None
    neutral = 1 if op == "*" else 0
    return INNER if number == neutral else f"{INNER} {undone} {shown}"


def _unary(function: Unary, node: Apply, held: Held) -> Undone:
    if function.op != "neg":
        raise _lost(node)
    yield 0, held.of(held.region, mapped(f"-{INNER}", held.expression))


_UNDO: Mapping[type, Callable[[Any, Apply, Held], Undone]] = {
    **dict.fromkeys((Reshape, Transpose), _layout),
    **dict.fromkeys((Index, Take, Copies), _choice),
    Pad: _pad,
    Stack: _stack,
    Concat: _concat,
    **dict.fromkeys((Cast, Quantize), _cast),
    Rounded: _rounded,
    AllowNonfinite: _rounded,
    Bitcast: _bitcast,
    Binary: _binary,
    Unary: _unary,
}


# --- what dtypes hold -----------------------------------------------------------------------------------

_finfo: Callable[[DType], Any] = ml_dtypes.finfo
_WITHOUT_ZERO = "float8_e8m0fnu"
"""A dtype of powers of two alone."""


@functools.cache
def holds_all(wide: DType, narrow: DType) -> bool:
    """True if each value of `narrow` is one of `wide` too, so that a cast there and back changes nothing."""
    if wide == narrow:
        return True
    if kind(narrow) == "c":
        return kind(wide) == "c" and wide.itemsize > narrow.itemsize
    # The way back from complex numbers would drop the imaginary part, which no cast does.
    if kind(wide) in "bc" or (is_integer(wide) and kind(narrow) == "f"):
        return False
    (low, high, *own), (least, most, *needed) = _extent(wide), _extent(narrow)
    return low <= least and most <= high and all(map(operator.ge, own, needed))


def _extent(dtype: DType) -> tuple[float, ...]:
    """The range of a dtype, the digits of its mantissa, how small numbers get, and special values it has."""
    if kind(dtype) == "b":
        return 0, 1, 1, 0, False, False, True
    low, high = limits(dtype)
    if is_integer(dtype):
        return low, high, int(high).bit_length(), 0, False, False, True
    finfo = _finfo(dtype)
    smallest = -math.log2(float(finfo.smallest_subnormal))
    specials = has_nan(dtype), has_infinity(dtype), dtype.name != _WITHOUT_ZERO
    return low, high, int(finfo.nmant) + 1, smallest, *specials


def scales_exactly(factor: Number, dtype: DType) -> bool:
    """True if products and quotients with a number are exact, unless they leave the range of a float dtype.

    This holds for powers of two if the dtype has both the number and its reciprocal.
    """
    if isinstance(factor, bool) or math.frexp(abs(factor))[0] != 0.5:
        return False
    try:
        return all(float(number_as(c, dtype)) == c for c in (float(factor), 1.0 / factor))
    except FunctionError:
        return False
