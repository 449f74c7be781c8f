"""Keys that differ in indices alone, as grids: `layers/{}/mlp/kernel` with the members 0 to 47.

Not every number in a key is an index. A number counts as one where it is a component of its own and takes
several values behind the same prefix (`layers/3/…`, `model.layers.3.…`), or where it is attached to a word
and takes the values 0 to N-1 with N of at least 3 (`layers_3`, `block_007`), or of 2 where the word counts
layers or experts (`layers_0`, `layers_1`). A number that never varies behind its prefix is part of a name
(`opt_state/0`), and so are those of `conv1` and `wi_0`.
"""

import itertools
import math
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.dtypes import ELEMENT_TYPES, DType
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.inference.keys.concepts import counted

SEPARATORS = ("/", ".")
"""Separators of the components of a text."""
Numbers = tuple[str, ...]
"""The indices of a key in their order, as they are written: leading zeros are kept."""

_FEWEST = 3
"""Least number of values of an index that is attached to a word."""
_COUNTED = frozenset({"layer", "expert"})
"""Concepts for which two values are enough."""
_FEW = 8
"""Most values of an index that may be a name after all: the sublayers of a block, 0 to 2."""
_LONGEST = 18
"""Digits of the longest index: longer numbers are hashes or dates."""
_NUMBER = re.compile(rf"(?<![0-9])([0-9]{{1,{_LONGEST}}})(?![0-9])")
_MOST_KINDS = 8
"""Most kinds of layers; more are not taken for kinds."""
_KINDS = {"b": "bool", "i": "integer", "u": "integer", "f": "float", "c": "complex"}


@frozen()
class KeyTemplate:
    """A key with places for indices."""

    texts: tuple[str, ...]
    """Text before, between and after the indices: one more than there are indices."""

    @property
    def slots(self) -> int:
        """The number of indices."""
        return len(self.texts) - 1

    def key(self, numbers: Sequence[str]) -> str:
        """The key with these indices, as they are to be written."""
        return self.texts[0] + "".join(a + b for a, b in zip(numbers, self.texts[1:], strict=True))

    def __str__(self) -> str:
        return self.key(["{}"] * self.slots)


@dataclass(frozen=True)
class Grid:
    """Keys of one checkpoint with one template; leaves that are all alike, where kind and shape are given."""

    template: KeyTemplate
    members: Mapping[Numbers, str]
    """The keys by their indices, in natural order; at least one."""
    kind: str = ""
    """Kind of the values: `bool`, `integer`, `float`, `complex`, or that of a leaf without numbers. Values
    of different kinds never follow from each other."""
    shape: Shape = ()
    """Shape of each member; `()` for what has none."""
    dtype: DType | None = None
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
        """True if the members are arrays of numbers, which can be moved about."""
        return self.kind in _KINDS.values()

    @property
    def elements(self) -> int:
        """Number of elements of all members together."""
        return math.prod(self.shape) * len(self.members)


def grids(keys: Iterable[str]) -> tuple[Grid, ...]:
    """Group keys into grids, in the order of their first members; each key is in exactly one.

    From left to right, the numbers of keys with one template so far are decided together: all are indices, or
    parts of the text around them.
    """
    split = {key: _NUMBER.split(key) for key in keys}
    decided: dict[str, tuple[tuple[str, ...], Numbers]] = {
        key: ((parts[0],), ()) for key, parts in split.items()
    }
    for place in range(1, max(map(len, split.values()), default=0), 2):
        groups: dict[tuple[tuple[str, ...], bool], list[str]] = {}
        for key, parts in split.items():
            if place < len(parts):
                texts, after = decided[key][0], parts[place + 1]
                starts = texts == ("",) or texts[-1].endswith(SEPARATORS)
                own = starts and (not after or after.startswith(SEPARATORS))
                groups.setdefault((texts, own), []).append(key)
        for (texts, own), several in groups.items():
            values = {int(split[key][place]) for key in several}
            index = len(values) > 1 if own else _counts(values, texts[-1])
            for key in several:
                number, after = split[key][place : place + 2]
                if index:
                    decided[key] = (*texts, after), (*decided[key][1], number)
                else:
                    decided[key] = (*texts[:-1], texts[-1] + number + after), decided[key][1]
    members_of: dict[tuple[str, ...], dict[Numbers, str]] = {}
    for key, (texts, numbers) in decided.items():
        members_of.setdefault(texts, {})[numbers] = key
    return tuple(Grid(KeyTemplate(texts), _ordered(members)) for texts, members in members_of.items())


Places = Mapping[str, tuple[Grid, Numbers]]
"""The grid of every key, and the key's indices in it."""


def places_of(all_grids: Iterable[Grid]) -> Places:
    """Look up the grid and the indices of each key."""
    return {key: (grid, numbers) for grid in all_grids for numbers, key in grid.members.items()}


def _counts(values: Collection[int], before: str) -> bool:
    """True if these numbers of keys with one prefix, which are attached to a word, are indices."""
    if values != set(range(len(values))):
        return False
    return len(values) >= _FEWEST or (len(values) == 2 and counted(before) in _COUNTED)


