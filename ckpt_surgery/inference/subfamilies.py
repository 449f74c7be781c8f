"""Families whose members are all alike: of one kind, one shape and one dtype."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.dtypes import ELEMENT_TYPES, DType
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.inference.families import Family, Numbers, Template

_FEW = 8
"""How many values an index takes at most that may be a name after all: the sublayers of a block, 0 to 2."""
_NUMBERS = {"b": "bool", "i": "integer", "u": "integer", "f": "float", "c": "complex"}


@dataclass(frozen=True)
class Subfamily:
    """Members of one family that are alike. An index that is the same in all of them is part of the name."""

    template: Template
    """The keys, with a place for each index that varies."""
    members: Mapping[Numbers, str]
    """The keys by the indices that vary, in natural order; at least one."""
    kind: str
    """What the values are: `bool`, `integer`, `float`, `complex`, or what a leaf without numbers is. Values
    of different kinds never follow from each other."""
    shape: Shape
    """Shape of each member; `()` for what has none."""
    dtype: DType | None
    """dtype of each member; None for what has none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The members' keys, in the order of their indices."""
        return tuple(self.members.values())

    @property
    def text(self) -> str:
        """The template as text: `layers/{}/mlp/kernel`."""
        return str(self.template)

    @property
    def numeric(self) -> bool:
        """Whether the members are arrays of numbers, which can be moved about."""
        return self.kind in _NUMBERS.values()

    @property
    def elements(self) -> int:
        """Number of elements of all members together."""
        return math.prod(self.shape) * len(self.members)


def subfamilies(leaves: Iterable[Leaf], found: Iterable[Family]) -> tuple[Subfamily, ...]:
    """These leaves as subfamilies, ordered by their first members.

    `found`: the families of the whole checkpoint; they may have members that are not among the leaves.
    An index behind another one that takes few values and divides different families (`layer.0.SelfAttention`,
    `layer.1.DenseReluDense`) tells what its subtree is, and counts nothing: it becomes a part of the names.
    """
    known = {leaf.key.text: leaf for leaf in leaves}
    all_families = list(found)
    named = _named(all_families)
    parted: dict[_Part, dict[Numbers, str]] = {}
    for family in all_families:
        template = family.template
        fixed = [slot for slot in range(template.slots) if template.texts[: slot + 1] in named]
        for numbers, key in family.members.items():
            if key in known:
                part = template, tuple(numbers[slot] for slot in fixed), _likeness(known[key])
                parted.setdefault(part, {})[numbers] = key
    order = {key: place for place, key in enumerate(known)}
    made = [_group(template, members, likeness) for (template, _, likeness), members in parted.items()]
    return tuple(sorted(made, key=lambda subfamily: order[subfamily.keys[0]]))


@dataclass(frozen=True)
class Member:
    """One member of a subfamily, as a subfamily of its own."""

    number: int
    """The place of the family among all."""
    family: Subfamily
    numbers: Numbers
    alone: Subfamily


def members(some: Iterable[Subfamily]) -> list[Member]:
    """Each member by itself; its indices are parts of its name."""
    return [
        Member(at, one, numbers, Subfamily(Template((key,)), {(): key}, one.kind, one.shape, one.dtype))
        for at, one in enumerate(some)
        for numbers, key in one.members.items()
    ]


_Likeness = tuple[str, Shape, DType | None]
_Part = tuple[Template, Numbers, _Likeness]


def _group(template: Template, members: Mapping[Numbers, str], likeness: _Likeness) -> Subfamily:
    """The subfamily of these members of a template; indices that are the same in all become names."""
    slots = range(template.slots)
    varying = [slot for slot in slots if len({numbers[slot] for numbers in members}) > 1]
    first = next(iter(members))
    texts = [template.texts[0]]
    for slot in slots:
        if slot in varying:
            texts.append(template.texts[slot + 1])
        else:
            texts[-1] += first[slot] + template.texts[slot + 1]
    ordered = sorted(members.items(), key=lambda member: tuple(map(int, member[0])))
    short = {tuple(numbers[slot] for slot in varying): key for numbers, key in ordered}
    return Subfamily(Template(tuple(texts)), short, *likeness)


def _likeness(leaf: Leaf) -> _Likeness:
    """What the members of a subfamily have in common."""
    if leaf.kind is LeafKind.PRNG_KEY and leaf.spec is not None:
        return f"key {leaf.prng_impl}", leaf.spec.shape, leaf.spec.dtype
    if leaf.spec is None:
        return f"{leaf.kind} {leaf.empty}", (), None
    found = ELEMENT_TYPES.get(leaf.spec.dtype.name)
    kind = _NUMBERS[found.kind] if found else leaf.spec.dtype.name
    return kind, leaf.spec.shape, leaf.spec.dtype


def _named(found: Sequence[Family]) -> set[tuple[str, ...]]:
    """The texts before those indices that are names."""
    values: dict[tuple[str, ...], list[frozenset[str]]] = {}
    for family in found:
        for slot in range(1, family.template.slots):
            taken = frozenset(numbers[slot] for numbers in family.members)
            values.setdefault(family.template.texts[: slot + 1], []).append(taken)
    return {
        texts
        for texts, sets in values.items()
        if len(set(sets)) > 1 and len(frozenset().union(*sets)) <= _FEW
    }
