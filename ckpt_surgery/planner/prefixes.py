"""Finds the leaves that a target lacks elsewhere in a source: below another prefix, or with `/value` behind.

A training state wraps the params in `params`, an optimizer in `target`, and modules of Flax NNX put `value`
behind each key. Where source and target differ in that alone, one rule brings them together.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.notices import FEW
from ckpt_surgery.planner.entries import HAS_ARRAY, Tree

VALUE = f"{SEPARATOR}value"
"""Last component of the keys of variables in Flax NNX."""
MOST_ALIKE = 8
"""Number of source leaves with the same end of their keys that are looked at for one key of the target."""
MOST_MOVES = 16
"""Number of moves that are tried on all keys."""
_SPECIAL = regex.compile(r"[\\${}]")
"""Characters that templates give a meaning."""


@dataclass(frozen=True, order=True)
class Move:
    """Leaves of a source that lie where the target has them once their keys' start and end are replaced."""

    source: str
    """Start of the keys in the source, such as `params/`; empty for the root."""
    target: str
    """Start of the keys in the target."""
    source_end: str = ""
    target_end: str = ""

    def origin(self, key: str) -> str | None:
        """The source key that becomes this key of the target; None if none does."""
        if not (key.startswith(self.target) and key.endswith(self.target_end)):
            return None
        middle = key[len(self.target) : len(key) - len(self.target_end)]
        return f"{self.source}{middle}{self.source_end}" if middle else None


@dataclass(frozen=True)
class Suggestion:
    """A rule that gives leaves of a target, and the keys of these."""

    pattern: str
    """`match` of the rule."""
    template: str
    """`to` of the rule."""
    keys: tuple[str, ...]
    example: str
    """Key of a source leaf that the rule renames."""

    @property
    def rule(self) -> str:
        """The rule as YAML on one line."""
        pattern, template = (text.replace("'", "''") for text in (self.pattern, self.template))
        return f"{{match: '{pattern}', to: '{template}'}}"


def suggestions(missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Tree) -> list[Suggestion]:
    """Rules that give missing leaves of a target, each with leaves that fit; none where several would do.

    `leaves`: the target's. `offered`: leaves of a source that nothing uses. Following the rules takes nothing
    from other leaves of the target.
    """
    found: list[Suggestion] = []
    left = list(missing)
    while left and len(found) < FEW:
        best = _best(left, leaves, offered)
        if best is None:
            break
        found.append(best)
        given = set(best.keys)
        left = [key for key in left if key not in given]
    return found


def _best(missing: Sequence[str], leaves: Mapping[str, Leaf], offered: Tree) -> Suggestion | None:
    """The rule that gives the most of the missing leaves; None where two different ones give as many."""
    ranked: dict[tuple[int, int, int], list[Suggestion]] = defaultdict(list)
    for move in _moves(missing, offered):
        origins = ((key, move.origin(key)) for key in missing)
        pairs = {key: origin for key, origin in origins if origin is not None and origin in offered}
        if pairs and all(_fits(leaves[key], offered[origin].leaf) for key, origin in pairs.items()):
            suggestion = _suggestion(move, pairs, leaves, offered)
            if suggestion is not None:
                names = move.source.split(SEPARATOR)
                ranked[len(pairs), "params" in names, -len(names)].append(suggestion)
    best = ranked[max(ranked)] if ranked else []
    return best[0] if len(best) == 1 else None


def _moves(missing: Sequence[str], offered: Tree) -> list[Move]:
    """The moves that give the most of these keys: each shares the longest end with a source key."""
    ends: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in offered:
        for end in dict.fromkeys((VALUE if key.endswith(VALUE) else "", "")):
            bare = key.removesuffix(end) if end else key
            for tail in _tails(bare):
                ends[tail].append((bare[: len(bare) - len(tail)], end))
    moves: Counter[Move] = Counter()
    for key in missing:
        for end in dict.fromkeys((VALUE if key.endswith(VALUE) else "", "")):
            bare = key.removesuffix(end) if end else key
            shared = next((tail for tail in _tails(bare) if tail in ends), None)
            if shared is None:
                continue
            start = bare[: len(bare) - len(shared)]
            for source, source_end in ends[shared][:MOST_ALIKE]:
                moves[Move(source, start, source_end, end)] += 1
    return [move for move, _ in moves.most_common(MOST_MOVES)]


def _tails(key: str) -> Iterator[str]:
    """The key, and its ends after each separator, the longest first."""
    yield key
    for i, character in enumerate(key):
        if character == SEPARATOR:
            yield key[i + 1 :]


def _fits(wanted: Leaf, given: Leaf) -> bool:
    """True if a source leaf can take the place of the target's: same shape, or same kind without one."""
    if wanted.kind in HAS_ARRAY and given.kind in HAS_ARRAY:
        return wanted.spec is not None and given.spec is not None and wanted.spec.shape == given.spec.shape
    return wanted.kind is given.kind


def _suggestion(
    move: Move, pairs: Mapping[str, str], leaves: Collection[str], offered: Tree
) -> Suggestion | None:
    """The rule for a move; None where it would take leaves that the target has under their own keys."""
    if move == Move(move.source, move.source) or _SPECIAL.search(move.target + move.target_end):
        return None
    start, end = (str(regex.escape(text, special_only=True)) for text in (move.source, move.source_end))
    middle = "(.*)" if move.source else _tops(pairs.values(), offered, move.source_end)
    pattern = f"{start}{middle}{end}"
    compiled = regex.compile(pattern)
    if any(key in leaves for key in offered if compiled.fullmatch(key)):
        return None
    template = f"{move.target}\\1{move.target_end}"
    return Suggestion(pattern, template, tuple(pairs), next(iter(pairs.values())))


def _tops(origins: Collection[str], offered: Tree, end: str) -> str:
    """A group that matches all keys, or those below the first components of some."""
    tops = {origin.split(SEPARATOR)[0] for origin in origins}
    if all(key.split(SEPARATOR)[0] in tops and key.endswith(end) for key in offered):
        return "(.*)"
    names = "|".join(str(regex.escape(top, special_only=True)) for top in sorted(tops))
    return f"((?:{names})(?:/.*)?)"