def _ordered(members: Mapping[Numbers, str]) -> dict[Numbers, str]:
    return dict(sorted(members.items(), key=lambda item: [natural_order(number) for number in item[0]]))


def layer_kinds(all_grids: Iterable[Grid]) -> list[frozenset[str]]:
    """The keys of the layers of each kind, which have the same names below them; the smallest kinds first."""
    below: dict[tuple[str, str], dict[str, list[str]]] = {}
    for grid in all_grids:
        if grid.template.slots:
            prefix, *rest = grid.template.texts
            for numbers, key in grid.members.items():
                below.setdefault((prefix, numbers[0]), {}).setdefault("{}".join(rest), []).append(key)
    kinds: dict[object, list[str]] = {}
    for (prefix, _), names in below.items():
        kinds.setdefault((prefix, frozenset(names)), []).extend(itertools.chain.from_iterable(names.values()))
    return sorted(map(frozenset, kinds.values()), key=len)[:_MOST_KINDS]


# --- leaves that are alike --------------------------------------------------------------------------------

_Likeness = tuple[str, Shape, DType | None]


def alike(
    leaves: Mapping[str, Leaf], all_grids: Iterable[Grid], keys: Container[str] | None = None
) -> tuple[Grid, ...]:
    """Some leaves of a checkpoint as grids of one kind, shape and dtype, ordered by their first members.

    Members beside leaves with more axes, such as the biases of the convolutions of a `Sequential`, are not in
    a grid with those of its norms. An index that is the same in all members of a grid is part of its name. So
    is one behind another one that takes few values and divides different grids (`layer.0.SelfAttention`,
    `layer.1.DenseReluDense`): it counts nothing.
    """
    known = {key: leaf for key, leaf in leaves.items() if keys is None or key in keys}
    axes: dict[str, int] = {}
    for key, leaf in leaves.items():
        module = parent_of(key)
        axes[module] = max(axes.get(module, 0), leaf.spec.ndim if leaf.spec else 0)
    values: dict[tuple[str, ...], set[frozenset[str]]] = {}
    for grid in all_grids:
        for slot in range(1, grid.template.slots):
            taken = frozenset(numbers[slot] for numbers in grid.members)
            values.setdefault(grid.template.texts[: slot + 1], set()).add(taken)
    names = {text for text, sets in values.items() if len(sets) > 1 and len(frozenset().union(*sets)) <= _FEW}
    parted: dict[tuple[KeyTemplate, Numbers, int, _Likeness], dict[Numbers, str]] = {}
    for grid in all_grids:
        texts = grid.template.texts
        fixed = [slot for slot in range(grid.template.slots) if texts[: slot + 1] in names]
        for numbers, key in grid.members.items():
            if key in known:
                names_of = tuple(numbers[slot] for slot in fixed)
                part = grid.template, names_of, axes[parent_of(key)], _likeness(known[key])
                parted.setdefault(part, {})[numbers] = key
    order = {key: place for place, key in enumerate(known)}
    parts = [varying(template, members, likeness) for (template, *_, likeness), members in parted.items()]
    return tuple(sorted(parts, key=lambda grid: order[grid.keys[0]]))


def parent_of(key: str) -> str:
    """The key without its last component."""
    return key[: len(key.replace(".", "/").rpartition("/")[0])]


def varying(template: KeyTemplate, members: Mapping[Numbers, str], likeness: _Likeness) -> Grid:
    """The grid of these members of a template; indices that are the same in all become names."""
    first = next(iter(members))
    texts, varying = [template.texts[0]], []
    for slot, text in enumerate(template.texts[1:]):
        if len({numbers[slot] for numbers in members}) > 1:
            varying.append(slot)
            texts.append(text)
        else:
            texts[-1] += first[slot] + text
    ordered = sorted(members.items(), key=lambda member: tuple(map(int, member[0])))
    short = {tuple(numbers[slot] for slot in varying): key for numbers, key in ordered}
    return Grid(KeyTemplate(tuple(texts)), short, *likeness)


def _likeness(leaf: Leaf) -> _Likeness:
    """Kind, shape and dtype, which all members of a grid have in common."""
    if leaf.kind is LeafKind.PRNG_KEY and leaf.spec is not None:
        return f"key {leaf.prng_impl}", leaf.spec.shape, leaf.spec.dtype
    if leaf.spec is None:
        return f"{leaf.kind} {leaf.empty}", (), None
    element_type = ELEMENT_TYPES.get(leaf.spec.dtype.name)
    kind = _KINDS[element_type.kind] if element_type else leaf.spec.dtype.name
    return kind, leaf.spec.shape, leaf.spec.dtype


def apart(grid: Grid) -> list[Grid]:
    """Each member as a grid of its own; its indices are parts of its name."""
    return [replace(grid, template=KeyTemplate((key,)), members={(): key}) for key in grid.keys]
