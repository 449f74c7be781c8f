"""Leaves of a source that lie where a target has them once their keys' start and end are replaced."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.optimizer_states import OPTIMIZER, STATES
from ckpt_surgery.planner.entries import HAS_ARRAY, Tree

VALUE = f"{SEPARATOR}value"
"""Last component of the keys of variables in Flax NNX."""
MOST_ALIKE = 8
"""Number of source leaves with the same end of their keys that are looked at for one key of the target."""
MOST_MOVES = 32
"""Number of moves that are tried on all keys."""
_CONTAINERS = STATES | (OPTIMIZER - {"mu", "nu", "v_row", "v_col"}) | {"state"}
"""Components of keys within an optimizer's state that say nothing about what lies below."""
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, order=True)
class Move:
    """What a key's start and end become."""

    name: str
    """The source that the leaves are of."""
    source: str
    """Start of the keys in the source, such as `params/`; empty for the root."""
    target: str
    """Start of the keys in the target."""
    source_end: str = ""
    target_end: str = ""

    def origin(self, key: str) -> str | None:
        """The source key that becomes this key of the target; None if none does."""
        return _replaced(key, (self.target, self.target_end), (self.source, self.source_end))

    def output(self, key: str) -> str | None:
        """The key of the target that this source key becomes; None for keys that stay."""
        return _replaced(key, (self.source, self.source_end), (self.target, self.target_end))

    @property
    def names(self) -> list[str]:
        """The components that the keys start with in the source."""
        return self.source.split(SEPARATOR)[:-1]

    @property
    def affinity(self) -> int:
        """Number of components of the new start that are in the old one, or the name of the source.

        One more where both have the same numbers: `layer_3/` of `3/`.
        """
        known, numbers = {self.name, *self.names}, _NUMBER.findall(self.target)
        same = bool(numbers) and numbers == _NUMBER.findall(self.source)
        return sum(name in known for name in self.target.split(SEPARATOR)[:-1]) + same


def _replaced(key: str, old: tuple[str, str], new: tuple[str, str]) -> str | None:
    if not (key.startswith(old[0]) and key.endswith(old[1])):
        return None
    middle = key[len(old[0]) : len(key) - len(old[1])]
    return f"{new[0]}{middle}{new[1]}" if middle else None


@dataclass(frozen=True)
class PossibleMove:
    """A move, and the leaves of the target that it gives."""

    move: Move
    origins: Mapping[str, str]
    """Key of the source leaf by the key of the target."""

    def rivals(self, other: "PossibleMove") -> bool:
        """Whether two candidates give one key of the target from different leaves."""
        here, there = self.move.name, other.move.name
        shared = self.origins.keys() & other.origins.keys()
        return any((here, self.origins[key]) != (there, other.origins[key]) for key in shared)


def candidates(
    missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Mapping[str, Tree]
) -> list[PossibleMove]:
    """The moves that give missing leaves of a target, those that give the most first.

    Most of their leaves fit. None makes parameters of an optimizer's moments, or moments of other moments.
    One leaf alone is no sign where its name is all that both keys share.
    """
    found = []
    for move in _moves(missing, offered):
        tree = offered[move.name]
        pairs = ((key, move.origin(key)) for key in missing)
        origins = {key: origin for key, origin in pairs if origin is not None and origin in tree}
        fitting = sum(fits(leaves[key], tree[origin].leaf) for key, origin in origins.items())
        if 2 * fitting > len(origins) and not _is_weak(move, origins):
            found.append(PossibleMove(move, origins))
    return sorted(found, key=lambda one: (-len(one.origins), len(one.move.names), one.move.source_end))


def _is_weak(move: Move, origins: Mapping[str, str]) -> bool:
    names = [key[len(move.target) :].removesuffix(move.target_end) for key in origins]
    return bool(move.source and move.target) and len(names) == 1 and SEPARATOR not in names[0]


def _moves(missing: Sequence[str], offered: Mapping[str, Tree]) -> list[Move]:
    """The moves that give the most of these keys: each shares the longest end with a source key."""
    ends: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for name, tree in offered.items():
        for key in tree:
            for bare, end in _bare(key):
                for tail in _tails(bare):
                    ends[tail].append((name, bare[: len(bare) - len(tail)], end))
    moves: Counter[Move] = Counter()
    for key in missing:
        for bare, end in _bare(key):
            starts = ((bare[: len(bare) - len(tail)], ends.get(tail, ())) for tail in _tails(bare))
            alike = ((start, [one for one in known if are_alike(one[1], start)]) for start, known in starts)
            start, nearest = next(((start, found) for start, found in alike if found), ("", []))
            moves.update(Move(name, old, start, old_end, end) for name, old, old_end in nearest[:MOST_ALIKE])
    return [move for move, _ in moves.most_common(MOST_MOVES)]


def _bare(key: str) -> Iterator[tuple[str, str]]:
    """The key without `/value` and that end, where it has it, and the key itself."""
    if key.endswith(VALUE):
        yield key.removesuffix(VALUE), VALUE
    yield key, ""


def _tails(key: str) -> Iterator[str]:
    """The key, and its ends after each separator, the longest first."""
    yield key
    for i, character in enumerate(key):
        if character == SEPARATOR:
            yield key[i + 1 :]


def fits(wanted: Leaf, given: Leaf) -> bool:
    """True if a source leaf can take the place of the target's: same shape, or same kind without one."""
    if wanted.kind in HAS_ARRAY and given.kind in HAS_ARRAY:
        return wanted.spec is not None and given.spec is not None and wanted.spec.shape == given.spec.shape
    return wanted.kind is given.kind


def are_alike(one: str, other: str) -> bool:
    """Whether leaves below these starts of keys can be the same thing.

    Moments are not parameters, nor other moments: `opt_state/0/mu/` is not `ema/` and not `opt_state/0/nu/`.
    """
    return _slots(one) == _slots(other)


def _slots(start: str) -> list[str]:
    """The components within an optimizer's state that say what lies below: `mu` of `opt_state/0/mu/`."""
    names = start.split(SEPARATOR)[:-1]
    roots = (i for i, name in enumerate(names) if name in STATES | OPTIMIZER)
    root = next((i for i in roots if names[i + 1 : i + 2] != ["target"]), len(names))
    return [
        name
        for name in names[root:]
        if not (name.isdigit() or name in _CONTAINERS or name.startswith("inner_"))
    ]
