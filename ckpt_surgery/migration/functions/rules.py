"""Write the moves of leaves by a function as rules of a recipe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import ESCAPED, SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.migration.key_templates import without_indices
from ckpt_surgery.migration.originals import NUMERIC

MOST_MATCHES = 200
"""Limit on `match` rules that move leaves, each of which is tried at each leaf. Beyond that,
`add` rules look the arrays up, in constant time for each."""

Rule = dict[str, Any]


@frozen()
class KeyMove:
    """A leaf of a source, and its key in the result."""

    source: str
    leaf: Leaf
    to: Key


@dataclass(frozen=True)
class _Subtree:
    """Leaves below one key that keep their names below another key in the result."""

    depth: int
    """Number of components of the key above them."""
    moves: Sequence[KeyMove]

    @property
    def rule(self) -> Rule:
        """The rule that moves them."""
        first = self.moves[0]
        if len({move.leaf.key.text for move in self.moves}) == 1:
            return _single([move.to for move in self.moves], first.leaf.key)
        below = len(first.leaf.key.names) - self.depth
        old = _part(first.leaf.key, 0, self.depth)
        new = _part(first.to, 0, len(first.to.names) - below)
        pattern = escaped(f"{old.text}/") if old.names else ""
        if old == new:
            return {"match": f"{pattern}.*"}
        return {"match": f"{pattern}(.*)", "to": "/".join([*_components(new), r"\1"])}


def move_rules(moves: Sequence[KeyMove], listings: Mapping[str, Mapping[str, Leaf]]) -> list[Rule]:
    """Make rules that move leaves; one rule moves a whole subtree.

    `listings`: the leaves of each source by name. Leaves that `moves` has several times go to several places,
    which expressions cannot do for those that are not arrays.
    """
    subtrees: list[tuple[str, _Subtree]] = []
    for name, leaves in listings.items():
        moved: dict[str, list[KeyMove]] = {}
        for move in moves:
            if move.source == name:
                moved.setdefault(move.leaf.key.text, []).append(move)
        subtrees += [(name, subtree) for subtree in _subtrees(list(leaves.values()), moved, 0)]
    several = len(listings) > 1
    matched = len(subtrees) <= MOST_MATCHES
    rules: list[Rule] = []
    for name, subtree in subtrees:
        if matched or subtree.moves[0].leaf.kind not in NUMERIC:
            rule = subtree.rule
            rule |= {"source": name} if several and name != next(iter(listings)) else {}
            rules.append(rule)
        else:
            rules += [_looked_up(move) for move in subtree.moves]
    return rules


def _looked_up(move: KeyMove) -> Rule:
    return {"add": template_of(move.to), "value": f"{move.source}[{move.leaf.key.text!r}]"}


def _single(places: Sequence[Key], key: Key) -> Rule:
    """Make the rule that moves one leaf, to one place or to several."""
    rule: Rule = {"match": escaped(key.text)}
    if len(places) > 1:
        return {**rule, "to": {template_of(place): "x" for place in places}}
    return rule if places[0] == key else {**rule, "to": template_of(places[0])}


def _subtrees(
    leaves: Sequence[Leaf], moved: Mapping[str, Sequence[KeyMove]], depth: int
) -> Iterator[_Subtree]:
    """Yield the largest subtrees that are moved as a whole; a leaf moved alone is a subtree of one.

    `leaves`: all leaves below one key of `depth` components.
    """
    per_leaf = [moved[leaf.key.text] for leaf in leaves if leaf.key.text in moved]
    if not per_leaf:
        return
    moves = [move for places in per_leaf for move in places]
    once = len(moves) == len(per_leaf) == len(leaves)
    if len(leaves) == 1 or (once and _is_one(moves, depth)):
        yield _Subtree(depth, moves)
        return
    below: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        below.setdefault(leaf.key.names[depth], []).append(leaf)
    for inner in below.values():
        yield from _subtrees(inner, moved, depth + 1)


def _is_one(moves: Sequence[KeyMove], depth: int) -> bool:
    """True if these leaves keep their names below one key of the result."""
    places = set()
    for move in moves:
        old, new = move.leaf.key, move.to
        below = len(old.names) - depth
        start = len(new.names) - below
        names = (*old.names, *new.names)
        plain = not any(SEPARATOR in name or "\n" in name or not name for name in names)
        if below < 1 or start < 0 or not plain:
            return False
        if _part(old, depth, None) != _part(new, start, None):
            return False
        places.add(_part(new, 0, start))
    return len(places) == 1


def _part(key: Key, start: int, stop: int | None) -> Key:
    return Key(key.names[start:stop], key.sequences[start:stop])


# --- keys as text of recipes ------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Escape a text for a regular expression."""
    return str(regex.escape(text, special_only=True))


def template_of(key: Key) -> str:
    """Write a key as a template: `a/[0]/b`."""
    return "/".join(_components(key))


def _components(key: Key) -> Iterator[str]:
    for name, is_index in zip(key.names, key.sequences, strict=True):
        yield f"[{name}]" if is_index else _component(name)


def _component(name: str) -> str:
    """Write a key of a dict as a component of a template."""
    if not name:
        return "${''}"
    return without_indices(name.replace("\\", "\\\\").replace("$", "$$").replace(SEPARATOR, ESCAPED))
