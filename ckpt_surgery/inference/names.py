"""What the names of two checkpoints say, each seen among the others."""

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.inference.concepts import SUBLAYERS, Meaning, Rank, meaning, with_sublayer
from ckpt_surgery.inference.similarity import Weights, least_overlap, similarity, weights
from ckpt_surgery.inference.subfamilies import Subfamily

_ROUNDING = 1e-9
_NUMBERED = re.compile(r"\d+(?=[/.])")


@dataclass(frozen=True)
class Names:
    """What the names of two checkpoints' subfamilies say, and how much each concept tells."""

    sources: Sequence[Meaning]
    targets: Sequence[Meaning]
    weigh: Weights

    @staticmethod
    def of(
        sources: Sequence[Subfamily],
        targets: Sequence[Subfamily],
        all_sources: Sequence[Subfamily] = (),
        all_targets: Sequence[Subfamily] = (),
    ) -> "Names":
        """Of these subfamilies, in their order; seen among all of their checkpoints."""
        left, right = Names._seen(sources, all_sources), Names._seen(targets, all_targets)
        return Names(left[0], right[0], weights(left[0] + left[1], right[0] + right[1]))

    @staticmethod
    def _seen(some: Sequence[Subfamily], every: Sequence[Subfamily]) -> tuple[list[Meaning], list[Meaning]]:
        """What some say, and all others whose names are not among theirs."""
        known = {one.text for one in some}
        others = [one for one in every if one.text not in known]
        said = meanings([*some, *others])
        return said[: len(some)], said[len(some) :]

    def alike(
        self, least: float, blocks: tuple[Sequence[object], Sequence[object]]
    ) -> Iterator[tuple[float, int, int]]:
        """Score, source and target of all pairs with at least this score and the same block.

        `blocks`: something for each source and each target; only those with equal ones are compared. Two
        names that resemble each other share rare concepts, so that few have to be compared.
        """
        nearby = _Nearby(self, blocks[1])
        for at, (said, block) in enumerate(zip(self.sources, blocks[0], strict=True)):
            for other in nearby.of(said, block, least):
                score = similarity(said, self.targets[other], self.weigh)
                if score >= least:
                    yield score, at, other


class _Nearby:
    """The targets' names by their concepts."""

    def __init__(self, names: Names, blocks: Sequence[object]) -> None:
        holders: dict[tuple[object, str], list[int]] = {}
        for at, (said, block) in enumerate(zip(names.targets, blocks, strict=True)):
            for concept in said.concepts:
                holders.setdefault((block, concept), []).append(at)
        self._holders = {which: np.array(found) for which, found in holders.items()}
        self._weights = np.array([names.weigh.sum(said.concepts) for said in names.targets])
        self._weigh = names.weigh

    def of(self, said: Meaning, block: object, least: float) -> list[int]:
        """Targets of this block, with all whose names have this similarity to `said`, and few others.

        The common concepts at the end of the list, which weigh too little to make two names alike, are not
        looked up: they are taken to be shared by all.
        """
        overlap = least_overlap(least)
        own = self._weigh.sum(said.concepts)
        rare, common = self._parted(said, own * overlap / (2 - overlap))
        found = [
            (holders, self._weigh.of[concept])
            for concept in rare
            if (holders := self._holders.get((block, concept))) is not None
        ]
        if not found:
            return []
        hits = np.concatenate([holders for holders, _ in found])
        each = np.repeat([weight for _, weight in found], [len(holders) for holders, _ in found])
        near, which = np.unique(hits, return_inverse=True)
        other = self._weights[near]
        lighter = np.minimum(own, other)
        shared = np.minimum(np.bincount(which, each) + common, lighter)
        possible = shared / (shared + (own + other - 2 * shared) / 2 + lighter - shared)
        chosen: list[int] = near[possible >= overlap - _ROUNDING].tolist()
        return chosen

    def _parted(self, said: Meaning, allowed: float) -> tuple[list[str], float]:
        """The rare concepts of a name; and the weight of the others, which is less than `allowed`."""
        ordered = sorted(said.concepts, key=lambda concept: self._weigh.of[concept])
        common = 0.0
        for at, concept in enumerate(ordered):
            if common + self._weigh.of[concept] >= allowed:
                return ordered[at:], common
            common += self._weigh.of[concept]
        return ordered, 0.0


def meanings(subfamilies: Sequence[Subfamily]) -> list[Meaning]:
    """What the names of all subfamilies of one checkpoint say, each seen among the others.

    Where everything that names a sublayer below a number says the same one (`layer.0.SelfAttention`), the
    others below this number (`layer.0.layer_norm`) belong to it as well.
    """
    rank = _ranks(subfamilies)
    prefixes = [list(_numbered(subfamily.text)) for subfamily in subfamilies]
    of_subtrees: dict[str, set[str]] = {}
    for subfamily, own in zip(subfamilies, prefixes, strict=True):
        for prefix in own:
            first = re.split("[/.]", subfamily.text[len(prefix) + 1 :])[0]
            of_subtrees.setdefault(prefix, set()).update(SUBLAYERS.intersection(meaning(first).concepts))
    made = []
    for subfamily, own in zip(subfamilies, prefixes, strict=True):
        said = meaning(subfamily.text, rank)
        told = [of_subtrees[prefix] for prefix in own if len(of_subtrees[prefix]) == 1]
        made.append(with_sublayer(said, next(iter(told[-1]))) if told else said)
    return made


def _numbered(text: str) -> Iterator[str]:
    """A template's text up to each number that ends a component, but not the text."""
    for match in _NUMBERED.finditer(text):
        yield text[: match.end()]


def _ranks(subfamilies: Iterable[Subfamily]) -> Rank:
    """The rank of a number among all that stand behind the same text in a checkpoint."""
    values: dict[str, set[int]] = {}
    for subfamily in subfamilies:
        text = subfamily.text
        for match in re.finditer(r"\d+", text):
            values.setdefault(text[: match.start()], set()).add(int(match.group()))
        for slot in range(subfamily.template.slots):
            before = "{}".join(subfamily.template.texts[: slot + 1])
            values.setdefault(before, set()).update(int(numbers[slot]) for numbers in subfamily.members)
    ordered = {before: sorted(found) for before, found in values.items()}

    def rank(before: str, number: int) -> tuple[int, int]:
        among = ordered.get(before, [number])
        return bisect.bisect_left(among, number), len(among)

    return rank
