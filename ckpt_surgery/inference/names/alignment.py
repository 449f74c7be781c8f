"""Align the words of one checkpoint's names with those of the other's, as in translation.

A word that both have means the same on both sides; so do words with a common entry in the table of synonyms.
Other words are learnt from decided pairs: once `fc_0` is `block_0_linear`, because nothing else has its size,
`fc` counts for `linear` everywhere. The score of a pair is a log-likelihood ratio: how much likelier each
name is beside the other than by itself. So words that all names have count for nothing.

Learning only from what is decided keeps weak evidence from confirming itself.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.inference.keys.concepts import PLACED, Meaning, all_concepts, synonyms

_SAME = 0.95
"""Probability that a name has a word which the other one has."""
_MISSING = math.log(0.25)
"""Penalty for lacking a word of the other name, if the checkpoint has that word elsewhere."""
_UNKNOWN = math.log(0.7)
"""Penalty for a word that nothing is known about."""
_APART = -2.0
"""Penalty if only one of two names says that it is a bias."""
_PRIOR = 0.7
"""Weight of the background of a word, in pairs."""
_MOST_SHARE = 0.99
"""Highest share of names that are not the same."""
_ABBREVIATED = 0.9
"""Probability of a word that the other name abbreviates."""
_KNOWN = 0.85
"""Probability from which a word counts as known: names that lack it get the penalty for that."""
_NUMBER = re.compile(r"(^|[/.])\d+$")
"""The end of a parent that is a number."""
_EXCLUSIVE = [frozenset(line.split()) for line in synonyms()["exclusive"]]
_TOGETHER = frozenset(" ".join(synonyms()["together"]).split())


@dataclass
class _Side:
    """The words of one checkpoint's names."""

    names: Sequence[tuple[str, ...]]
    number: dict[str, int]
    background: np.ndarray
    """For each word, the share of all names that have it."""

    @staticmethod
    def of(names: Sequence[tuple[str, ...]], every: Sequence[tuple[str, ...]]) -> "_Side":
        counts = Counter(word for name in every for word in name)
        number = {word: at for at, word in enumerate(counts)}
        share = np.array([(count + 0.5) / (len(every) + 1) for count in counts.values()])
        return _Side(names, number, share)

    @functools.cached_property
    def rarity(self) -> np.ndarray:
        """Weight of each word: the rarer, the higher."""
        rarity: np.ndarray = np.where(self.parents, 0.0, -np.log(self.background))
        return rarity

    @functools.cached_property
    def parents(self) -> np.ndarray:
        """True for parents, which say nothing until a pair teaches them."""
        return np.array([word.startswith("@") for word in self.number], bool)

    @functools.cached_property
    def telling(self) -> np.ndarray:
        """The same, but 0 for numbers behind a word, which say nothing by themselves."""
        spoken = np.array(["#" not in word[1:] for word in self.number], float)
        telling: np.ndarray = self.rarity * spoken
        return telling

    @functools.cached_property
    def own(self) -> np.ndarray:
        """1 for the model's own words; 0 for those of the table and for numbers."""
        return np.array(["#" not in word and word not in all_concepts() for word in self.number], float)

    def rows(self, name: int) -> list[int]:
        """The numbers of a name's words."""
        return [self.number[word] for word in self.names[name]]

    def holding(self, some: Sequence[int]) -> np.ndarray:
        """Matrix with 1 where a name (row) has a word (column), else 0."""
        held = np.zeros((len(some), len(self.number)))
        for at, name in enumerate(some):
            held[at, self.rows(name)] = 1
        return held


@dataclass(frozen=True)
class Comparison:
    """Scores of names of sources (rows) beside names of targets (columns)."""

    ratios: np.ndarray
    """Log-likelihood ratios (natural logarithms)."""
    shares: np.ndarray
    """Share of both names that is understood, from 0 to 1."""
    lacking: np.ndarray
    """True where each lacks a word of the other's own, though its checkpoint has that word elsewhere.

    Numbers do not count, since layers that are grouped otherwise have others, and neither do words of the
    table of synonyms, which lists contradictions itself."""
    unexplained: np.ndarray
    """Weight of the words in each that the other does not explain, the smaller of both."""


