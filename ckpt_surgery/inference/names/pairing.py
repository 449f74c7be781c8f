"""Pair grids of a source and a target by their names, where sizes and indices allow it.

Two grids are a pair only if each is the best for the other, by a margin, and the names resemble each other
enough. The others stay open, with their candidates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.concepts import same_words
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.alignment import Comparison
from ckpt_surgery.inference.names.matches import Match, matches
from ckpt_surgery.inference.names.names import KeyNames, Name

LEAST = -1.0
"""Least log-likelihood ratio of a pair."""
MARGIN = 1.5
"""Least margin of a pair's score over the next one's, in both directions."""
_MOST_CANDIDATES = 8
_OTHER_PARTNER = -1.0
"""Penalty if the parent of one of both leaves has another partner."""
_HOPELESS = -12.0
"""Pairs with a lower score are not considered."""
_LEAST_ALONE = -6.0
"""Score above which a pair without rivals is decided."""
_FEW = 8
"""Most names that are paired at the end because nothing else is left."""
_VAGUE = 1.0
"""Weight of unexplained words above which a pair is vague."""
_DOUBTFUL = 3.0
"""Least margin of vague pairs, and score below which what parents of leaves show has precedence."""
MOST_NAMES = 2000
"""Most names of one size and kind on a side; more are left open."""


Matches = Callable[[Grid, Grid], tuple[Match, ...]]
"""The ways in which a grid of the source makes one of the target; none where it cannot."""


@frozen()
class Pair:
    """Two grids that fit each other."""

    at: tuple[int, int]
    """Their places among the names of the sources, and of the targets."""
    ways: tuple[Match, ...]
    """The ways in which their indices fit; at least one."""
    score: float
    """Resemblance of their names, from 0 to 1."""

    @property
    def source(self) -> Grid:
        """The grid of the source."""
        return self.ways[0].source

    @property
    def target(self) -> Grid:
        """The grid of the target."""
        return self.ways[0].target


@frozen()
class Open:
    """A grid of the target for which no pair is decided."""

    target: Grid
    candidates: tuple[Pair, ...]
    """Pairs whose names resemble each other, the best first; at least one."""


def pair_names(names: KeyNames, matches: Matches = matches) -> tuple[list[Pair], list[Open]]:
    """Pair names round by round, until a round decides nothing; return what stays open, too.

    Each name is in at most one pair; pairs are in the order of the target.
    """
    rounds = _Rounds(names, matches)
    rounds.decide(list(_namesakes(names, matches)))
    while clear := rounds.best() or rounds.last():
        rounds.decide(clear)
    return sorted(rounds.decided, key=lambda pair: pair.at[1]), rounds.open()


@dataclass(frozen=True)
class _Table:
    """Sources (rows) and targets (columns) of one kind and size that are left."""

    left: Sequence[int]
    right: Sequence[int]
    scores: np.ndarray
    """Log-likelihood ratios; -inf where a pair is impossible."""
    said: Comparison

    def rivals(self, i: int, j: int) -> float:
        """The best score of the other pairs of a row's source and of a column's target."""
        row, column = np.delete(self.scores[i], j), np.delete(self.scores[:, j], i)
        return float(max(row.max(initial=-np.inf), column.max(initial=-np.inf)))

    def pair(self, i: int, j: int, ways: Callable[[int, int], tuple[Match, ...]]) -> Pair:
        """The pair of a row and a column."""
        at = self.left[i], self.right[j]
        return Pair(at, ways(*at), float(self.said.shares[i, j]))


@dataclass
class _Rounds:
    """Pairs that are decided so far, and rounds that decide more by what these teach."""

    names: KeyNames
    matches: Matches
    decided: list[Pair] = field(default_factory=list)
    known: dict[tuple[int, int], tuple[Match, ...]] = field(default_factory=dict)

    def decide(self, pairs: Sequence[Pair]) -> None:
        """Take these pairs, and learn from them."""
        self.decided += pairs
        sources, targets = self.names.sources, self.names.targets
        self.names.learn([(sources[pair.at[0]].said, targets[pair.at[1]].said) for pair in pairs])

    def best(self) -> list[Pair]:
        """Pairs that are the best for both by a margin; none of leaves that better ones set apart.

        Pairs without rivals of their size count as better than all others.
        """
        clear = [
            (table.rivals(i, j) == -np.inf, table.scores[i, j], table.pair(i, j, self._ways))
            for table in self._tables()
            for i, j in enumerate(map(int, table.scores.argmax(axis=1)))
            if self._stands_out(table, i, j)
        ]
        kept: list[Pair] = []
        for _, score, pair in sorted(clear, key=lambda one: one[:2], reverse=True):
            better = [one.at for one in kept]
            if not self.names.alignment.apart(*pair.at, better, doubtful=score < _DOUBTFUL + _OTHER_PARTNER):
                kept.append(pair)
        return kept

    def _stands_out(self, table: _Table, i: int, j: int) -> bool:
        """True if a pair is better by the margin than all others of its source and of its target.

        False where each name lacks words of the other that its checkpoint has elsewhere. Without rivals a low
        score is enough, unless a pair is vague though both checkpoints use the same words.
        """
        score, said, rivals = table.scores[i, j], table.said, table.rivals(i, j)
        vague = said.unexplained[i, j] > _VAGUE
        if said.lacking[i, j]:
            return False
        if rivals == -np.inf:
            return bool(score > _LEAST_ALONE and not (vague and self.names.alike))
        return bool(score >= LEAST and score - rivals >= (_DOUBTFUL if vague else MARGIN))

    def last(self) -> list[Pair]:
        """Pair what is left at the end, if each leaf of one side fits only one of the other."""
        left, right = self._left(0), self._left(1)
        if not 0 < len(left) == len(right) <= _FEW or not self.names.taught or self.names.alike:
            return []
        fitting = [[(a, b) for b in right if self._ways(a, b)] for a in left]
        pairs = [only for only, *others in filter(None, fitting) if not others]
        if len({b for _, b in pairs}) < len(right) or any(self._speaks_against(a, b) for a, b in pairs):
            return []
        return [Pair(at, self._ways(*at), 0.0) for at in pairs]

    def _speaks_against(self, a: int, b: int) -> bool:
        """True if names contradict, or each lacks words of the other that its checkpoint has elsewhere."""
        alignment = self.names.alignment
        lacking = alignment.compare([a], [b]).lacking.any()
        return alignment.contradict(a, b, guesses=False) or alignment.apart(a, b) or bool(lacking)

    def open(self) -> list[Open]:
        """Grids of the target that have candidates, in their order."""
        open_grids = {}
        for table in self._tables():
            for j, b in enumerate(table.right):
                order = [int(i) for i in np.argsort(-table.scores[:, j], kind="stable")]
                near = [table.pair(i, j, self._ways) for i in order if table.scores[i, j] > -np.inf]
                if near:
                    open_grids[b] = Open(self.names.targets[b].grid, tuple(near[:_MOST_CANDIDATES]))
        return [open_grids[b] for b in sorted(open_grids)]

    def _left(self, side: int) -> list[int]:
        """The places on one side that are in no pair."""
        done = {pair.at[side] for pair in self.decided}
        return [at for at in range(len((self.names.sources, self.names.targets)[side])) if at not in done]

    def _tables(self) -> Iterator[_Table]:
        blocks: dict[object, tuple[list[int], list[int]]] = {}
        for side, some in enumerate((self.names.sources, self.names.targets)):
            for at in self._left(side):
                grid = some[at].grid
                blocks.setdefault((grid.kind, grid.elements), ([], []))[side].append(at)
        for left, right in blocks.values():
            if left and right and max(len(left), len(right)) <= MOST_NAMES:
                said = self.names.alignment.compare(left, right)
                yield _Table(left, right, self._scores(left, right, said.ratios), said)

    def _scores(self, left: Sequence[int], right: Sequence[int], ratios: np.ndarray) -> np.ndarray:
        alignment = self.names.alignment
        scores = np.full(ratios.shape, -np.inf)
        for i, j in np.argwhere(ratios > _HOPELESS):
            a, b = left[i], right[j]
            if self._ways(a, b) and not alignment.contradict(a, b):
                apart = alignment.apart(a, b, doubtful=True)
                scores[i, j] = ratios[i, j] + (_OTHER_PARTNER if apart else 0.0)
        return scores

    def _ways(self, a: int, b: int) -> tuple[Match, ...]:
        if (a, b) not in self.known:
            self.known[a, b] = self.matches(self.names.sources[a].grid, self.names.targets[b].grid)
        return self.known[a, b]


def _namesakes(names: KeyNames, matches: Matches) -> Iterator[Pair]:
    """Pairs with the same words, which no others have, or with the same key where several have these words.

    All other names resemble them less, by the margin.
    """
    left, right = _by_words(names.sources), _by_words(names.targets)
    for words, of_source in left.items():
        of_target = right.get(words, [])
        known = {names.sources[a].grid.text: a for a in of_source}
        if len(of_source) == len(of_target) == 1:
            pairs = [(of_source[0], of_target[0])]
        else:  # names with the same words differ in their spelling
            same = [(names.targets[b].grid.text, b) for b in of_target]
            pairs = [(known[text], b) for text, b in same if text in known]
        for a, b in pairs:
            one, other = names.sources[a], names.targets[b]
            ways = matches(one.grid, other.grid) if same_words(one.said, other.said) else ()
            if any(way.exact for way in ways):
                yield Pair((a, b), ways, 1.0)


def _by_words(names: Sequence[Name]) -> dict[tuple[str, ...], list[int]]:
    places: dict[tuple[str, ...], list[int]] = {}
    for at, name in enumerate(names):
        places.setdefault(name.said.words, []).append(at)
    return places
