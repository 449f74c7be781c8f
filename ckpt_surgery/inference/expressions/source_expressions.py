"""Expressions over other leaves that give an array, kept in a short form as they grow.

Successive layouts become one layout, parts are cut before elements are moved, arithmetic comes last, and a
stack of arrays that are made alike is one expression over the stack of their leaves.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.expressions.layouts import (
    Layout,
    composed,
    is_identity,
    reshaping,
    restricted,
    stacked,
    transposing,
)

INNER = "\0"
"""Placeholder of the inner expression in the text of a call."""
_FUNCTION = re.compile(r"\w+\(")
"""Start of a call's text that is neither an operator nor a subscript."""
_FROM_LAST = re.compile(r"axis=-|\.\.\.|bitcast")
"""Signs of calls that name axes from the last one, so that they fit stacks, too."""


@frozen()
class Leaves:
    """A leaf as it is, or leaves of one shape, stacked along the first axis."""

    keys: tuple[str, ...]
    each: Shape
    """Shape of a leaf."""
    stacked: bool

    @property
    def shape(self) -> Shape:
        """Shape of the leaf, or of the stack."""
        return (len(self.keys), *self.each) if self.stacked else self.each


@frozen()
class Laid:
    """An array whose elements are put into another order."""

    layout: Layout
    inner: "SourceExpression"

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        return self.layout.shape_out


@frozen()
class RegionOf:
    """A region of an array."""

    region: Region
    inner: "SourceExpression"

    @property
    def shape(self) -> Shape:
        """Shape of the region."""
        return self.region.shape


@frozen()
class Call:
    """A call, or an operator, with one array."""

    text: str
    """Its text, INNER in it for the array."""
    inner: "SourceExpression"
    shape: Shape
    elementwise: bool
    """True if each element depends on the element at its own index alone."""

    @property
    def is_function(self) -> bool:
        """True for `f(x)`; False for operators and subscripts, which stand beside the text of the array."""
        return _FUNCTION.match(self.text) is not None


@frozen()
class Joined:
    """Arrays one after another along an axis; along a new one if they are `stacked`."""

    parts: tuple["SourceExpression", ...]
    axis: int
    stacked: bool

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        first, axis = self.parts[0].shape, self.axis
        if self.stacked:
            return (*first[:axis], len(self.parts), *first[axis:])
        return (*first[:axis], sum(part.shape[axis] for part in self.parts), *first[axis + 1 :])


SourceExpression = Leaves | Laid | RegionOf | Call | Joined


def of_leaves(keys: Sequence[str], lengths: Shape, each: Shape) -> SourceExpression:
    """Leaves stacked along as many first axes as there are `lengths`; without any, the one leaf as it is."""
    leaves = Leaves(tuple(keys), each, bool(lengths))
    return reshaped(leaves, (*lengths, *each)) if lengths else leaves


def indexed(array: SourceExpression, place: Iterable[int]) -> SourceExpression:
    """The part of an array at these indices along its first axes."""
    for number in place:
        array = squeezed(cut(rows(array.shape, 0, number, number + 1), array), 0)
    return array


def rows(shape: Shape, axis: int, start: int, stop: int) -> Region:
    """The indices from `start` to `stop` of one axis, and all of the others."""
    whole = Region.whole(shape)
    return Region(
        (*whole.starts[:axis], start, *whole.starts[axis + 1 :]),
        (*whole.stops[:axis], stop, *whole.stops[axis + 1 :]),
    )


def laid(layout: Layout, inner: SourceExpression) -> SourceExpression:
    """A layout of an array that has no empty axis."""
    if isinstance(inner, Laid):
        both = composed(inner.layout, layout)
        if both is not None:
            return laid(both, inner.inner)
    if is_identity(layout):
        return inner
    if isinstance(inner, Call) and inner.elementwise:
        return mapped(inner.text, laid(layout, inner.inner))
    if isinstance(inner, Joined) and not inner.stacked:
        apart = _laid_apart(layout, inner)
        if apart is not None:
            return apart
    return Laid(layout, inner)


def _laid_apart(layout: Layout, whole: Joined) -> SourceExpression | None:
    """The concatenation of the parts without or with axes of length 1; None for any other layout."""
    if not layout.in_order or max(map(len, (*layout.before, *layout.after))) > 1:
        return None
    digit = sum(map(len, layout.before[: whole.axis]))
    axis = next(i for i, group in enumerate(layout.after) if digit in group)
    new = layout.shape_out
    shapes = ((*new[:axis], part.shape[whole.axis], *new[axis + 1 :]) for part in whole.parts)
    return concatenated(list(map(reshaped, whole.parts, shapes)), axis)


