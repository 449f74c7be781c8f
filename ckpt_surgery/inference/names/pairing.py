"""Which grids of a source and a target are the same by their names, where sizes and indices allow it.

Nothing is assigned for the sake of an answer: two grids are a pair where each is the best for the
other, by a margin, and the names resemble each other enough. The others stay open, with their candidates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.concepts import Meaning, same_words
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.alignment import Comparison
from ckpt_surgery.inference.names.matches import Match, matches
from ckpt_surgery.inference.names.names import KeyNames

LEAST = -1.0
"""The log-likelihood ratio of a pair at least."""
MARGIN = 1.5
"""By how much a pair's score is above the next one's, in both directions."""
_MOST_CANDIDATES = 8
_INEXACT = -0.5
"""What it costs if the indices are not the same numbers, though as many."""
_CUT = -1.0
"""What it costs if axes are cut or joined, as for heads."""
_HOPELESS = -12.0
"""Pairs with a lower score are not looked at."""
_LEAST_ALONE = -6.0
"""The same of a pair without rivals."""
_FEW = 8
"""Names that may be left at the end to be paired because nothing else is left."""
_VAGUE = 1.0
"""How much both names may say that the other does not explain."""
_DOUBTFUL = 3.0
"""The margin of pairs of which both say more."""
MOST_NAMES = 2000
"""Names of one size and kind on a side at most: more are left open."""


Matches = Callable[[Grid, Grid], tuple[Match, ...]]
"""The ways in which a grid of the source makes one of the target; none where it cannot."""


@frozen()
class Pair:
    """Two grids that fit each other."""

    ways: tuple[Match, ...]
    """The ways in which their indices fit; at least one."""
    score: float
    """How much their names resemble each other, from 0 to 1."""

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


@frozen()
class Pairing:
    """What names decide, and what they do not."""

    decided: tuple[Pair, ...]
    """Each grid of the source and of the target at most once; in the order of the target."""
    undecided: tuple[Open, ...]
    """Grids of the target that have candidates, among grids that are not in a decided pair."""


def paired(
    sources: Sequence[Grid], targets: Sequence[Grid], names: KeyNames, matches: Matches = matches
) -> Pairing:
    """The pairs that names decide, found again and again among the rest until there are no more."""
    rounds = _Rounds(sources, targets, names, matches)
    rounds.decide(_namesakes(sources, targets, names, matches))
    while clear := rounds.best() or rounds.last():
        rounds.decide(clear)
    decided = sorted(rounds.decided.items(), key=lambda item: item[0][1])
    return Pairing(tuple(pair for _, pair in decided), tuple(rounds.open()))


Numbered = tuple[tuple[int, int], Pair]
"""A pair, with the numbers of its source and of its target."""


@dataclass(frozen=True)
class _Table:
    """Sources (rows) and targets (columns) of one kind and size that are left."""

    left: Sequence[int]
    right: Sequence[int]
    scores: np.ndarray
    """Log-likelihood ratios; -inf where a pair is impossible."""
    said: Comparison


@dataclass
class _Rounds:
    """What is decided so far, and what it teaches about the rest."""

    sources: Sequence[Grid]
    targets: Sequence[Grid]
    names: KeyNames
    matches: Matches
    decided: dict[tuple[int, int], Pair] = field(default_factory=dict)
    known: dict[tuple[int, int], tuple[Match, ...]] = field(default_factory=dict)

    def decide(self, pairs: Iterable[Numbered]) -> None:
        """Take these pairs, and learn from them."""
        new = dict(pairs)
        self.decided |= new
        said = [(self.names.sources[a], self.names.targets[b]) for a, b in new]
        self.names.alignment.learn(said)

    def best(self) -> list[Numbered]:
        """Pairs that are the best for both by a margin."""
        found = []
        for table in self._tables():
            for i, j in enumerate(table.scores.argmax(axis=1)):
                if self._stands_out(table, i, int(j)):
                    found.append(self._pair(table, i, int(j)))
        return found

    def _stands_out(self, table: _Table, i: int, j: int) -> bool:
        """Whether a pair is better by the margin than all others of its source and of its target.

        None is where each name means others that are there. One that has no rivals, by sizes, needs no more
        than that; but where both checkpoints call things the same, other words mean other things.
        """
        score, said = table.scores[i, j], table.said
        vague = said.unexplained[i, j] > _VAGUE
        rivals = max(
            np.delete(table.scores[i], j).max(initial=-np.inf),
            np.delete(table.scores[:, j], i).max(initial=-np.inf),
        )
        if said.lacking[i, j]:
            return False
        if rivals == -np.inf:
            return bool(score > _LEAST_ALONE and not (vague and self.names.alike))
        return bool(score >= LEAST and score - rivals >= (_DOUBTFUL if vague else MARGIN))

    def last(self) -> list[Numbered]:
        """What is left when all else is decided, if each leaf of one side fits one of the other only."""
        left, right = self._left(0), self._left(1)
        if not 0 < len(left) == len(right) <= _FEW or not self.decided or self.names.alike:
            return []
        fitting = {a: [b for b in right if self._ways(a, b)] for a in left}
        pairs = [(a, b) for a, (b, *others) in fitting.items() if not others] if all(fitting.values()) else []
        if len({b for _, b in pairs}) < len(right):
            return []
        if any(self._speaks_against(a, b) for a, b in pairs):
            return []
        return [((a, b), Pair(self._ways(a, b), 0.0)) for a, b in pairs]

    def _speaks_against(self, a: int, b: int) -> bool:
        """Whether names say that two leaves are different things, or each means others that are there."""
        alignment = self.names.alignment
        return alignment.contradict(a, b, guesses=False) or bool(alignment.compare([a], [b]).lacking.any())

    def open(self) -> list[Open]:
        """Grids of the target that have candidates, in their order."""
        found = {}
        for table in self._tables():
            for j, b in enumerate(table.right):
                order = [int(i) for i in np.argsort(-table.scores[:, j], kind="stable")]
                near = [self._pair(table, i, j)[1] for i in order if table.scores[i, j] > -np.inf]
                if near:
                    found[b] = Open(self.targets[b], tuple(near[:_MOST_CANDIDATES]))
        return [found[b] for b in sorted(found)]

    def _left(self, side: int) -> list[int]:
        """The numbers of one side that are in no pair."""
        done = {pair[side] for pair in self.decided}
        return [at for at in range(len((self.sources, self.targets)[side])) if at not in done]

    def _tables(self) -> Iterator[_Table]:
        blocks: dict[object, tuple[list[int], list[int]]] = {}
        for side, some in enumerate((self.sources, self.targets)):
            for at in self._left(side):
                blocks.setdefault((some[at].kind, some[at].elements), ([], []))[side].append(at)
        for left, right in blocks.values():
            if left and right and max(len(left), len(right)) <= MOST_NAMES:
                said = self.names.alignment.compare(left, right)
                yield _Table(left, right, self._scores(left, right, said.ratios), said)

    def _scores(self, left: Sequence[int], right: Sequence[int], ratios: np.ndarray) -> np.ndarray:
        found = np.full(ratios.shape, -np.inf)
        for i, j in np.argwhere(ratios > _HOPELESS):
            a, b = left[i], right[j]
            ways = self._ways(a, b)
            if ways and not self.names.alignment.contradict(a, b):
                found[i, j] = ratios[i, j] + (0.0 if any(way.exact for way in ways) else _INEXACT)
                found[i, j] += 0.0 if self._moves_whole(a, b) else _CUT
        return found

    def _moves_whole(self, a: int, b: int) -> bool:
        """Whether axes need not be cut or joined."""
        source, target = self.sources[a], self.targets[b]
        return any(
            _longer(way.lengths, part.shape) == _longer(whole.shape)
            for way in self._ways(a, b)
            for part, whole in ([(target, source)] if way.how == "unstack" else [(source, target)])
        )

    def _ways(self, a: int, b: int) -> tuple[Match, ...]:
        if (a, b) not in self.known:
            self.known[a, b] = self.matches(self.sources[a], self.targets[b])
        return self.known[a, b]

    def _pair(self, table: _Table, i: int, j: int) -> Numbered:
        a, b = table.left[i], table.right[j]
        return (a, b), Pair(self._ways(a, b), float(table.said.shares[i, j]))


def _longer(*shapes: Shape) -> list[int]:
    """The lengths of all axes that are longer than 1, sorted."""
    return sorted(length for shape in shapes for length in shape if length != 1)


def _namesakes(
    sources: Sequence[Grid], targets: Sequence[Grid], names: KeyNames, matches: Matches
) -> Iterator[Numbered]:
    """Pairs with the same words, which no others have, or with the same key where several have these words.

    All other names resemble them less, by the margin.
    """
    left = _by_words(names.sources)
    right = _by_words(names.targets)
    for words, of_source in left.items():
        of_target = right.get(words, [])
        known = {sources[a].text: a for a in of_source}
        if len(of_source) == len(of_target) == 1:
            pairs = [(of_source[0], of_target[0])]
        else:  # names with the same words are told apart by their letters
            pairs = [(known[targets[b].text], b) for b in of_target if targets[b].text in known]
        for a, b in pairs:
            ways = matches(sources[a], targets[b]) if same_words(names.sources[a], names.targets[b]) else ()
            if any(way.exact for way in ways):
                yield (a, b), Pair(ways, 1.0)


def _by_words(said: Sequence[Meaning]) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for at, one in enumerate(said):
        found.setdefault(one.words, []).append(at)
    return found
