"""Finds whole subtrees that moved, stayed or went, so that one line can stand for all their leaves.

A line for `a/…` that came from `b/…` is exact: every leaf of the result below `a` is one of its leaves, every
leaf of the source below `b` too, and each kept the rest of its key. So it is for `a/…` from `b/…` and `c/…`.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

Parts = tuple[str, ...]
"""The components of a key."""


class LeafMove(NamedTuple):
    """A leaf, or subtree, of the result with what it comes from; or one of a source that is dropped."""

    key: Parts | None
    """Components of the key in the result; None if the leaf is dropped."""
    sources: tuple[Parts, ...]
    """Components of the keys in the sources."""
    like: Hashable
    """Decision: fate, rule, reason. Leaves share a subtree only if it is equal; None: they never do."""


class Subtree(NamedTuple):
    """One subtree, or one leaf where it is part of none."""

    key: str | None
    """Key of the subtree in the result; None if it is dropped."""
    sources: tuple[str, ...]
    """Its keys in the sources."""
    members: tuple[int, ...]
    """Indices of its leaves among all moves, in order."""
    rests: tuple[Parts, ...]
    """Ends of the keys of a subtree's leaves; one empty one for a leaf itself."""


def subtrees(moves: Sequence[LeafMove], sources: Sequence[Parts]) -> list[Subtree]:
    """Each move is in exactly one of these, which are as large as they can be. In the order of the moves.

    `sources` are the keys of all leaves of all sources, each once.
    """
    results = Counter(head for move in moves if move.key is not None for head in _heads(move.key))
    origins = Counter(head for key in sources for head in _heads(key))
    candidates = [_candidates(move) for move in moves]
    together = Counter(head for heads in candidates for head, _ in heads)

    def moved_whole(head: LeafMove) -> bool:
        count = together[head]
        complete = head.key is None or results[head.key] == count
        return count > 1 and complete and all(origins[source] == count for source in head.sources)

    by_head: dict[LeafMove | int, list[tuple[int, Parts]]] = {}
    for index, heads in enumerate(candidates):
        whole, rest = next((one for one in heads if moved_whole(one[0])), (index, ()))
        by_head.setdefault(whole, []).append((index, rest))
    found = []
    for members in by_head.values():
        first, rest = members[0]
        key, origin = moves[first].key, moves[first].sources
        texts = tuple(["/".join(source[: len(source) - len(rest)]) for source in origin])
        head = None if key is None else "/".join(key[: len(key) - len(rest)])
        found.append(Subtree(head, texts, tuple([n for n, _ in members]), tuple([r for _, r in members])))
    return found


def _heads(key: Parts) -> Iterator[Parts]:
    """All subtrees that a leaf is in, but the whole."""
    return (key[:end] for end in range(1, len(key)))


def _candidates(move: LeafMove) -> list[tuple[LeafMove, Parts]]:
    """The subtrees that a leaf may have moved with, the largest first, and the rest of its key in each."""
    if move.like is None:
        return []
    key, sources = move.key, move.sources
    longest = sources[0] if key is None else key
    shared = min(common_end(longest, one) for one in sources)
    shared = min(shared, *(len(one) - 1 for one in (longest, *sources)))
    candidates = []
    for rest in range(shared, 0, -1):
        into = None if key is None else key[:-rest]
        head = LeafMove(into, tuple([source[:-rest] for source in sources]), move.like)
        candidates.append((head, longest[-rest:]))
    return candidates


def common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """Number of components at the end that are the same in both."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


SLOTS = frozenset({"m", "v", "v_row", "v_col"})
"""Names of the slots that T5X's Adafactor keeps below the name of each parameter."""


class RowPattern(NamedTuple):
    """Text of a row about its keys and their sources."""

    key: str
    """Pattern of the keys, or of the subtrees."""
    source: str
    """Pattern of their sources; the same as `key` where they keep their names, or have several sources."""
    like: Hashable
    """Rest of the row. Only rows with equal rests can be mirrors."""
    whole: bool = False
    """Whether the row stands for subtrees."""
    loose: Hashable = None
    """Rest of the row without shapes; None if the shapes matter."""


class Mirrored(NamedTuple):
    """A row that remains, and the rows that it stands for besides."""

    number: int
    """Its index among all rows."""
    also: tuple[tuple[int, str], ...] = ()
    """Index and tree of each row that says the same below another tree."""
    other_shapes: tuple[tuple[int, str], ...] = ()
    """Index and tree, or name of the slot, of each row that differs in the shapes alone."""


