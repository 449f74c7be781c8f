"""Finds leaves that two checkpoints have under different names, and says what shows it."""

import enum
import functools
import itertools
import operator
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

from ckpt_surgery.core import urls
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import brief
from ckpt_surgery.report.moves import common_end

MOST_TRIED = 8
"""Number of leaves of B whose values are compared with those of one leaf of A."""
MOST_CHUNKS = 10_000
"""Number of chunks up to which the places of a leaf's stored bytes are compared."""
_NUMBER = re.compile(r"\d+")
_SEPARATOR = re.compile(r"[/.]")


class Proof(enum.StrEnum):
    """Evidence that two leaves are the same one under two names."""

    STORED = "stored"
    """Both have the same stored bytes: of the same files, or equal ones in the checkpoints' indexes."""
    VALUES = "values"
    """All elements are equal."""
    NAMES = "names"
    """Shape, dtype and names suggest it: a guess."""


@dataclass(frozen=True)
class Renamed:
    """A leaf that only A has, and one that only B has, which are the same under two names."""

    a: Leaf
    b: Leaf
    proof: Proof

    __repr__ = brief


Same = Callable[[Leaf, Leaf], bool]
"""Whether a leaf of A and one of B have the same elements."""


def renamed_leaves(
    only_a: Collection[Leaf], only_b: Collection[Leaf], same_values: Same | None = None
) -> tuple[Renamed, ...]:
    """Leaves of one kind, shape and dtype that are most likely the same, each at most once, in A's order.

    Stored bytes prove it where both share files. With `same_values` nothing else counts but equal values;
    without it, leaves are paired by their names where these leave no choice.
    """
    leaves = {leaf.key.text: leaf for leaf in (*only_a, *only_b)}
    place_of = functools.cache(lambda key: _place(leaves[key]))

    def same_place(one: Leaf, other: Leaf) -> bool:
        place = place_of(one.key.text)
        return place is not None and place == place_of(other.key.text)

    alike: dict[Hashable, tuple[list[Leaf], list[Leaf]]] = defaultdict(lambda: ([], []))
    for side, some in enumerate((only_a, only_b)):
        for leaf in some:
            if leaf.spec is not None:
                alike[leaf.kind, leaf.spec.shape, leaf.spec.dtype][side].append(leaf)
    order = {leaf.key.text: n for n, leaf in enumerate(only_a)}
    renamed: list[Renamed] = []
    for left, right in alike.values():
        found = list(_matched(left, right, same_place, Proof.STORED))
        done = {leaf.key.text for one in found for leaf in (one.a, one.b)}
        rest_a, rest_b = ([x for x in side if x.key.text not in done] for side in (left, right))
        if same_values is not None:
            found += _matched(rest_a, rest_b, same_values, Proof.VALUES)
        elif len(rest_a) == len(rest_b) == 1 and rest_a[0].spec is not None and rest_a[0].spec.size > 1:
            found.append(Renamed(rest_a[0], rest_b[0], Proof.NAMES))  # few arrays are alike by chance
        else:
            found += _by_names(rest_a, rest_b)
        renamed += found
    return tuple(sorted(renamed, key=lambda one: order[one.a.key.text]))


def _matched(left: Sequence[Leaf], right: Sequence[Leaf], same: Same, proof: Proof) -> Iterator[Renamed]:
    """Pairs that are the same, each leaf in at most one: of several, those with the most similar names.

    Where two leaves are as similar to a third, and all three are the same, nobody knows which it was.
    """
    done: set[str] = set()
    tried: Counter[str] = Counter()
    likeness = operator.itemgetter(0)
    ranked = ((_likeness(*pair), *pair) for pair in _pairs(left, right))
    for _, alike in itertools.groupby(sorted(ranked, key=likeness, reverse=True), likeness):
        equal: list[tuple[Leaf, Leaf]] = []
        for _, one, other in alike:
            if {one.key.text, other.key.text} & done or tried[one.key.text] >= MOST_TRIED:
                continue
            tried[one.key.text] += proof is Proof.VALUES
            if same(one, other):
                equal.append((one, other))
        times = Counter(leaf.key.text for pair in equal for leaf in pair)
        done |= times.keys()
        for one, other in equal:
            if times[one.key.text] == times[other.key.text] == 1:
                yield Renamed(one, other, proof)


def _pairs(left: Sequence[Leaf], right: Sequence[Leaf]) -> Iterator[tuple[Leaf, Leaf]]:
    """All pairs; where they are very many, those with the same numbers in their names."""
    if len(left) * len(right) <= 20_000:
        yield from itertools.product(left, right)
        return
    by_numbers: dict[Hashable, list[Leaf]] = defaultdict(list)
    for leaf in right:
        by_numbers[_numbers(leaf)].append(leaf)
    for leaf in left:
        yield from ((leaf, other) for other in by_numbers[_numbers(leaf)])


def _place(leaf: Leaf) -> Hashable | None:
    """Places and encoding of the stored bytes of an array; None if they are not known.

    Bytes in the index of a checkpoint stand for themselves.
    """
    stored = leaf.manifest
    if stored is None or not stored.complete or not 0 < len(stored.chunks) <= MOST_CHUNKS:
        return None
    files = {file: _identity(file) for file in {chunk.file for chunk in stored.chunks.values()}}
    ranges = [
        (n, files[chunk.file] if chunk.inline is None else chunk.inline, chunk.offset, chunk.length)
        for n, chunk in sorted(stored.chunks.items())
    ]
    return (stored.chunk_shape, stored.codec, tuple(ranges))


def _identity(file: str) -> Hashable:
    """Identity shared by all names of a file: hard links and symbolic links to it as well."""
    if urls.is_url(file) or not os.path.exists(file):
        return file
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _by_names(left: Sequence[Leaf], right: Sequence[Leaf]) -> Iterator[Renamed]:
    """Pairs of names with the same numbers and the same end, where no other leaf does as well for either."""
    alike = [pair for pair in _pairs(left, right) if _numbers(pair[0]) == _numbers(pair[1])]
    ranked = [(_common_end(one, other), one, other) for one, other in alike]
    longest: Counter[str] = Counter()
    for end, *pair in ranked:
        for leaf in pair:
            longest[leaf.key.text] = max(longest[leaf.key.text], end)
    near = [(a, b) for end, a, b in ranked if 0 < end == longest[a.key.text] == longest[b.key.text]]
    times = Counter(leaf.key.text for pair in near for leaf in pair)
    yield from (Renamed(a, b, Proof.NAMES) for a, b in near if times[a.key.text] == times[b.key.text] == 1)


def _likeness(leaf: Leaf, other: Leaf) -> tuple[bool, int, int]:
    """Whether the numbers are the same, and how much of both names is, from the end and from the start."""
    letters = enumerate(zip(leaf.key.text, other.key.text, strict=False))
    start = next((n for n, (a, b) in letters if a != b), 0)
    return _numbers(leaf) == _numbers(other), _common_end(leaf, other), start


def _numbers(leaf: Leaf) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(leaf.key.text)[:12] if len(number) < 19)


def _common_end(leaf: Leaf, other: Leaf) -> int:
    """Number of components at the end of both names that are the same."""
    return common_end(_SEPARATOR.split(leaf.key.text), _SEPARATOR.split(other.key.text))
