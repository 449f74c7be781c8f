"""Which subfamilies of a source and a target are the same by their names, where sizes and indices allow it.

Nothing is assigned for the sake of an answer: two subfamilies are a pair where each is the best for the
other, by a margin, and the names resemble each other enough. The others stay open, with their candidates.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.concepts import Meaning, same_words
from ckpt_surgery.inference.fits import Fit
from ckpt_surgery.inference.names import Names
from ckpt_surgery.inference.subfamilies import Subfamily

LEAST = 0.34
"""The score of a pair at least."""
MARGIN = 0.08
"""By how much a pair's score is above the next one's, in both directions."""
_MOST_CANDIDATES = 8
_INEXACT = 0.85
"""What is left of a score where the indices are not the same numbers, though as many."""


Fits = Callable[[Subfamily, Subfamily], tuple[Fit, ...]]
"""The ways in which a subfamily of the source makes one of the target; none where it cannot."""


@frozen()
class Pair:
    """Two subfamilies that fit each other."""

    source: Subfamily
    target: Subfamily
    score: float
    """How much their names resemble each other, from 0 to 1."""
    fits: tuple[Fit, ...]
    """The ways in which their indices fit; at least one."""


@frozen()
class Open:
    """A subfamily of the target for which no pair is decided."""

    target: Subfamily
    candidates: tuple[Pair, ...]
    """Pairs whose names resemble each other, the best first; at least one."""


@frozen()
class Pairing:
    """What names decide, and what they do not."""

    decided: tuple[Pair, ...]
    """Each subfamily of the source and of the target at most once; in the order of the target."""
    undecided: tuple[Open, ...]
    """Subfamilies of the target that have candidates, among subfamilies that are not in a decided pair."""


def paired(
    sources: Sequence[Subfamily],
    targets: Sequence[Subfamily],
    fits: Fits,
    names: Names | None = None,
) -> Pairing:
    """The pairs that names decide, found again and again among the rest until there are no more.

    `names`: what the names say, where it is known already.
    """
    said = names or Names.of(sources, targets)
    decided = list(_namesakes(sources, targets, said, fits))
    done = {id(subfamily) for pair in decided for subfamily in (pair.source, pair.target)}
    table = _Table(_fitting(sources, targets, said, fits, done))
    while clear := table.clear():
        decided += clear
        table.remove(clear)
    place = {id(target): at for at, target in enumerate(targets)}
    return Pairing(
        tuple(sorted(decided, key=lambda pair: place[id(pair.target)])), tuple(table.open(targets))
    )


def _namesakes(
    sources: Sequence[Subfamily], targets: Sequence[Subfamily], names: Names, fits: Fits
) -> Iterator[Pair]:
    """Pairs with the same words, which no others have. All other names resemble them less, by the margin."""
    left = _by_words(names.sources)
    right = _by_words(names.targets)
    for words, of_source in left.items():
        of_target = right.get(words, [])
        if len(of_source) == len(of_target) == 1:
            a, b = of_source[0], of_target[0]
            ways = fits(sources[a], targets[b]) if same_words(names.sources[a], names.targets[b]) else ()
            if any(way.exact for way in ways):
                yield Pair(sources[a], targets[b], 1.0, ways)


def _by_words(said: Sequence[Meaning]) -> dict[tuple[str, ...], list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for at, one in enumerate(said):
        found.setdefault(one.words, []).append(at)
    return found


def _fitting(
    sources: Sequence[Subfamily],
    targets: Sequence[Subfamily],
    names: Names,
    fits: Fits,
    done: Collection[int],
) -> Iterator[Pair]:
    """All pairs that fit and whose names resemble each other enough to decide, or to prevent it.

    `done`: the ids of subfamilies that are left out.
    """
    sizes = _blocks(sources, done, "source"), _blocks(targets, done, "target")
    for score, a, b in names.alike(LEAST - MARGIN, sizes):
        ways = fits(sources[a], targets[b])
        if ways:
            exact = any(way.exact for way in ways)
            yield Pair(sources[a], targets[b], score if exact else score * _INEXACT, ways)


def _blocks(subfamilies: Sequence[Subfamily], done: Collection[int], side: str) -> list[object]:
    """What has to be equal for two subfamilies to fit; what is done fits nothing on the other side."""
    return [side if id(one) in done else (one.kind, one.elements) for one in subfamilies]


class _Table:
    """The pairs that are possible, by their source and by their target."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._by_source: dict[int, list[Pair]] = {}
        self._by_target: dict[int, list[Pair]] = {}
        for pair in sorted(pairs, key=lambda pair: -pair.score):
            self._by_source.setdefault(id(pair.source), []).append(pair)
            self._by_target.setdefault(id(pair.target), []).append(pair)

    def clear(self) -> list[Pair]:
        """Pairs that are the best for both by a margin."""
        found = []
        for rivals in self._by_target.values():
            best = rivals[0]
            of_source = self._by_source[id(best.source)]
            mutual = best.score >= LEAST and of_source[0] is best
            if mutual and _stands_out(rivals) and _stands_out(of_source):
                found.append(best)
        return found

    def remove(self, pairs: Iterable[Pair]) -> None:
        """Take the subfamilies of these pairs out."""
        gone = {id(subfamily) for pair in pairs for subfamily in (pair.source, pair.target)}
        for table in (self._by_source, self._by_target):
            kept = {
                which: [p for p in rivals if id(p.source) not in gone and id(p.target) not in gone]
                for which, rivals in table.items()
            }
            table.clear()
            table.update({which: rivals for which, rivals in kept.items() if rivals})

    def open(self, targets: Iterable[Subfamily]) -> Iterator[Open]:
        """Subfamilies of the target that have candidates, in this order."""
        for target in targets:
            rivals = self._by_target.get(id(target), [])
            if rivals and rivals[0].score >= LEAST:
                yield Open(target, tuple(rivals[:_MOST_CANDIDATES]))


def _stands_out(rivals: Sequence[Pair]) -> bool:
    """Whether the first of these pairs, the best first, is better than the others by a margin."""
    return len(rivals) == 1 or rivals[0].score - rivals[1].score >= MARGIN