def mirrored(patterns: Sequence[RowPattern]) -> list[Mirrored]:
    """Rows to show, in order: those with the fewest components, with those that mirror them.

    `a/x` from `a/y`, and `b/c/x` from `b/c/y`, are the same in `a` and in `b/c`, where what is said of them
    is equal. So are whole subtrees `a` and `b/c` with the same leaves. Where that is so of any pattern, it is
    taken to be so of those that keep their key, too.
    """
    same = _groups(patterns, {n: one.like for n, one in enumerate(patterns)})
    left = _with_slots(patterns, _groups(patterns, {n: patterns[n].loose for n in same}))
    rows = []
    for n, others in sorted(left.items()):
        shaped = [other for other in others if patterns[other[0]].like != patterns[n].like]
        also = [*same[n], *(one for one in others if one not in shaped)]
        shaped += [(index, tree) for other, _ in others for index, tree in same[other]]
        rows.append(Mirrored(n, *(tuple(sorted(one, key=lambda m: m[1])) for one in (also, shaped))))
    return rows


Groups = dict[int, list[tuple[int, str]]]
"""Index of each row that remains, with index and tree of those that mirror it."""


def _groups(patterns: Sequence[RowPattern], likes: Mapping[int, Hashable]) -> Groups:
    """Group the rows of `likes` by what is said of them; None: such a row is a mirror of none."""
    alike: dict[Hashable, list[tuple[int, str]]] = defaultdict(list)
    whole: dict[Hashable, list[str]] = defaultdict(list)
    for n, like in likes.items():
        one = patterns[n]
        key, source = one.key.split("/"), one.source.split("/")
        start = common_end(key[::-1], source[::-1])
        below, rest = "/".join(key[:start]), (tuple(key[start:]), tuple(source[start:]))
        alike[n if like is None or not (below and all(rest)) else (like, *rest)].append((n, below))
        if one.whole and one.key == one.source and like is not None:
            whole[like].append(one.key)
    bases: dict[str, str] = {}
    """The tree of which each mirrors a part."""
    for keys in whole.values():  # trees that have the same leaves, and keep their names
        base, *mirrors = sorted(keys, key=lambda key: key.count("/"))
        bases.update(_trees(key, base) for key in mirrors)
    groups = [sorted(one, key=lambda member: (member[1].count("/"), member)) for one in alike.values()]
    also: Groups = {}
    for (n, base), *rows in groups:
        trees = [(index, *_trees(below, base)) for index, below in rows]
        also[n] = [(index, tree) for index, tree, _ in trees]
        bases.update((tree, into) for _, tree, into in trees)
    _join_kept(patterns, likes, bases, also)
    return also


def _join_kept(
    patterns: Sequence[RowPattern], likes: Mapping[int, Hashable], bases: Mapping[str, str], also: Groups
) -> None:
    """Join rows that keep their keys to those of the base of their tree. Changes `also`."""
    kept = [(n, patterns[n].key, like) for n, like in likes.items() if patterns[n].key == patterns[n].source]
    at = {(key, like): n for n, key, like in kept if like is not None}
    for n, key, like in kept:
        for below, base in bases.items():
            if key == below or key.startswith(f"{below}/"):
                other = at.get((f"{base}{key.removeprefix(below)}", like))
                if other in also and n in also and not also[n]:
                    also[other].append((n, below))
                    del also[n]
                    break


def _with_slots(patterns: Sequence[RowPattern], groups: Groups) -> Groups:
    """Join rows of slots below the names of parameters to the rows of these. Changes `groups`."""
    at: dict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for n in groups:
        one = patterns[n]
        if not one.whole and one.loose is not None:
            for tail in _tails(one.key):
                at[tail, one.loose].append(n)
    for n in list(groups):
        head, _, slot = patterns[n].key.rpartition("/")
        if slot in SLOTS and not patterns[n].whole and not groups[n]:
            rows = (row for tail in _tails(head) for row in at.get((tail, patterns[n].loose), ()))
            owner = next((row for row in rows if row in groups and _owns(patterns[row], patterns[n])), None)
            if owner is not None and owner != n:
                groups[owner].append((n, slot))
                del groups[n]
    return groups


def _tails(key: str) -> Iterator[str]:
    """Ends of a key without its first components, the longest first."""
    while "/" in key:
        key = key.partition("/")[2]
        yield key


def _owns(parameter: RowPattern, slot: RowPattern) -> bool:
    """Whether a slot came from the place where the parameter's slots were: `w_slot_v`, or `slots/w/v`."""
    after = slot.source.removeprefix(parameter.source)
    if after != slot.source:
        return "/" not in after.removeprefix("/")
    # Below another tree, the names are the same from there on.
    return common_end(parameter.source.split("/"), slot.source.split("/")[:-1]) > 0


def _trees(mirror: str, base: str) -> tuple[str, str]:
    """The largest subtrees of which these are the same part: `opt/nu` and `a` for `opt/nu/b` and `a/b`."""
    one, other = mirror.split("/"), base.split("/")
    same = min(common_end(one, other), len(one) - 1, len(other) - 1)
    return "/".join(one[: len(one) - same]), "/".join(other[: len(other) - same])
