"""Whether a leaf of the target that nothing fits could be what is left of the source, by its size alone.

Only where it could not is it safe to give it the target's own value without a question.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.inference.expressions.formations import Candidate, Undecided
from ckpt_surgery.inference.values.fingerprints import unsigned_kind

MAYBE = "no name tells whether it is made of the source leaves of this size, or has a value of its own"
MOST_CANDIDATES = 8
"""How many leaves of one size are named as candidates."""
_NUMBER = re.compile(r"\d+")

Kind = tuple[int, str]
"""The number of elements, and the kind of values."""


@frozen()
class Leftovers:
    """What nobody can tell by sizes."""

    undecided: tuple[Undecided, ...]
    """Leaves of the target that could be made of leaves of the source, with some of these."""
    held: frozenset[str]
    """All leaves of the source that one of them could be made of."""


def leftovers(left: Iterable[Leaf], alone: Iterable[Leaf]) -> Leftovers:
    """What leaves of the target could be made of leaves of the source that feed nothing.

    `left`: these leaves of the source; `alone`: those of the target. A leaf could be one of the source with
    the same size, a stack of several whose keys differ in numbers alone, or one of several that are taken
    from a stack.
    """
    by_kind, stacks = _by_kind(left)
    undecided: list[Undecided] = []
    held: set[str] = set()
    for family in _alike(alone).values():
        kind = _kind(family[0])
        ways = {
            "same": by_kind.get(kind, []),
            "stack": _stack(kind, stacks),
            "unstack": _split(kind, len(family), by_kind),
        }
        how = next((how for how, keys in ways.items() if keys), None)
        if how is None:
            continue
        keys = ways[how]
        several = [tuple(keys)] if how == "stack" else [(key,) for key in keys[:MOST_CANDIDATES]]
        candidates = tuple(Candidate(one, "", 0.0, how) for one in several)
        undecided.append(Undecided(tuple(leaf.key.text for leaf in family), MAYBE, candidates))
        held.update(*ways.values())
    return Leftovers(tuple(undecided), frozenset(held))


def _by_kind(left: Iterable[Leaf]) -> tuple[dict[Kind, list[str]], list[tuple[Kind, list[str]]]]:
    """The keys of leaves of one kind; and those that differ in numbers alone, with the kind of each."""
    leaves = list(left)
    kinds: dict[Kind, list[str]] = defaultdict(list)
    for leaf in leaves:
        kinds[_kind(leaf)].append(leaf.key.text)
    alike = [(_kind(family[0]), [leaf.key.text for leaf in family]) for family in _alike(leaves).values()]
    return kinds, [(kind, keys) for kind, keys in alike if len(keys) > 1]


def _alike(leaves: Iterable[Leaf]) -> Mapping[object, Sequence[Leaf]]:
    """The leaves by their kind, and their keys without numbers."""
    found: dict[object, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        found[_kind(leaf), _NUMBER.sub("{}", leaf.key.text)].append(leaf)
    return found


def _stack(kind: Kind, stacks: Iterable[tuple[Kind, list[str]]]) -> list[str]:
    """Keys of leaves of which some together are as large as a leaf of this kind."""
    size, values = kind
    for (part, other), keys in stacks:
        if part and other == values and size % part == 0 and 1 < size // part <= len(keys):
            return keys
    return []


def _split(kind: Kind, count: int, whole: Mapping[Kind, list[str]]) -> list[str]:
    """Keys of leaves that are as large as at most so many leaves of this kind together."""
    size, values = kind
    return [
        key
        for (total, other), keys in whole.items()
        for key in keys
        if size and other == values and total % size == 0 and 1 < total // size <= count
    ]


def _kind(leaf: Leaf) -> Kind:
    if leaf.spec is None or leaf.kind not in (LeafKind.ARRAY, LeafKind.SCALAR):
        return 0, f"{leaf.kind} {leaf.empty}"
    return leaf.spec.size, unsigned_kind(leaf.spec.dtype)
