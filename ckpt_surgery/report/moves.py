"""Finds whole subtrees that moved, stayed or went, so that one line can stand for all their leaves.

A line for `a/…` that came from `b/…` is exact: every leaf of the result below `a` is one of its leaves, every
leaf of the source below `b` too, and each kept the rest of its key.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Parts = tuple[str, ...]
"""The components of a key."""


@dataclass(frozen=True, slots=True)
class Move:
    """One leaf of the result with the source leaf that it comes from, or a source leaf that is dropped."""

    key: Parts | None
    """Components of the key in the result; None if the leaf is dropped."""
    source: Parts | None
    """Components of the key in the source; None if it comes from no leaf or from several."""
    like: Hashable
    """What decided: fate, rule, reason. Leaves share a subtree only if it is equal; None: they never do."""


class Subtree(NamedTuple):
    """One subtree, or one leaf where it is part of none."""

    key: str | None
    """Key of the subtree in the result; None if it is dropped."""
    source: str | None
    """Its key in the source."""
    members: tuple[int, ...]
    """Indices of its leaves among all moves, in order."""
    rests: tuple[Parts, ...]
    """What follows the subtree's key in the keys of its leaves; one empty one for a leaf itself."""


class _Head(NamedTuple):
    key: Parts | None
    source: Parts | None
    like: Hashable


def subtrees(moves: Sequence[Move], sources: Sequence[Parts]) -> list[Subtree]:
    """Each move is in exactly one of these, which are as large as they can be. In the order of the moves.

    `sources` are the keys of all leaves of all sources, each once.
    """
    results = Counter(head for move in moves if move.key is not None for head in _heads(move.key))
    origins = Counter(head for key in sources for head in _heads(key))
    candidates = [_candidates(move) for move in moves]
    together = Counter(head for heads in candidates for head, _ in heads)
    found: dict[_Head | int, list[tuple[int, Parts]]] = {}
    for index, heads in enumerate(candidates):
        whole: _Head | int = index
        rest: Parts = ()
        for head, after in heads:
            count = together[head]
            complete = head.key is None or results[head.key] == count
            if count > 1 and complete and (head.source is None or origins[head.source] == count):
                whole, rest = head, after
                break
        found.setdefault(whole, []).append((index, rest))
    return [_subtree(moves, members) for members in found.values()]


def _heads(key: Parts) -> Iterator[Parts]:
    """All subtrees that a leaf is in, but the whole."""
    return (key[:end] for end in range(1, len(key)))


def _candidates(move: Move) -> list[tuple[_Head, Parts]]:
    """The subtrees that a leaf may have moved with, the largest first, and the rest of its key in each."""
    if move.like is None:
        return []
    key, source = move.key, move.source
    longest = key or source or ()
    shared = len(longest) - 1
    if key is not None and source is not None:
        shared = min(_common_end(key, source), len(key) - 1, len(source) - 1)
    found = []
    for rest in range(shared, 0, -1):
        into = None if key is None else key[:-rest]
        out_of = into if source is key else None if source is None else source[:-rest]
        found.append((_Head(into, out_of, move.like), longest[-rest:]))
    return found


def _common_end(one: Parts, other: Parts) -> int:
    most = min(len(one), len(other))
    for n in range(most):
        if one[-1 - n] != other[-1 - n]:
            return n
    return most


def _subtree(moves: Sequence[Move], members: Sequence[tuple[int, Parts]]) -> Subtree:
    first, rest = members[0]
    move = moves[first]
    key, source = (None if parts is None else _text(parts, len(rest)) for parts in (move.key, move.source))
    return Subtree(key, source, tuple([index for index, _ in members]), tuple([r for _, r in members]))


def _text(parts: Parts, rest: int) -> str:
    return "/".join(parts[: len(parts) - rest])


# --- subtrees that mirror one another -------------------------------------------------------------------


def mirrored(pairs: Sequence[tuple[str, str, Hashable]]) -> list[tuple[int, tuple[str, ...]]]:
    """Which of these patterns of keys and of their sources are the same below other subtrees.

    `a/x` from `a/y`, and `b/c/x` from `b/c/y`, are the same in `a` and in `b/c`, where what is said of them
    is equal. Where that is so of any pattern, it is taken to be so of those that keep their key, too. Returns
    the index of each that remains, with the subtrees in which it is too; that with the fewest components
    remains. In order.
    """
    alike: dict[Hashable, list[tuple[int, str]]] = {}
    for index, (key, source, like) in enumerate(pairs):
        below, *rest = _parted(key, source)
        alike.setdefault((like, *rest) if below and all(rest) else index, []).append((index, below))
    found = [sorted(one, key=lambda member: (member[1].count("/"), member)) for one in alike.values()]
    trees = {(below, one[0][1]): _trees(below, one[0][1]) for one in found for _, below in one[1:]}
    bases = dict(trees.values())
    at = {(key, like): n for n, (key, source, like) in enumerate(pairs) if key == source}
    also = {one[0][0]: [(n, trees[below, one[0][1]][0]) for n, below in one[1:]] for one in found}
    for (key, like), index in at.items():
        for below, base in bases.items():
            other = (
                at.get((f"{base}{key.removeprefix(below)}", like)) if key.startswith(f"{below}/") else None
            )
            if other is not None and other in also:
                also[other].append((index, below))
                del also[index]
                break
    return [(n, tuple([below for _, below in sorted(mirrors)])) for n, mirrors in sorted(also.items())]


def _trees(mirror: str, base: str) -> tuple[str, str]:
    """The largest subtrees of which these are the same part: `opt/nu` and `a` for `opt/nu/b` and `a/b`."""
    one, other = mirror.split("/"), base.split("/")
    same = min(_common_end(tuple(one), tuple(other)), len(one) - 1, len(other) - 1)
    return "/".join(one[: len(one) - same]), "/".join(other[: len(other) - same])


def _parted(key: str, source: str) -> tuple[str, Parts, Parts]:
    """What two patterns begin with, and what follows in each."""
    one, other = key.split("/"), source.split("/")
    start = _common_start(one, other)
    return "/".join(one[:start]), tuple(one[start:]), tuple(other[start:])


def _common_start(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
