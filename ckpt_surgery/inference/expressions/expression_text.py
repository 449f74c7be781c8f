"""Expressions as expressions of the recipe language, in the shortest words: `x.T`, `stack(xs)[:, 1]`."""

import string
from collections.abc import Collection, Sequence

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
"""Names of the digits of an axis that is cut into more than two."""
_STACKED = "letpxo"
"""Names of the digits of the axis of a stack: layers, experts."""


def formation(target: str, array: SourceExpression, evidence: Evidence, why: str = "") -> Formation:
    """The formation of a leaf of the target from an expression."""
    return Formation(target, *keys_and_value(array), evidence, why)


def keys_and_value(array: SourceExpression) -> tuple[tuple[str, ...], Value]:
    """The keys of the leaves in an expression, in the order of `xs`, and its text with holes."""
    writer = _Writer(tuple(dict.fromkeys(key for leaves in leaves_of(array) for key in leaves.keys)))
    text = writer.text(array)
    return writer.keys, Value(text, tuple(writer.numbers), tuple(writer.ends))


def _is_stack(array: SourceExpression) -> bool:
    return isinstance(array, Leaves) and array.stacked


class _Writer:
    """Writes text with holes, and collects the numbers for them."""

    def __init__(self, keys: tuple[str, ...]):
        self.keys = keys
        """The leaves, in the order of `xs`."""
        self.numbers: list[int] = []
        self.ends: list[int | None] = []
        """The number with which each hole may be left empty."""

    def text(self, array: SourceExpression) -> str:
        match array:
            case Leaves(keys):
                return f"stack({self._list(keys)})" if array.stacked else self._leaf(keys[0])
            case Laid(layout, RegionOf() as part):
                return self._laid_part(layout, part)
            case Laid(layout, inner):
                return self._laid(layout, self.text(inner), _is_stack(inner), of_list=_is_stack(inner))
            case RegionOf():
                return self._part(array, ())
            case Call(text, inner):
                return text.replace(INNER, self.text(inner) if array.is_function else self._atom(inner))
            case Joined(parts, axis):
                plain = [part.keys[0] for part in parts if isinstance(part, Leaves) and not part.stacked]
                only_leaves = len(plain) == len(parts)
                items = self._list(plain) if only_leaves else f"[{', '.join(map(self.text, parts))}]"
                name = "stack" if array.stacked else "concat"
                return f"{name}({items})" if axis == 0 else f"{name}({items}, axis={axis})"

    def _leaf(self, key: str) -> str:
        return "x" if len(self.keys) == 1 else f"xs[{self.keys.index(key)}]"

    def _list(self, keys: Sequence[str]) -> str:
        """A list of leaves: all of them, neighbours, or one by one."""
        start = self.keys.index(keys[0])
        stop = start + len(keys)
        if len(keys) == 1 < len(self.keys) or self.keys[start:stop] != tuple(keys):
            return f"[{', '.join(map(self._leaf, keys))}]"
        return "xs" if len(keys) == len(self.keys) else f"xs[{start}:{stop}]"

    def _hole(self, number: int, end: int | None = None) -> str:
        self.numbers.append(number)
        self.ends.append(end)
        return f"{{{len(self.numbers) - 1}}}"

    def _part(self, part: RegionOf, single: Collection[int]) -> str:
        """A subscript; the axes `single` are left out."""
        inner = self._atom(part.inner)
        items = []
        bounds = zip(part.region.starts, part.region.stops, part.inner.shape, strict=True)
        for axis, (start, stop, length) in enumerate(bounds):
            if axis in single:
                items.append(self._hole(start))
            elif stop - start == length:
                items.append(":")
            else:
                items.append(f"{self._hole(start, 0)}:{self._hole(stop, length)}")
        while items[-1] == ":":
            items.pop()
        return f"{inner}[{', '.join(items)}]"

    def _atom(self, array: SourceExpression) -> str:
        """The text, in parentheses where an operator or a subscript next to it would split it."""
        text = self.text(array)
        operator = isinstance(array, Call) and array.elementwise and not array.is_function
        return f"({text})" if operator else text

    def _laid_part(self, layout: Layout, part: RegionOf) -> str:
        """The text for a layout of a subscript; axes of which one index is left are dropped."""
        lengths = zip(part.shape, part.inner.shape, strict=True)
        single = [axis for axis, (length, of) in enumerate(lengths) if length == 1 < of]
        before = tuple(digits for axis, digits in enumerate(layout.before) if axis not in single)
        rest = Layout(layout.lengths, before, layout.after)
        return self._laid(rest, self._part(part, single), _is_stack(part.inner), of_list=False)

    def _laid(self, layout: Layout, inner: str, stack: bool, of_list: bool) -> str:
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
        cut = (digit for axis in layout.before for digit in axis[:-1])
        lengths = "".join(f", {names[digit]}={self._hole(layout.lengths[digit])}" for digit in cut)
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
        if stack and axis == 0:
            names += _STACKED[: len(digits)]
        elif len(digits) == 1:
            names.append(next(whole))
        elif digits:
            mark = next(marks)
            names += [letter + mark for letter in ("hd" if len(digits) == 2 else _OF_MANY[: len(digits)])]
    return names


def _group(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"({' '.join(names)})" if names else "1"
