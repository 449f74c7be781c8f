"""Expressions as expressions of the recipe language, in the shortest words: `x.T`, `stack(xs)[:, 1]`."""

import string
from collections.abc import Mapping, Sequence

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, Value
from ckpt_surgery.inference.expressions.layouts import Groups, Layout, is_identity
from ckpt_surgery.inference.expressions.source_expressions import (
    INNER,
    Call,
    Joined,
    Laid,
    Leaves,
    RegionOf,
    SourceExpression,
    leaves_of,
)

_WHOLE = "abcfgijmnqrsuvwyz"
"""Names of axes that are not cut."""
_OF_MANY = "hpkdt" + string.ascii_uppercase
"""Names of the digits of an axis that is cut into more than three."""
_STACKED = "letpxo"
"""Names of the digits of the axis of a stack: layers, experts."""


def formation(target: str, array: SourceExpression, evidence: Evidence, why: str = "") -> Formation:
    """The formation of a leaf of the target from an expression."""
    return Formation(target, *keys_and_value(array), evidence, why)


def keys_and_value(array: SourceExpression) -> tuple[tuple[str, ...], Value]:
    """The keys of the leaves in an expression, in the order of `xs`, and its text with holes."""
    stacks = leaves_of(array)
    keys = [key for leaves in stacks for key in leaves.keys]
    sources = tuple(dict.fromkeys(keys))
    listed = len(sources) == len(keys) and (len(stacks) == 1 or _is_plain_list(array))
    single = len(sources) == 1
    names = {key: "x" if single else f"xs[{number}]" for number, key in enumerate(sources)}
    writer = _Writer(names, listed)
    text = writer.text(array)
    return sources, Value(text, tuple(writer.numbers), tuple(writer.ends))


def _is_plain_list(array: SourceExpression) -> bool:
    """True if all leaves are the parts of one list, as they are."""
    while not isinstance(array, Joined | Leaves):
        array = array.inner
    return isinstance(array, Joined) and _are_leaves(array.parts)


def _are_leaves(parts: Sequence[SourceExpression]) -> bool:
    return all(isinstance(part, Leaves) and not part.stacked for part in parts)


def _is_stack(array: SourceExpression) -> bool:
    return isinstance(array, Leaves) and array.stacked