class Alignment:
    """Compares names of two checkpoints, and learns words from pairs that are decided."""

    def __init__(
        self,
        sources: Sequence[Meaning],
        targets: Sequence[Meaning],
        others: tuple[Sequence[Meaning], Sequence[Meaning]] = ((), ()),
    ) -> None:
        """`others`: names of leaves that are not to be paired; they show which words are rare."""
        left, right = [one.tokens for one in sources], [one.tokens for one in targets]
        self._said = sources, targets
        self._left = _Side.of(left, [*left, *(one.tokens for one in others[0])])
        self._right = _Side.of(right, [*right, *(one.tokens for one in others[1])])
        self._short = _abbreviations(self._left.number, self._right.number)
        self._learnt: dict[tuple[int, int], float] = {}
        self._seen = np.zeros(len(self._left.number)), np.zeros(len(self._right.number))
        self._parents: set[tuple[str, str]] = set()
        """Parents of which a pair is decided."""

    def learn(self, pairs: Iterable[tuple[Meaning, Meaning]]) -> None:
        """Take these pairs of names as certain."""
        for source, target in pairs:
            self._parents.add((source.parent, target.parent))
            one, other = set(source.tokens), set(target.tokens)
            left = [self._left.number[word] for word in sorted(one - other) if word in self._left.number]
            right = [self._right.number[word] for word in sorted(other - one) if word in self._right.number]
            for v in left:
                self._seen[0][v] += 1
                for w in right:
                    self._learnt[v, w] = self._learnt.get((v, w), 0.0) + 1
            for w in right:
                self._seen[1][w] += 1

    def compare(self, some: Sequence[int], others: Sequence[int]) -> "Comparison":
        """Score the names of these sources (rows) beside those of these targets (columns)."""
        left, right = self._left, self._right
        there = _gain(left, right, some, self._translation(forwards=True))
        back = _gain(right, left, others, self._translation(forwards=False))
        a, b = left.holding(some), right.holding(others)
        said = [[side[at] for at in which] for side, which in zip(self._said, (some, others), strict=True)]
        ratios = there @ b.T + a @ back.T + _APART * _apart(*said)
        most = (a @ left.rarity)[:, None] + (b @ right.rarity)[None, :]
        missed = np.minimum(((there <= _MISSING) * right.own) @ b.T, a @ ((back <= _MISSING) * left.own).T)
        unexplained = np.minimum(((there < 0) * right.telling) @ b.T, a @ ((back < 0) * left.telling).T)
        shares = np.clip(ratios / np.maximum(most, 1e-9), 0, _MOST_SHARE)
        return Comparison(ratios, shares, missed > 0, unexplained)

    def contradict(self, source: int, target: int, guesses: bool = True) -> bool:
        """True if two names say that they are different things, as query and key do.

        `guesses`: whether the guessed place of a norm counts, if its name does not say it.
        """
        one, other = self._said[0][source], self._said[1][target]
        both = bool(one.guessed & PLACED and other.guessed & PLACED)
        unsaid = {"weight"} if guesses and not both else {"weight", *PLACED}
        a, b = (frozenset(each.concepts) - (each.guessed & unsaid) for each in (one, other))
        return concepts_contradict(a, b)

    def apart(
        self, source: int, target: int, proposed: Iterable[tuple[int, int]] = (), doubtful: bool = False
    ) -> bool:
        """True if the parents of both leaves have others for partners, as decided pairs show.

        So do `proposed` ones, but for parents that are numbers, as in the state of PyTorch's optimizers. For
        a `doubtful` pair it is enough that one of both parents has another partner.
        """
        mine, theirs = pair = self._parents_of(source, target)
        known = self._parents
        if not any(_NUMBER.search(parent) for parent in pair):
            known = known.union(self._parents_of(*at) for at in proposed)
        others = any(one == mine for one, _ in known), any(one == theirs for _, one in known)
        return pair not in known and (any(others) if doubtful else all(others))

    def _parents_of(self, source: int, target: int) -> tuple[str, str]:
        return self._said[0][source].parent, self._said[1][target].parent

    def _translation(self, forwards: bool) -> dict[int, list[tuple[int, float]]]:
        """For each word of one side, words of the other and their probabilities beside it."""
        side, other = (self._left, self._right) if forwards else (self._right, self._left)
        seen = self._seen[0 if forwards else 1]
        translation: dict[int, dict[int, float]] = {}
        for (v, w), count in self._learnt.items():
            v, w = (v, w) if forwards else (w, v)
            p = (count + _PRIOR * other.background[w]) / (_PRIOR + seen[v])
            if p > other.background[w]:  # else it is there as often beside any other word
                translation.setdefault(v, {})[w] = p
        for (v, w), p in self._short.items():
            v, w = (v, w) if forwards else (w, v)
            known = translation.setdefault(v, {})
            known[w] = max(known.get(w, 0.0), p)
        for word, v in side.number.items():
            if word in other.number:
                translation.setdefault(v, {})[other.number[word]] = _SAME
        return {v: list(each.items()) for v, each in translation.items()}


def _gain(
    side: _Side, other: _Side, some: Sequence[int], translation: Mapping[int, Sequence[tuple[int, float]]]
) -> np.ndarray:
    """Log-likelihood ratio of each word of the other side (columns) beside each of some names (rows)."""
    known = np.where(other.parents, 0.0, _UNKNOWN)
    for each in translation.values():
        for w, p in each:
            if p >= _KNOWN:
                known[w] = _MISSING
    gains = np.tile(known, (len(some), 1))
    for at, name in enumerate(some):
        for v in side.rows(name):
            for w, p in translation.get(v, ()):
                gains[at, w] = max(gains[at, w], math.log(p / other.background[w]))
    return gains


def _apart(sources: Sequence[Meaning], targets: Sequence[Meaning]) -> np.ndarray:
    """True where only one of two names says that a leaf is a bias; slots of optimizers may not say it."""
    one, other = (np.array(["bias" in said.concepts for said in side]) for side in (sources, targets))
    apart: np.ndarray = one[:, None] != other[None, :]
    return apart


def _abbreviations(left: Mapping[str, int], right: Mapping[str, int]) -> dict[tuple[int, int], float]:
    """Words of one side that the other abbreviates, such as `gen` or `G` for generator."""
    mine, theirs = (
        {word for word in side if word not in other and word.isalpha()}
        for side, other in ((left, right), (right, left))
    )
    pairs = [(word[:end], word) for word in theirs for end in range(1, len(word)) if word[:end] in mine]
    pairs += [(word, word[:end]) for word in mine for end in range(1, len(word)) if word[:end] in theirs]
    counts = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {(left[a], right[b]): _ABBREVIATED for a, b in pairs if counts[0][a] == counts[1][b] == 1}


@functools.lru_cache(maxsize=1 << 16)
def concepts_contradict(a: frozenset[str], b: frozenset[str]) -> bool:
    """True if two sets of concepts say different things; a name of numbers alone says nothing."""
    classes = (
        not one.isdisjoint(a) and not one.isdisjoint(b) and one.isdisjoint(a & b) for one in _EXCLUSIVE
    )
    silent = any(all(word == "optimizer" or "#" in word for word in said) for said in (a, b))
    return any(classes) or not (silent or _TOGETHER.isdisjoint(a ^ b))