def cut(region: Region, inner: SourceExpression) -> SourceExpression:
    """A region of an array."""
    if region == Region.whole(inner.shape):
        return inner
    if isinstance(inner, Call) and inner.elementwise and region.size:
        return mapped(inner.text, cut(region, inner.inner))
    before = restricted(inner.layout, region) if isinstance(inner, Laid) and region.size else None
    if isinstance(inner, Laid) and before is not None:
        part, layout = before
        return laid(layout, cut(part, inner.inner))
    if isinstance(inner, RegionOf):
        return cut(region.moved(inner.region.starts), inner.inner)
    return RegionOf(region, inner)


def mapped(text: str, inner: SourceExpression) -> SourceExpression:
    """An elementwise call of an array."""
    return Call(text, inner, inner.shape, elementwise=True)


def after(operation: str, inner: SourceExpression) -> SourceExpression:
    """An array after a sum or a product with one number, as it follows an expression; or as it is."""
    return mapped(f"{INNER}{operation}", inner) if operation else inner


def cast(inner: SourceExpression, dtype: DType) -> SourceExpression:
    """An array as another dtype."""
    return mapped(f"cast({INNER}, '{dtype.name}')", inner)


def called(text: str, inner: SourceExpression, shape: Shape) -> SourceExpression:
    """A call of an array that gives one of this shape."""
    return Call(text, inner, shape, elementwise=False)


def reshaped(inner: SourceExpression, shape: Shape) -> SourceExpression:
    """An array in another shape, with its elements in the same order."""
    layout = reshaping(inner.shape, shape)
    return called(f"reshape({INNER}, {shape})", inner, shape) if layout is None else laid(layout, inner)


def concatenated(parts: Sequence[SourceExpression], axis: int) -> SourceExpression:
    """Arrays of one dtype one after another along an axis."""
    if len(parts) == 1:
        return parts[0]
    calls = [part for part in parts if isinstance(part, Call) and part.elementwise]
    if len(calls) == len(parts) and len({call.text for call in calls}) == 1:
        return mapped(calls[0].text, concatenated([call.inner for call in calls], axis))
    if any(part.shape[axis] != 1 for part in parts):
        return Joined(tuple(parts), axis, stacked=False)
    singles = [squeezed(part, axis) for part in parts]
    alike = lifted(singles)
    if alike is None:
        return Joined(tuple(singles), axis, stacked=True)
    order = list(range(1, len(alike.shape)))
    order.insert(axis, 0)
    return laid(transposing(alike.shape, order), alike)


def squeezed(part: SourceExpression, axis: int) -> SourceExpression:
    """An array without an axis of length 1."""
    return reshaped(part, (*part.shape[:axis], *part.shape[axis + 1 :]))


def lifted(parts: Sequence[SourceExpression]) -> SourceExpression | None:
    """The stack along the first axis of arrays that are made alike; None if they are not.

    The expression is written once, over the stacks of their leaves.
    """
    first, count = parts[0], len(parts)
    if len(set(map(_form, parts))) > 1:
        return None
    if isinstance(first, Leaves):
        lengths = (count, len(first.keys)) if first.stacked else (count,)
        keys = [key for part in parts for leaves in leaves_of(part) for key in leaves.keys]
        return of_leaves(keys, lengths, first.each)
    columns = map(lifted, zip(*map(_inputs, parts), strict=True))
    inner = [column for column in columns if column is not None]
    if len(inner) < len(_inputs(first)):
        return None
    if isinstance(first, Joined):
        return Joined(tuple(inner), first.axis + 1, first.stacked)
    if isinstance(first, Laid):
        return laid(stacked(first.layout, count), inner[0])
    if isinstance(first, RegionOf):
        return cut(Region((0, *first.region.starts), (count, *first.region.stops)), inner[0])
    fits = first.elementwise or _FROM_LAST.search(first.text) is not None
    return replace(first, inner=inner[0], shape=(count, *first.shape)) if fits else None


def _form(array: SourceExpression) -> object:
    """Form that arrays which are made alike share, apart from what they are made of."""
    match array:
        case Leaves(keys, each, is_stack):
            return len(keys), each, is_stack
        case Laid(layout):
            return layout
        case RegionOf(region):
            return region
        case Call(text):
            return text, array.shape
        case Joined(parts, axis, is_stack):
            return len(parts), axis, is_stack


def _inputs(array: SourceExpression) -> Sequence[SourceExpression]:
    """The arrays that an array is made of; none for leaves."""
    if isinstance(array, Leaves):
        return ()
    return array.parts if isinstance(array, Joined) else (array.inner,)


def leaves_of(array: SourceExpression) -> list[Leaves]:
    """The leaves, and stacks of leaves, that an expression is made of, in the order of its text."""
    if isinstance(array, Leaves):
        return [array]
    return list(itertools.chain.from_iterable(map(leaves_of, _inputs(array))))


def scales(array: SourceExpression) -> bool:
    """True if floats are multiplied or divided, which is exact only as long as they stay in their range."""
    scaled = isinstance(array, Call) and (" / " in array.text or " * " in array.text)
    return scaled or any(map(scales, _inputs(array)))