class _Writer:
    """Writes text with holes, and collects the numbers for them."""

    def __init__(self, names: Mapping[str, str], listed: bool):
        self._names = names
        self._listed = listed
        self.numbers: list[int] = []
        self.ends: list[int | None] = []
        """The number with which each hole may be left empty."""

    def text(self, array: SourceExpression) -> str:
        if isinstance(array, Leaves):
            return f"stack({self._list(array.keys)})" if array.stacked else self._names[array.keys[0]]
        if isinstance(array, Laid):
            return self._laid(array.layout, array.inner)
        if isinstance(array, RegionOf):
            return self._part(array, [])
        if isinstance(array, Call):
            return self._call(array)
        return self._joined(array)

    def _list(self, keys: Sequence[str]) -> str:
        """A list of leaves: all of them, neighbours, or one by one."""
        if self._listed:
            return "xs"
        order = list(self._names)
        start = order.index(keys[0])
        if len(keys) > 1 and order[start : start + len(keys)] == list(keys):
            return f"xs[{start}:{start + len(keys)}]"
        return "[" + ", ".join(self._names[key] for key in keys) + "]"

    def _hole(self, number: int, end: int | None = None) -> str:
        self.numbers.append(number)
        self.ends.append(end)
        return f"{{{len(self.numbers) - 1}}}"

    # --- subscripts, calls, lists

    def _part(self, part: RegionOf, single: Sequence[int]) -> str:
        """A subscript; the axes `single` are left out."""
        inner = self._atom(part.inner)
        items = [self._item(part.region, axis, n, axis in single) for axis, n in enumerate(part.inner.shape)]
        while items[-1] == ":":
            items.pop()
        return f"{inner}[{', '.join(items)}]"

    def _item(self, region: Region, axis: int, length: int, single: bool) -> str:
        start, stop = region.starts[axis], region.stops[axis]
        if single:
            return self._hole(start)
        return ":" if stop - start == length else f"{self._hole(start, 0)}:{self._hole(stop, length)}"

    def _call(self, call: Call) -> str:
        inner = self.text(call.inner) if call.is_function else self._atom(call.inner)
        return call.text.replace(INNER, inner)

    def _atom(self, array: SourceExpression) -> str:
        """The text, in parentheses where an operator or a subscript next to it would split it."""
        text = self.text(array)
        return (
            f"({text})" if isinstance(array, Call) and array.elementwise and not array.is_function else text
        )

    def _joined(self, joined: Joined) -> str:
        whole = self._listed and _are_leaves(joined.parts)
        items = "xs" if whole else f"[{', '.join(map(self.text, joined.parts))}]"
        name = "stack" if joined.stacked else "concat"
        return f"{name}({items})" if joined.axis == 0 else f"{name}({items}, axis={joined.axis})"

    # --- layouts

    def _laid(self, layout: Layout, inner: SourceExpression) -> str:
        if isinstance(inner, RegionOf):
            return self._laid_part(layout, inner)
        return self._expression(layout, self.text(inner), _is_stack(inner), of_list=_is_stack(inner))

    def _laid_part(self, layout: Layout, part: RegionOf) -> str:
        """The text for a layout of a subscript; axes of which one index is left are dropped."""
        lengths = zip(part.shape, part.inner.shape, strict=True)
        single = [axis for axis, (length, of) in enumerate(lengths) if length == 1 < of]
        before = tuple(digits for axis, digits in enumerate(layout.before) if axis not in single)
        rest = Layout(layout.lengths, before, layout.after)
        return self._expression(rest, self._part(part, single), _is_stack(part.inner), of_list=False)

    def _expression(self, layout: Layout, inner: str, stack: bool, of_list: bool) -> str:
        """The shortest text for a layout of an array. `stack`: its first axis is that of a stack;
        `of_list`: it is all of `stack(…)`."""
        simple = _without_pattern(layout, inner, stack, of_list)
        if simple is not None:
            return simple
        names = _names(layout.before, stack)
        left, right = (
            " ".join(_group([names[digit] for digit in axis]) for axis in axes)
            for axes in (layout.before, layout.after)
        )
        lengths = "".join(
            f", {names[digit]}={self._hole(layout.lengths[digit])}"
            for axis in layout.before
            for digit in axis[:-1]
        )
        return f"rearrange({inner}, '{left} -> {right}'{lengths})"


def _without_pattern(layout: Layout, inner: str, stack: bool, of_list: bool) -> str | None:
    """The text for a layout of an array without a pattern; None if it takes one."""
    if is_identity(layout):
        return inner
    if of_list:
        place = layout.order.index(0) if layout.before[0] else 0
        in_order = layout.order == (*range(1, place + 1), 0, *range(place + 1, len(layout.order)))
        return f"{inner[:-1]}, axis={place})" if place and in_order and layout.moves_whole_axes else None
    old, new = layout.shape_in, layout.shape_out
    backwards = layout.order == tuple(reversed(range(len(layout.lengths)))) and layout.moves_whole_axes
    if backwards or (layout.in_order and len(old) == 2 and new == old[::-1]):  # any reshape says the length
        return f"{inner}.T"
    return f"reshape({inner}, {new})" if layout.in_order and not stack else None


def _names(axes: Groups, stack: bool) -> list[str]:
    """A name for each digit: `l` for layers, `h` and `d` for an axis that is cut in two."""
    names: list[str] = []
    whole, marks = iter(_WHOLE), iter(("", *"23456789"))
    for axis, digits in enumerate(axes):
        count = len(digits)
        if stack and axis == 0:
            names += _STACKED[:count]
        elif count == 1:
            names.append(next(whole))
        elif digits:
            letters = "hd" if count == 2 else "hpd" if count == 3 else _OF_MANY
            mark = next(marks)
            names += [letters[place] + mark for place in range(count)]
    return names


def _group(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"({' '.join(names)})" if names else "1"
