"""Leaves that may have been stacked into one array, or come from one: all of a family, or some of it.

A group is a leaf by itself, or the leaves of a family along some of its indices (the experts of one layer,
all layers of one expert, all of both), or those of two or three families whose names differ in one component
(`gate_proj` and `up_proj`). Its fingerprint is that of the stack of its members.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.holders import Holder, of_leaves
from ckpt_surgery.inference.keys.grids import Grid, KeyTemplate, Numbers
from ckpt_surgery.inference.values.fingerprints import Fingerprint, joined
from ckpt_surgery.inference.values.marginals import Marginals

MOST_SIBLINGS = 3
"""How many families are taken together at most."""
MOST_FAMILIES = 12
"""Families that differ in one component, up to which some of them are taken together."""


@dataclass(frozen=True, eq=False)
class StackedLeaves:
    """Leaves of one checkpoint with equal shapes, and the stack that they would make."""

    keys: tuple[str, ...]
    """The members in the order in which they would be stacked."""
    lengths: Shape
    """The lengths of the stack's first axes, one for each index; empty for a leaf by itself."""
    parts: tuple[Fingerprint, ...]
    """The fingerprints of the members."""

    @property
    def total(self) -> int:
        """Sum over all members, modulo 2^64."""
        return sum(part.total for part in self.parts) % (1 << 64)

    @property
    def size(self) -> int:
        """Number of elements of all members."""
        return len(self.parts) * self.parts[0].size

    @property
    def shape(self) -> Shape:
        """Shape of the stack."""
        return (*self.lengths, *self.parts[0].shape)

    @property
    def array(self) -> Holder:
        """The stack of the members, as an expression."""
        return of_leaves(self.keys, self.lengths, self.parts[0].shape)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the stack."""
        return joined(self.lengths, self.parts) if self.lengths else self.parts[0]

    @cached_property
    def marginals(self) -> Marginals:
        """The sums of the stack's digits."""
        return Marginals(self.fingerprint)

    @property
    def constant(self) -> bool:
        """Whether every member repeats one value, so that their sums are no evidence, not even together."""
        return all(part.constant for part in self.parts)


def single(key: str, fingerprint: Fingerprint) -> StackedLeaves:
    """A leaf by itself."""
    return StackedLeaves((key,), (), (fingerprint,))


def singles(known: Mapping[str, Fingerprint]) -> Iterator[StackedLeaves]:
    """Every leaf by itself."""
    return (single(key, fingerprint) for key, fingerprint in known.items())


def gathered(found: Iterable[Grid], known: Mapping[str, Fingerprint]) -> Iterator[StackedLeaves]:
    """The groups of leaves that differ in indices alone; those along few indices come first."""
    for family in found:
        members = {numbers: key for numbers, key in family.members.items() if key in known}
        for count in range(1, family.template.slots + 1):
            for slots in itertools.combinations(range(family.template.slots), count):
                for keys, lengths in _along(members, slots):
                    yield from _group(keys, lengths, known)


def siblings(found: Sequence[Grid], known: Mapping[str, Fingerprint]) -> Iterator[StackedLeaves]:
    """The groups of two or three families whose names differ in one component, one by one and stacked.

    The first axis of the stack is that of the families, in all their orders where they are three.
    """
    for alike in _alike(found, known):
        for count in range(2, MOST_SIBLINGS + 1):
            for some in itertools.combinations(alike, count):
                yield from _together(some, known)


def _together(some: Sequence[Grid], known: Mapping[str, Fingerprint]) -> Iterator[StackedLeaves]:
    common = [n for n in some[0].members if all(n in other.members for other in some[1:])]
    members = [{n: f.members[n] for n in common if f.members[n] in known} for f in some]
    slots = some[0].template.slots
    for count in range(slots + 1):
        for chosen in itertools.combinations(range(slots), count):
            stacks = [list(_along(one, chosen)) for one in members]
            if len({len(stack) for stack in stacks}) != 1:
                continue
            for parts in zip(*stacks, strict=True):
                if len({lengths for _, lengths in parts}) == 1:
                    keys = tuple(itertools.chain.from_iterable(keys for keys, _ in parts))
                    yield from _group(keys, (len(some), *parts[0][1]), known)


def _group(
    keys: tuple[str, ...], lengths: Shape, known: Mapping[str, Fingerprint]
) -> Iterator[StackedLeaves]:
    """The group of these leaves, if their shapes are equal."""
    parts = tuple(known[key] for key in keys)
    if len({part.shape for part in parts}) == 1:
        yield StackedLeaves(keys, lengths, parts)


def _along(members: Mapping[Numbers, str], slots: Collection[int]) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """The members along these indices, for each value of the others, where they make up a whole grid."""
    rest: dict[Numbers, dict[Numbers, str]] = {}
    for numbers, key in members.items():
        fixed = tuple(n for slot, n in enumerate(numbers) if slot not in slots)
        rest.setdefault(fixed, {})[tuple(numbers[slot] for slot in sorted(slots))] = key
    for part in rest.values():
        axes = [
            sorted({numbers[i] for numbers in part}, key=lambda number: (int(number), number))
            for i in range(len(slots))
        ]
        grid = list(itertools.product(*axes))
        if len(grid) == len(part) and (len(part) > 1 or not slots):
            yield tuple(part[numbers] for numbers in grid), tuple(map(len, axes))


def _alike(found: Sequence[Grid], known: Mapping[str, Fingerprint]) -> Iterator[list[Grid]]:
    """Families whose templates differ in one component of their texts, and in no shape."""
    outlines: dict[tuple[object, ...], list[Grid]] = {}
    for family in found:
        first = next((known[key] for key in family.keys if key in known), None)
        if first is not None:
            for outline in _outlines(family.template):
                outlines.setdefault((outline, first.shape), []).append(family)
    for alike in outlines.values():
        if 2 <= len(alike) <= MOST_FAMILIES:
            yield alike


def _outlines(template: KeyTemplate) -> Iterator[tuple[object, ...]]:
    """The template with one of its components left out, for each of them."""
    for place, text in enumerate(template.texts):
        parts = text.replace(".", "/").split("/")
        for i, part in enumerate(parts):
            if part:
                yield (
                    *template.texts[:place],
                    (*parts[:i], None, *parts[i + 1 :]),
                    *template.texts[place + 1 :],
                )
