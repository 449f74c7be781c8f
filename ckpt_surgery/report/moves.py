"""Finds whole subtrees that moved, stayed or went, so that one line can stand for all their leaves.

A line for `a/…` that came from `b/…` is exact: every leaf of the result below `a` is one of its leaves, every
leaf of the source below `b` too, and each kept the rest of its key. So it is for `a/…` from `b/…` and `c/…`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Parts = tuple[str, ...]
"""The components of a key."""


@dataclass(frozen=True, slots=True)
class LeafMove:
    """One leaf of the result with the source leaf that it comes from, or a source leaf that is dropped."""

    key: Parts | None
    """Components of the key in the result; None if the leaf is dropped."""
    sources: tuple[Parts, ...]
    """Components of the keys in the sources."""
    like: Hashable
    """What decided: fate, rule, reason. Leaves share a subtree only if it is equal; None: they never do."""


class Subtree(NamedTuple):
    """One subtree, or one leaf where it is part of none."""

    key: str | None
    """Key of the subtree in the result; None if it is dropped."""
    sources: tuple[str, ...]
    """Its keys in the sources."""
    members: tuple[int, ...]
    """Indices of its leaves among all moves, in order."""
    rests: tuple[Parts, ...]
    """What follows the subtree's key in the keys of its leaves; one empty one for a leaf itself."""


class _Head(NamedTuple):
    key: Parts | None
    sources: tuple[Parts, ...]
    like: Hashable


def subtrees(moves: Sequence[LeafMove], sources: Sequence[Parts]) -> list[Subtree]:
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
            if count > 1 and complete and all(origins[source] == count for source in head.sources):
                whole, rest = head, after
                break
        found.setdefault(whole, []).append((index, rest))
    return [_subtree(moves, members) for members in found.values()]


def _heads(key: Parts) -> Iterator[Parts]:
    """All subtrees that a leaf is in, but the whole."""
    return (key[:end] for end in range(1, len(key)))


def _candidates(move: LeafMove) -> list[tuple[_Head, Parts]]:
    """The subtrees that a leaf may have moved with, the largest first, and the rest of its key in each."""
    if move.like is None:
        return []
    key, sources = move.key, move.sources
    longest = sources[0] if key is None else key
    shared = min(len(one) - 1 for one in (longest, *sources))
    for source in sources:
        shared = min(shared, common_end(longest, source))
    found = []
    for rest in range(shared, 0, -1):
        into = None if key is None else key[:-rest]
        out_of = tuple([source[:-rest] for source in sources])
        found.append((_Head(into, out_of, move.like), longest[-rest:]))
    return found


def common_end(one: Parts, other: Parts) -> int:
    """Number of components at the end that are the same in both."""
    most = min(len(one), len(other))
    for n in range(most):
        if one[-1 - n] != other[-1 - n]:
            return n
    return most


def _subtree(moves: Sequence[LeafMove], members: Sequence[tuple[int, Parts]]) -> Subtree:
    first, rest = members[0]
    move = moves[first]
    key = None if move.key is None else _text(move.key, len(rest))
    sources = tuple([_text(source, len(rest)) for source in move.sources])
    return Subtree(key, sources, tuple([index for index, _ in members]), tuple([r for _, r in members]))


def _text(parts: Parts, rest: int) -> str:
    return "/".join(parts[: len(parts) - rest])
