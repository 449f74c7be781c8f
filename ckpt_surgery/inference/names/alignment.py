"""Align the words of one checkpoint's names with those of the other's, as in translation.

A word that both have means the same on both sides; so do words with a common entry in the table of synonyms.
Other words are learnt from decided pairs: once `fc_0` is `block_0_linear`, because nothing else has its size,
`fc` counts for `linear` everywhere. The score of a pair is a log-likelihood ratio: how much likelier each
name is beside the other than by itself. So words that all names have count for nothing.

Learning only from what is decided keeps weak evidence from confirming itself.
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ckpt_surgery.inference.keys.concepts import PLACED, Meaning, all_concepts, synonyms

_SAME = 0.95
"""Probability that a name has a word which the other one has."""
_MISSING = math.log(0.25)
"""Penalty for lacking a word of the other name, if the checkpoint has that word elsewhere."""
_UNKNOWN = math.log(0.7)
"""Penalty for a word that nothing is known about."""
_PRIOR = 0.7
"""Weight of the background of a word, in pairs."""
_MOST_SHARE = 0.99
"""Highest share of names that are not the same."""
_ABBREVIATED = 0.9
"""Probability of a word that the other name abbreviates."""
_KNOWN = 0.85
"""Probability from which a word counts as known: names that lack it get the penalty for that."""
_EXCLUSIVE = [frozenset(line.split()) for line in synonyms()["exclusive"]]
_TOGETHER = frozenset(" ".join(synonyms()["together"]).split())

Taught = Iterable[tuple[Meaning, Meaning]]
"""Pairs of names that are certain."""


class Comparison(NamedTuple):
    """Scores of names of sources (rows) beside names of targets (columns)."""

    ratios: np.ndarray
    """Log-likelihood ratios (natural logarithms)."""
    shares: np.ndarray
    """Share of both names that is understood, from 0 to 1."""
    lacking: np.ndarray
    """True where each lacks a word of the other's own, though its checkpoint has that word elsewhere.

    Numbers do not count, since layers that are grouped otherwise have others, and neither do words of the
    table of synonyms, which lists contradictions itself."""


class Alignment:
    """Compares names of two checkpoints, and learns words from pairs that are decided."""

    def __init__(self, sources: Iterable[Meaning], targets: Iterable[Meaning], taught: Taught) -> None:
        """Count the words of all names of both checkpoints, which show which ones are rare."""
        self._left, self._right = _Words(sources), _Words(targets)
        short = _abbreviations(self._left.at, self._right.at)
        self._there = _Translation(self._left, self._right, short)
        self._back = _Translation(self._right, self._left, {(w, v) for v, w in short})
        self._partners: set[tuple[str | None, str | None]] = set()
        """Parents of leaves that are a pair; with None, those that have any partner."""
        self.taught: list[tuple[Meaning, Meaning]] = []
        for source, target in taught:
            self.learn(source, target)

    def learn(self, source: Meaning, target: Meaning) -> None:
        """Take this pair of names as certain."""
        self.taught.append((source, target))
        mine, theirs = source.parent, target.parent
        self._partners |= {(mine, theirs), (mine, None), (None, theirs)}
        self._there.learn(source.tokens, target.tokens)
        self._back.learn(target.tokens, source.tokens)

    def compare(self, sources: Sequence[Meaning], targets: Sequence[Meaning]) -> Comparison:
        """Score the names of these sources (rows) beside those of these targets (columns)."""
        left, right = self._left, self._right
        there, back = self._there.gains(sources), self._back.gains(targets)
        a, b = left.held_by(sources), right.held_by(targets)
        ratios = there @ b.T + a @ back.T
        most = (a @ left.rarity)[:, None] + (b @ right.rarity)[None, :]
        lacking = np.minimum(((there <= _MISSING) * right.own) @ b.T, a @ ((back <= _MISSING) * left.own).T)
        return Comparison(ratios, np.clip(ratios / np.maximum(most, 1e-9), 0, _MOST_SHARE), lacking > 0)

    def against(self, one: Meaning, other: Meaning, doubtful: bool = False) -> bool:
        """True if two names contradict each other, or their parents have others for partners.

        `doubtful`: whether it is enough that one of both parents has another one.
        """
        others = [at in self._partners for at in ((one.parent, None), (None, other.parent))]
        apart = (one.parent, other.parent) not in self._partners and (any if doubtful else all)(others)
        unclear = PLACED if one.guessed and other.guessed else frozenset()
        a, b = (frozenset(each.concepts) - unclear for each in (one, other))
        return apart or _contradict(a, b)


class _Words:
    """The words of one checkpoint's names."""

    def __init__(self, names: Iterable[Meaning]) -> None:
        every = [name.tokens for name in names]
        counts = Counter(word for name in every for word in name)
        self.at = {word: at for at, word in enumerate(counts)}
        self.share = np.array([(count + 0.5) / (len(every) + 1) for count in counts.values()])
        """For each word, the share of all names that have it."""
        self.parents = np.array([word.startswith("@") for word in counts], bool)
        """True for parents, which say nothing until a pair teaches them."""
        self.rarity = np.where(self.parents, 0.0, -np.log(self.share))
        """Weight of each word: the rarer, the higher."""
        self.own = np.array(["#" not in word and word not in all_concepts() for word in counts], float)
        """1 for the model's own words; 0 for those of the table and for numbers."""

    def held_by(self, names: Sequence[Meaning]) -> np.ndarray:
        """Matrix with 1 where a name (row) has a word (column), else 0."""
        held = np.zeros((len(names), len(self.at)))
        for row, name in zip(held, names, strict=True):
            row[[self.at[word] for word in name.tokens]] = 1
        return held


