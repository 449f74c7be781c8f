"""Meanings of the names of two checkpoints, each seen among the others."""

import bisect
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.concepts import SUBLAYERS, Meaning, Rank, counted, meaning, with_sublayer
from ckpt_surgery.inference.keys.grids import Grid, Numbers, apart
from ckpt_surgery.inference.names.alignment import Alignment

_NUMBERED = re.compile(r"\d+(?=[/.])")


@frozen()
class Name:
    """A grid that is to be paired, and the meaning of its name."""

    grid: Grid
    said: Meaning


@dataclass(frozen=True)
class KeyNames:
    """Meanings of the names of two checkpoints' grids, and their alignment."""

    sources: Sequence[Name]
    targets: Sequence[Name]
    others: tuple[Sequence[Meaning], Sequence[Meaning]]
    """Meanings of all other grids of both checkpoints."""
    ranks: tuple[Rank, Rank]
    taught: list[tuple[Meaning, Meaning]]
    """The names of leaves that are decided, which teach words."""

    @staticmethod
    def of(
        sources: Sequence[Grid],
        targets: Sequence[Grid],
        all_sources: Sequence[Grid] = (),
        all_targets: Sequence[Grid] = (),
        decided: Iterable[tuple[str, str]] = (),
    ) -> "KeyNames":
        """Read the names of these grids, seen among all grids of their checkpoints.

        `decided`: keys of leaves of the source and of the target that are the same.
        """
        ranks = _ranks([*sources, *all_sources]), _ranks([*targets, *all_targets])
        left, right = _named(sources, all_sources, ranks[0]), _named(targets, all_targets, ranks[1])
        by_key = [{key: one.said for one in side for key in one.grid.keys} for side in (left, right)]
        pairs = [(by_key[0][a], by_key[1][b]) for a, b in decided if a in by_key[0] and b in by_key[1]]
        taught = list({(id(a), id(b)): (a, b) for a, b in pairs}.values())
        n, m = len(sources), len(targets)
        others = [one.said for one in left[n:]], [one.said for one in right[m:]]
        return KeyNames(left[:n], right[:m], others, ranks, taught)

    def among(self, sources: Sequence[Name], targets: Sequence[Name]) -> "KeyNames":
        """Other names of the same checkpoints, seen among all of these."""
        mine, theirs = ([one.said for one in side] for side in (self.sources, self.targets))
        others = [*mine, *self.others[0]], [*theirs, *self.others[1]]
        return KeyNames(sources, targets, others, self.ranks, self.taught)

    def alone(self, sources: Container[str], targets: Container[str]) -> "KeyNames":
        """The names of these keys, whose indices are parts of their names."""
        left, right = (
            [
                Name(grid, _with_indices(one, numbers, rank))
                for one in side
                for grid, numbers in zip(apart(one.grid), one.grid.members, strict=True)
                if grid.text in keys
            ]
            for side, keys, rank in zip(
                (self.sources, self.targets), (sources, targets), self.ranks, strict=True
            )
        )
        return self.among(left, right)

    def learn(self, pairs: Sequence[tuple[Meaning, Meaning]]) -> None:
        """Take these pairs of names as certain."""
        self.taught.extend(pairs)
        self.alignment.learn(pairs)

    @cached_property
    def alignment(self) -> Alignment:
        """Alignment of the names, with all that was learnt so far."""
        sources, targets = ([one.said for one in side] for side in (self.sources, self.targets))
        alignment = Alignment(sources, targets, self.others)
        alignment.learn(self.taught)
        return alignment

    @cached_property
    def alike(self) -> bool:
        """True if both checkpoints call most things the same."""
        left, right = (
            {said.words for said in (*(one.said for one in side), *others)}
            for side, others in zip((self.sources, self.targets), self.others, strict=True)
        )
        return 2 * len(left & right) > len(right)


def _named(some: Sequence[Grid], every: Sequence[Grid], rank: Rank) -> list[Name]:
    """Names of some grids, and behind them those of all others that have other names."""
    known = {grid.text for grid in some}
    ordered = [*some, *(grid for grid in every if grid.text not in known)]
    return [Name(*each) for each in zip(ordered, meanings(ordered, rank), strict=True)]


def _with_indices(name: Name, numbers: Numbers, rank: Rank) -> Meaning:
    """The meaning of a member of a grid: with its indices, as ranks."""
    concepts, ranks = list(name.said.concepts), list(name.said.ranks)
    texts = name.grid.template.texts
    for slot, number in enumerate(numbers):
        place, among = rank("{}".join(texts[: slot + 1]), int(number))
        concepts.append(f"{counted(texts[slot])}#{place}")
        ranks.append(f"#{place}/{among}")
    return replace(name.said, concepts=tuple(concepts), ranks=tuple(ranks))


def meanings(grids: Sequence[Grid], rank: Rank) -> list[Meaning]:
    """Meanings of the names of all grids of one checkpoint, each seen among the others.

    Where everything that names a sublayer below a number says the same one (`layer.0.SelfAttention`), the
    others below this number (`layer.0.layer_norm`) belong to it as well.
    """
    prefixes = [[grid.text[: number.end()] for number in _NUMBERED.finditer(grid.text)] for grid in grids]
    of_subtrees: dict[str, set[str]] = {}
    for grid, own in zip(grids, prefixes, strict=True):
        for prefix in own:
            first = re.split("[/.]", grid.text[len(prefix) + 1 :])[0]
            of_subtrees.setdefault(prefix, set()).update(SUBLAYERS.intersection(meaning(first).concepts))
    completed = []
    norms = _norms(grids)
    for grid, own in zip(grids, prefixes, strict=True):
        said = meaning(grid.text, rank)
        if _parent(grid.text) in norms and "norm" not in said.concepts:
            said = replace(said, concepts=(*said.concepts, "norm"))
        sublayers = [of_subtrees[prefix] for prefix in own if len(of_subtrees[prefix]) == 1]
        completed.append(with_sublayer(said, next(iter(sublayers[-1]))) if sublayers else said)
    return completed


def _norms(grids: Iterable[Grid]) -> set[str]:
    """The parents of leaves that are a running mean and variance: batch norms, whatever they are called."""
    below: dict[str, set[str]] = {}
    for grid in grids:
        below.setdefault(_parent(grid.text), set()).update(meaning(grid.text).concepts)
    return {parent for parent, concepts in below.items() if {"mean", "var"} <= concepts}


def _parent(text: str) -> str:
    return re.sub(r"[/.][^/.]*$", "", text)


def _ranks(grids: Iterable[Grid]) -> Rank:
    """The rank of a number among all that stand behind the same text in a checkpoint, other numbers aside."""
    values: dict[str, set[int]] = {}
    for grid in grids:
        text = grid.text
        for match in re.finditer(r"\d+", text):
            values.setdefault(outline(text[: match.start()]), set()).add(int(match.group()))
        for slot in range(grid.template.slots):
            before = "{}".join(grid.template.texts[: slot + 1])
            values.setdefault(outline(before), set()).update(int(numbers[slot]) for numbers in grid.members)
    ordered = {before: sorted(numbers) for before, numbers in values.items()}

    def rank(before: str, number: int) -> tuple[int, int]:
        among = ordered.get(outline(before), [number])
        return bisect.bisect_left(among, number), len(among)

    return rank


def outline(text: str) -> str:
    """The text with `{}` for each number."""
    return re.sub(r"\d+", "{}", text)
