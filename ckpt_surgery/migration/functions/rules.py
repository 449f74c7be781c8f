"""Write the moves of leaves by a function as rules of a recipe."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
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


Subtree = tuple[int, Sequence[KeyMove]]
"""Number of components of a key, and the leaves below it, which keep their names below another key."""


def move_rules(moves: Sequence[KeyMove], listings: Mapping[str, Mapping[str, Leaf]]) -> list[Rule]:
    """Make rules that move leaves, one for a whole subtree. `listings`: the leaves of each source by name."""
    moved = defaultdict[str, dict[str, list[KeyMove]]](dict)
    for move in moves:
        moved[move.source].setdefault(move.leaf.key.text, []).append(move)
    subtrees = [
        subtree
        for name, leaves in listings.items()
        for subtree in _subtrees(list(leaves.values()), moved[name], 0)
    ]
    rules: list[Rule] = []
    for depth, below in subtrees:
        source = below[0].source
        if len(subtrees) <= MOST_MATCHES or below[0].leaf.kind not in NUMERIC:
            rule = _matching(depth, below)
            rules.append(rule if source == next(iter(listings)) else {**rule, "source": source})
        else:
            looked_up = ((template_of(move.to), f"{source}[{move.leaf.key.text!r}]") for move in below)
            rules += [{"add": key, "value": value} for key, value in looked_up]
    return rules


def _matching(depth: int, moves: Sequence[KeyMove]) -> Rule:
    """Make the rule that moves a subtree, or one leaf, to one place or to several."""
    old, new = moves[0].leaf.key, moves[0].to
    if len({move.leaf.key.text for move in moves}) == 1:
        rule: Rule = {"match": escaped(old.text)}
        if len(moves) > 1:
            return {**rule, "to": {template_of(move.to): "x" for move in moves}}
        return rule if new == old else {**rule, "to": template_of(new)}
    above = _part(old, 0, depth), _part(new, 0, len(new.names) - len(old.names) + depth)
    pattern = escaped(f"{above[0].text}/") if depth else ""
    if above[0] == above[1]:
        return {"match": f"{pattern}.*"}
    return {"match": f"{pattern}(.*)", "to": "/".join([*_components(above[1]), r"\1"])}


def _subtrees(
    leaves: Sequence[Leaf], moved: Mapping[str, Sequence[KeyMove]], depth: int
) -> Iterator[Subtree]:
    """Yield the largest subtrees that are moved as a whole, also of one leaf. `leaves`: all below one key."""
    per_leaf = [moved[leaf.key.text] for leaf in leaves if leaf.key.text in moved]
    if not per_leaf:
        return
    moves = [move for places in per_leaf for move in places]
    once = len(moves) == len(per_leaf) == len(leaves)
    if len(leaves) == 1 or (once and _is_one(moves, depth)):
        yield depth, moves
        return
    below = defaultdict[str, list[Leaf]](list)
    for leaf in leaves:
        below[leaf.key.names[depth]].append(leaf)
    for inner in below.values():
        yield from _subtrees(inner, moved, depth + 1)


def _is_one(moves: Sequence[KeyMove], depth: int) -> bool:
    """True if these leaves keep their names below one key of the result."""
    places = set()
    for move in moves:
        old, new = move.leaf.key, move.to
        start = len(new.names) - len(old.names) + depth
        names = (*old.names, *new.names)
        plain = not any(SEPARATOR in name or "\n" in name or not name for name in names)
        if start < 0 or not plain or _part(old, depth, None) != _part(new, start, None):
            return False
        places.add(_part(new, 0, start))
    return len(places) == 1


def _part(key: Key, start: int, stop: int | None) -> Key:
    return Key(key.names[start:stop], key.sequences[start:stop])


def escaped(text: str) -> str:
    """Escape a text for a regular expression."""
    return str(regex.escape(text, special_only=True))


def template_of(key: Key) -> str:
    """Write a key as a template: `a/[0]/b`."""
    return "/".join(_components(key))


def _components(key: Key) -> Iterator[str]:
    for name, is_index in zip(key.names, key.sequences, strict=True):
        plain = name.replace("\\", "\\\\").replace("$", "$$").replace(SEPARATOR, ESCAPED)
        yield f"[{name}]" if is_index else without_indices(plain) or "${''}"
