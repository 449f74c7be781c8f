"""Holders as expressions of the recipe language."""

import re
from collections.abc import Mapping, Sequence

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.inference.formations import Value
from ckpt_surgery.inference.holders import (
    INNER,
    Call,
    Holder,
    Joined,
    Laid,
    Leaf,
    Many,
    Part,
    leaves_of,
)
from ckpt_surgery.inference.layout_steps import identity, is_identity
from ckpt_surgery.inference.layouts import Layout, expression

_HOLE = re.compile(r"\{(\d+)\}")
_FUNCTION = re.compile(r"\w+\(")
"""How the text of a call begins that is no operator and no subscript."""


def written(holder: Holder) -> tuple[tuple[str, ...], Value]:
    """The keys of the leaves that a holder is made of, in the order of `xs`, and its expression."""
    found = leaves_of(holder)
    keys = [key for one in found for key in (one.keys if isinstance(one, Many) else (one.key,))]
    sources = tuple(dict.fromkeys(keys))
    listed = len(sources) == len(keys) and len(keys) > 1 and (len(found) == 1 or _is_plain_list(holder))
    single = len(sources) == 1
    names = {key: "x" if single else f"xs[{number}]" for number, key in enumerate(sources)}
    writer = _Writer(names, listed)
    text = writer.text(holder)
    return sources, Value(text, tuple(writer.numbers))


def _is_plain_list(holder: Holder) -> bool:
    """Whether all leaves are the parts of one list, as they are."""
    while not isinstance(holder, Joined | Leaf | Many):
        holder = holder.inner
    return isinstance(holder, Joined) and all(isinstance(part, Leaf) for part in holder.parts)


class _Writer:
    """Text with holes, and the numbers that belong into them."""

    def __init__(self, names: Mapping[str, str], listed: bool):
        self._names = names
        self._listed = listed
        self.numbers: list[int] = []

    def text(self, holder: Holder) -> str:
        if isinstance(holder, Leaf):
            return self._names[holder.key]
        if isinstance(holder, Many):
            return self._laid(identity(holder.shape), holder)
        if isinstance(holder, Laid):
            return self._laid(holder.layout, holder.inner)
        if isinstance(holder, Part):
            return self._part(holder, [])
        if isinstance(holder, Call):
            return self._call(holder)
        return self._joined(holder)

    def _laid(self, layout: Layout, inner: Holder) -> str:
        if isinstance(inner, Many):
            stacks = len(inner.counts)
            if stacks == 1 and is_identity(layout):
                return f"stack({self._list(inner.keys)})"
            return self._expression(layout, self._list(inner.keys), stacks)
        if isinstance(inner, Part):
            single = [
                axis
                for axis, (length, all_of_it) in enumerate(zip(inner.shape, inner.inner.shape, strict=True))
                if length == 1 < all_of_it
            ]
            text = self._part(inner, single)
            cuts = tuple(cut for axis, cut in enumerate(layout.cuts) if axis not in single)
            layout = Layout(cuts, layout.order, layout.joins)
            return text if is_identity(layout) else self._expression(layout, text, 0)
        return self._expression(layout, self.text(inner), 0)

    def _expression(self, layout: Layout, inner: str, stacks: int) -> str:
        old, new = layout.shape_in, layout.shape_out
        if stacks == 0 and len(old) == 2 and new == old[::-1] and 1 in old:
            return f"{inner}.T"  # a reshape as well, but of any length
        value = expression(layout, INNER, stacks)
        first = len(self.numbers)
        self.numbers += value.numbers
        text = _HOLE.sub(lambda hole: f"{{{first + int(hole[1])}}}", value.text)
        return text.replace(INNER, inner)

    def _list(self, keys: Sequence[str]) -> str:
        """A list of leaves: all of them, neighbours, or one by one."""
        if self._listed:
            return "xs"
        order = list(self._names)
        start = order.index(keys[0])
        if len(keys) > 1 and order[start : start + len(keys)] == list(keys):
            return f"xs[{start}:{start + len(keys)}]"
        return "[" + ", ".join(self._names[key] for key in keys) + "]"

    def _part(self, part: Part, single: Sequence[int]) -> str:
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
        first = "" if start == 0 else self._hole(start)
        return f"{first}:{'' if stop == length else self._hole(stop)}"

    def _hole(self, number: int) -> str:
        self.numbers.append(number)
        return f"{{{len(self.numbers) - 1}}}"

    def _call(self, call: Call) -> str:
        inner = self.text(call.inner) if _FUNCTION.match(call.text) else self._atom(call.inner)
        return call.text.replace(INNER, inner)

    def _atom(self, holder: Holder) -> str:
        """The text, in parentheses where an operator or a subscript next to it would split it."""
        text = self.text(holder)
        return f"({text})" if isinstance(holder, Call) and holder.operator else text

    def _joined(self, joined: Joined) -> str:
        whole = self._listed and all(isinstance(part, Leaf) for part in joined.parts)
        items = "xs" if whole else f"[{', '.join(map(self.text, joined.parts))}]"
        name = "stack" if joined.stacked else "concat"
        return f"{name}({items})" if joined.axis == 0 else f"{name}({items}, axis={joined.axis})"