class _Translation:
    """Probabilities of words of one side beside those of the other."""

    def __init__(self, side: _Words, other: _Words, short: Iterable[tuple[str, str]]) -> None:
        self._other = other
        self._fixed = {word: {word: _SAME} for word in side.at if word in other.at}
        self._fixed |= {word: {longer: _ABBREVIATED} for word, longer in short}
        self._beside: dict[str, Counter[str]] = defaultdict(Counter)
        """For each word, how often words of the other side stood beside it in pairs."""
        self._seen: Counter[str] = Counter()

    def learn(self, own: Sequence[str], others: Sequence[str]) -> None:
        """Count the words of two names that only one of them has."""
        there = [word for word in others if word not in own and word in self._other.at]
        for word in own:
            if word not in others:
                self._seen[word] += 1
                self._beside[word].update(there)

    def gains(self, names: Sequence[Meaning]) -> np.ndarray:
        """Log-likelihood ratio of each word of the other side (columns) beside each of some names (rows)."""
        at, share = self._other.at, self._other.share
        words = {word: self._words(word) for word in self._fixed.keys() | self._beside.keys()}
        known = np.where(self._other.parents, 0.0, _UNKNOWN)
        known[[at[w] for each in words.values() for w, p in each.items() if p >= _KNOWN]] = _MISSING
        gains = np.tile(known, (len(names), 1))
        for row, name in zip(gains, names, strict=True):
            for word in name.tokens:
                for w, p in words.get(word, {}).items():
                    row[at[w]] = max(row[at[w]], math.log(p / share[at[w]]))
        return gains

    def _words(self, word: str) -> dict[str, float]:
        """Words of the other side that stand beside a word more often than beside any, with probabilities."""
        shares = ((w, count, self._other.share[self._other.at[w]]) for w, count in self._beside[word].items())
        learnt = {w: (count + _PRIOR * p) / (_PRIOR + self._seen[word]) for w, count, p in shares}
        likely = {w: p for w, p in learnt.items() if p > self._other.share[self._other.at[w]]}
        return likely | self._fixed.get(word, {})


def _abbreviations(left: Iterable[str], right: Iterable[str]) -> set[tuple[str, str]]:
    """Words of one side that the other abbreviates, such as `gen` or `G` for generator."""
    mine, theirs = ({word for word in side if word.isalpha()} for side in (left, right))
    mine, theirs = mine - theirs, theirs - mine
    pairs = [(word[:end], word) for word in theirs for end in range(1, len(word)) if word[:end] in mine]
    pairs += [(word, word[:end]) for word in mine for end in range(1, len(word)) if word[:end] in theirs]
    counts = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {(a, b) for a, b in pairs if counts[0][a] == counts[1][b] == 1}


@functools.lru_cache(maxsize=1 << 16)
def _contradict(a: frozenset[str], b: frozenset[str]) -> bool:
    """True if two sets of concepts say that they are different things, as query and key do.

    A name of numbers alone says nothing.
    """
    classes = (
        not one.isdisjoint(a) and not one.isdisjoint(b) and one.isdisjoint(a & b) for one in _EXCLUSIVE
    )
    silent = any(all(word == "optimizer" or "#" in word for word in said) for said in (a, b))
    return any(classes) or not (silent or _TOGETHER.isdisjoint(a ^ b))
