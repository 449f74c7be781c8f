"""Pair grids of a source and a target by their names, where sizes and indices allow it.

Two grids are a pair only if each is the best for the other, by a margin, and the names resemble each other
enough. The others stay open, with their candidates.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ckpt_surgery.inference.keys.concepts import same_words
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.alignment import Comparison, contradict
from ckpt_surgery.inference.names.matches import Match, matches
from ckpt_surgery.inference.names.names import KeyNames, Name

LEAST = -1.0
"""Least log-likelihood ratio of a pair."""
MARGIN = 1.5
"""Least margin of a pair's score over the next one's, in both directions."""
_LEAST_ALONE = -6.0
"""Score above which a pair is considered at all, and decided if it has no rivals."""
_FEW = 8
"""Most names that are paired at the end because nothing else is left."""
_MOST_CANDIDATES = 8
MOST_NAMES = 2000
"""Most names of one size and kind on a side; more are left open."""

Matches = Callable[[Grid, Grid], tuple[Match, ...]]
"""The ways in which a grid of the source makes one of the target; none where it cannot."""


class Pair(NamedTuple):
    """Two grids that fit each other."""

    at: tuple[int, int]
    """Their places among the names of the sources, and of the targets."""
    ways: tuple[Match, ...]
    """The ways in which their indices fit; at least one."""
    score: float
    """Resemblance of their names, from 0 to 1."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of both sides."""
        return self.ways[0].source.keys + self.ways[0].target.keys


class Open(NamedTuple):
    """A grid of the target for which no pair is decided."""

    target: Grid
    candidates: Sequence[Pair]
    """Pairs whose names resemble each other, the best first; at least one."""


def pair_names(names: KeyNames, matches: Matches = matches) -> tuple[list[Pair], list[Open]]:
    """Pair names round by round, until a round decides nothing; return what stays open, too.

    Each name is in at most one pair; pairs are in the order of the target.
    """
    sources, targets = names.sources, names.targets
    rounds = _Rounds(names, functools.cache(lambda a, b: matches(sources[a].grid, targets[b].grid)))
    rounds.decide(list(rounds.namesakes()))
    while clear := [pair for table in rounds.tables() for pair in table.best()] or rounds.last():
        rounds.decide(clear)
    still_open = {b: one for table in rounds.tables() for b, one in table.open()}
    return sorted(rounds.decided, key=lambda pair: pair.at[1]), [still_open[b] for b in sorted(still_open)]


@dataclass(frozen=True)
class _Table:
    """Sources (rows) and targets (columns) of one kind and size that are left."""

    names: KeyNames
    ways: Callable[[int, int], tuple[Match, ...]]
    left: Sequence[int]
    right: Sequence[int]
    said: Comparison
    scores: np.ndarray
    """Log-likelihood ratios; -inf where a pair is impossible."""

    def best(self) -> Iterator[Pair]:
        """Pairs that are better by the margin than all others of their sources and of their targets.

        None where each name lacks words of the other that its checkpoint has elsewhere. Without rivals a low
        score is enough, unless both checkpoints use the same words.
        """
        for i, j in enumerate(map(int, self.scores.argmax(axis=1))):
            rivals = np.concatenate([np.delete(self.scores[i], j), np.delete(self.scores[:, j], i)])
            rival, score = rivals.max(initial=-np.inf), self.scores[i, j]
            least = LEAST if rival > -np.inf or self.names.alike else _LEAST_ALONE
            if score >= least and score - rival >= MARGIN and not self.said.lacking[i, j]:
                yield self._pair(i, j)

    def open(self) -> Iterator[tuple[int, Open]]:
        """Grids of the target that have candidates, with their places."""
        for j, b in enumerate(self.right):
            order = np.argsort(-self.scores[:, j], kind="stable")[:_MOST_CANDIDATES]
            if near := [self._pair(int(i), j) for i in order if self.scores[i, j] > -np.inf]:
                yield b, Open(self.names.targets[b].grid, near)

    def _pair(self, i: int, j: int) -> Pair:
        at = self.left[i], self.right[j]
        return Pair(at, self.ways(*at), float(self.said.shares[i, j]))


