"""How much two names resemble each other: the weighted overlap of what their words mean."""

import functools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference import synonyms
from ckpt_surgery.inference.concepts import Meaning, same_words

_COMMON = 0.1
"""Weight of a concept that every name of a checkpoint has: it tells nothing apart."""
_ORDER = 0.05
_SAME_WORDS = 0.1
_CONTRADICTION = 0.3
"""What is left of a score where two names say that they are different things."""


@frozen()
class Weights:
    """How much each concept tells: rare ones tell more."""

    of: Mapping[str, float]

    def sum(self, concepts: Iterable[str]) -> float:
        """The weight of these concepts together."""
        return math.fsum(self.of[concept] for concept in concepts)


def weights(sources: Sequence[Meaning], targets: Sequence[Meaning]) -> Weights:
    """The weights of the concepts of two checkpoints' templates.

    log(templates / templates with it) in each checkpoint that has it, and the mean of both, plus a little.
    """
    found: dict[str, list[float]] = {}
    for side in (sources, targets):
        counts = Counter(concept for one in side for concept in one.concepts)
        for concept, count in counts.items():
            found.setdefault(concept, []).append(math.log(len(side) / count))
    return Weights({concept: _COMMON + sum(each) / len(each) for concept, each in found.items()})


def similarity(a: Meaning, b: Meaning, weigh: Weights) -> float:
    """From 0 to 1: 1 only for the same words in the same order; symmetric.

    What both say counts against what one of them says; more so where both say something that the other does
    not. Names that contradict each other, as query and key do, keep three tenths for each contradiction.
    """
    if same_words(a, b):
        return 1.0
    overlap = _overlap(set(a.concepts), set(b.concepts), weigh)
    if not overlap:
        return 0.0
    score = (1 - _ORDER - _SAME_WORDS) * overlap + _ORDER * _in_order(a.concepts, b.concepts)
    return score * _CONTRADICTION ** _contradictions(frozenset(a.concepts), frozenset(b.concepts))


def least_overlap(score: float) -> float:
    """The weighted overlap that two names of this similarity have at least."""
    return max(score - _ORDER, 0) / (1 - _ORDER - _SAME_WORDS)


def _overlap(a: set[str], b: set[str], weigh: Weights) -> float:
    shared, only_a, only_b = weigh.sum(a & b), weigh.sum(a - b), weigh.sum(b - a)
    return shared / (shared + (only_a + only_b) / 2 + min(only_a, only_b))


def _in_order(a: Sequence[str], b: Sequence[str]) -> float:
    """The share of neighbours among the shared concepts of one that have the same order in the other."""
    place = {concept: at for at, concept in enumerate(b)}
    shared = [place[concept] for concept in a if concept in place]
    if len(shared) < 2:
        return 1.0
    turned = sum(x > y for at, x in enumerate(shared) for y in shared[at + 1 :])
    return 1 - turned / math.comb(len(shared), 2)


@functools.lru_cache(maxsize=1 << 16)
def _contradictions(a: frozenset[str], b: frozenset[str]) -> int:
    """In how many respects two sets of concepts say different things."""
    classes = sum(
        not one.isdisjoint(a) and not one.isdisjoint(b) and one.isdisjoint(a & b) for one in _exclusive()
    )
    return classes + len((a ^ b) & _together()) + _numbers_differ(a, b)


def _numbers_differ(a: frozenset[str], b: frozenset[str]) -> bool:
    """Whether both count layers of a kind by a number that is a name, and not by the same one."""
    layers = [{concept for concept in one if concept.startswith("layer#")} for one in (a, b)]
    return all(layers) and layers[0].isdisjoint(layers[1])


@functools.cache
def _exclusive() -> Collection[frozenset[str]]:
    return [frozenset(line.split()) for line in synonyms.EXCLUSIVE.strip().splitlines()]


@functools.cache
def _together() -> frozenset[str]:
    return frozenset(synonyms.TOGETHER.split())
