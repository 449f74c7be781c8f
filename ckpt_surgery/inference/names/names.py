"""Meanings of the names of two checkpoints, each seen among the others."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.inference.keys.concepts import (
    SUBLAYERS,
    Meaning,
    Rank,
    Ranks,
    indexed,
    meaning,
    with_sublayer,
)
from ckpt_surgery.inference.keys.grids import Grid, Numbers, alike_siblings, apart
from ckpt_surgery.inference.names.alignment import Alignment

_NUMBERED = re.compile(r"\d+(?=[/.])")
_LATER = re.compile(r"_(\d+)(?=[/.]|$)")
_ENDS = re.compile(r"(?=[/.]|$)")


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
    ranks: tuple[Ranks, Ranks]
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
        (left, rank), (right, other) = (
            _read(some, every) for some, every in ((sources, all_sources), (targets, all_targets))
        )
        by_key = [{key: one.said for one in side for key in one.grid.keys} for side in (left, right)]
        pairs = [(by_key[0][a], by_key[1][b]) for a, b in decided if a in by_key[0] and b in by_key[1]]
        taught = list({(id(a), id(b)): (a, b) for a, b in pairs}.values())
        n, m = len(sources), len(targets)
        others = [one.said for one in left[n:]], [one.said for one in right[m:]]
        return KeyNames(left[:n], right[:m], others, (rank, other), taught)

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


def _read(some: Sequence[Grid], every: Sequence[Grid]) -> tuple[list[Name], Ranks]:
    """Names of some grids, and behind them those of all others; the ranks of numbers in them."""
    known = {grid.text for grid in some}
    ordered = [*some, *(grid for grid in every if grid.text not in known)]
    spelled = _spelled(ordered)
    rank = _ranks([*some, *every], spelled)
    return [Name(*each) for each in zip(ordered, meanings(ordered, spelled, rank), strict=True)], rank


def _with_indices(name: Name, numbers: Numbers, rank: Ranks) -> Meaning:
    """The meaning of a member of a grid: with its indices, as ranks."""
    concepts, ranks = list(name.said.concepts), list(name.said.ranks)
    texts = name.grid.template.texts
    for slot, number in enumerate(numbers):
        before = "{}".join(texts[: slot + 1])
        own = rank(before, int(number))
        concepts.append(indexed(before, own, concepts))
        ranks.append(f"#{own.place}/{own.among}")
    return replace(name.said, concepts=tuple(concepts), ranks=tuple(ranks))


def meanings(grids: Sequence[Grid], spelled: Mapping[str, str], rank: Ranks) -> list[Meaning]:
    """Meanings of the names of one checkpoint, each seen among the others.

    Where everything that names a sublayer below a number says the same one (`layer.0.SelfAttention`), the
    others below this number (`layer.0.layer_norm`) belong to it as well.
    """
    texts = [spelled[grid.text] for grid in grids]
    prefixes = [[text[: number.end()] for number in _NUMBERED.finditer(text)] for text in texts]
    of_subtrees: dict[str, set[str]] = {}
    for text, own in zip(texts, prefixes, strict=True):
        for prefix in own:
            first = re.split("[/.]", text[len(prefix) + 1 :])[0]
            of_subtrees.setdefault(prefix, set()).update(SUBLAYERS.intersection(meaning(first).concepts))
    completed = []
    norms = _norms(grids)
    for grid, text, own in zip(grids, texts, prefixes, strict=True):
        said = meaning(text, rank)
        if "norm" not in said.concepts and all(_parent(key) in norms for key in grid.keys):
            said = replace(said, concepts=(*said.concepts, "norm"))
        sublayers = [of_subtrees[prefix] for prefix in own if len(of_subtrees[prefix]) == 1]
        said = with_sublayer(said, next(iter(sublayers[-1]))) if sublayers else said
        completed.append(replace(said, parent=_first_parent(grid.keys[0], rank)))
    return completed


def _norms(grids: Iterable[Grid]) -> set[str]:
    """The parents of leaves that are a running mean and variance: batch norms, whatever they are called."""
    parents: dict[str, set[str]] = {"mean": set(), "var": set()}
    for grid in grids:
        for concept in parents.keys() & set(meaning(grid.text).concepts):
            parents[concept].update(map(_parent, grid.keys))
    return parents["mean"] & parents["var"]


def _parent(text: str) -> str:
    return re.sub(r"[/.][^/.]*$", "", text)


def _first_parent(key: str, rank: Ranks) -> str:
    """The parent of a key, each number of which is the first of those that are alike."""
    parent = _parent(key)

    def first(number: re.Match[str]) -> str:
        return str(rank(parent[: number.start()], int(number[0])).first)

    return re.sub(r"\d+", first, parent)


def _ranks(grids: Iterable[Grid], spelled: Mapping[str, str]) -> Ranks:
    """The rank of a number among those of its siblings that are alike, other numbers aside.

    So the convolutions among the layers of a `Sequential` are counted by themselves, and its norms too.
    """
    below: dict[str, dict[int, set[tuple[str, int]]]] = {}
    for grid in grids:
        axes = len(grid.shape)
        for text in {grid.text, spelled[grid.text]}:
            for match in re.finditer(r"\d+", text):
                siblings = below.setdefault(outline(text[: match.start()]), {})
                siblings.setdefault(int(match.group()), set()).add((outline(text[match.end() :]), axes))
        for slot in range(grid.template.slots):
            texts = grid.template.texts
            before, after = "{}".join(texts[: slot + 1]), "{}".join(texts[slot + 1 :])
            siblings = below.setdefault(outline(before), {})
            for numbers in grid.members:
                siblings.setdefault(int(numbers[slot]), set()).add((outline(after), axes))
    ranks = {before: _ranked(siblings) for before, siblings in below.items()}
    return lambda before, number: ranks.get(outline(before), {}).get(number, Rank(0, 1, number))


def _ranked(siblings: Mapping[int, AbstractSet[object]]) -> dict[int, Rank]:
    """The rank of each number among those whose subtrees are alike."""
    groups = alike_siblings(siblings)
    kinds = sorted({alike[0] for alike in groups.values()})
    return {
        number: Rank(alike.index(number), len(alike), alike[0], kinds.index(alike[0]))
        for number, alike in groups.items()
    }


def _spelled(grids: Iterable[Grid]) -> dict[str, str]:
    """The texts of grids with a number for the first of siblings that are numbered from 1.

    Haiku and Keras call them `dense`, `dense_1`, and so on.
    """
    texts = {grid.text for grid in grids}
    numbers: dict[str, set[int]] = {}
    for text in texts:
        for match in _LATER.finditer(text):
            numbers.setdefault(text[: match.start()], set()).add(int(match[1]))
    firsts = {text for text, later in numbers.items() if 1 in later and 0 not in later}

    def spell(text: str) -> str:
        return _ENDS.sub(lambda end: "_0" if text[: end.start()] in firsts else "", text)

    return {text: spell(text) for text in texts}


def outline(text: str) -> str:
    """The text with `{}` for each number."""
    return re.sub(r"\d+", "{}", text)