@dataclass
class _Rounds:
    """Pairs that are decided so far, and rounds that decide more by what these teach."""

    names: KeyNames
    ways: Callable[[int, int], tuple[Match, ...]]
    """The matches of a source and a target, by their places."""
    decided: list[Pair] = field(default_factory=list)

    def decide(self, pairs: Sequence[Pair]) -> None:
        """Take these pairs, and learn from them."""
        self.decided += pairs
        sources, targets = self.names.sources, self.names.targets
        self.names.learn([(sources[a].said, targets[b].said) for (a, b), *_ in pairs])

    def namesakes(self) -> Iterator[Pair]:
        """Pairs with the same words, which no others have, or with the same key where several have them."""
        left, right = _by_words(self.names.sources), _by_words(self.names.targets)
        for words, of_source in left.items():
            of_target = right.get(words, {})
            for key, a in of_source.items():
                only = len(of_source) == len(of_target) == 1
                b = next(iter(of_target.values())) if only else of_target.get(key)
                if b is None or not same_words(self.names.sources[a].said, self.names.targets[b].said):
                    continue
                if any(way.exact for way in self.ways(a, b)):
                    yield Pair((a, b), self.ways(a, b), 1.0)

    def last(self) -> list[Pair]:
        """Pair what is left at the end, if each leaf of one side fits only one of the other."""
        left, right = self._left(0), self._left(1)
        if not 0 < len(left) == len(right) <= _FEW or not self.names.taught or self.names.alike:
            return []
        fitting = [[(a, b) for b in right if self.ways(a, b)] for a in left]
        pairs = [only for only, *others in filter(None, fitting) if not others]
        if len({b for _, b in pairs}) < len(right) or any(self._speaks_against(a, b) for a, b in pairs):
            return []
        return [Pair(at, self.ways(*at), 0.0) for at in pairs]

    def _speaks_against(self, a: int, b: int) -> bool:
        """True if names contradict, or each lacks words of the other that its checkpoint has elsewhere."""
        one, other = self.names.sources[a].said, self.names.targets[b].said
        return contradict(one.said, other.said) or bool(self.names.compare([a], [b]).lacking.any())

    def _left(self, side: int) -> list[int]:
        """The places on one side that are in no pair."""
        done = {pair.at[side] for pair in self.decided}
        return [at for at in range(len((self.names.sources, self.names.targets)[side])) if at not in done]

    def tables(self) -> Iterator[_Table]:
        """What is left, by kinds and sizes."""
        blocks: dict[object, tuple[list[int], list[int]]] = {}
        for side, some in enumerate((self.names.sources, self.names.targets)):
            for at in self._left(side):
                grid = some[at].grid
                blocks.setdefault((grid.kind, grid.elements), ([], []))[side].append(at)
        for left, right in blocks.values():
            if left and right and max(len(left), len(right)) <= MOST_NAMES:
                said = self.names.compare(left, right)
                scores = np.full(said.ratios.shape, -np.inf)
                for i, j in np.argwhere(said.ratios > _LEAST_ALONE):
                    a, b = left[i], right[j]
                    one, other = self.names.sources[a].said, self.names.targets[b].said
                    if not contradict(one.said, other.said) and self.ways(a, b):
                        scores[i, j] = said.ratios[i, j]
                yield _Table(self.names, self.ways, left, right, said, scores)


def _by_words(names: Sequence[Name]) -> dict[tuple[str, ...], dict[object, int]]:
    """The places of names by their words, and by their keys and sizes."""
    places: dict[tuple[str, ...], dict[object, int]] = {}
    for at, name in enumerate(names):
        places.setdefault(name.said.words, {})[name.grid.text, name.grid.elements] = at
    return places
