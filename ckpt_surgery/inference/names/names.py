"""Meanings of the names of two checkpoints, each seen among the others."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from ckpt_surgery.inference.keys.concepts import (
    NUMBER,
    SUBLAYERS,
    Meaning,
    Rank,
    Ranks,
    indexed,
    meaning,
    with_sublayer,
)
from ckpt_surgery.inference.keys.grids import Grid, Numbers, apart, parent_of
from ckpt_surgery.inference.names.alignment import Alignment
from ckpt_surgery.inference.values.reading import Side

Spelling = Callable[[str], str]
"""Writes a number behind the first of siblings."""
_NUMBERED = re.compile(r"\d+(?=[/.])")
_LATER = re.compile(rf"_({NUMBER.pattern})(?=[/.]|$)")
_ENDS = re.compile(r"(?=[/.]|$)")


class Name(NamedTuple):
    """A grid that is to be paired, and the meaning of its name."""

    grid: Grid
    said: Meaning


@dataclass(frozen=True)
class KeyNames:
    """Meanings of the names of two checkpoints' grids, and their alignment."""

    sources: Sequence[Name]
    targets: Sequence[Name]
    every: tuple[Sequence[Meaning], Sequence[Meaning]]
    """Meanings of all grids of both checkpoints, these among them."""
    ranks: tuple[Ranks, Ranks]
    alignment: Alignment
    """Their words."""

    @staticmethod
    def of(
        source: Side,
        target: Side,
        keys: tuple[Container[str], Container[str]] | None = None,
        decided: Iterable[tuple[str, str]] = (),
    ) -> "KeyNames":
        """Read the names of these leaves, by default all, seen among all leaves of their checkpoints.

        `decided`: keys of leaves of the source and of the target that are the same.
        """
        some = keys or (None, None)
        (left, asked, rank), (right, wanted, other) = map(_read, (source, target), some)
        by_key = [{key: one.said for one in side for key in one.grid.keys} for side in (left, right)]
        pairs = [(by_key[0][a], by_key[1][b]) for a, b in decided if a in by_key[0] and b in by_key[1]]
        taught = list({(id(a), id(b)): (a, b) for a, b in pairs}.values())
        every = [one.said for one in left], [one.said for one in right]
        return KeyNames(left[:asked], right[:wanted], every, (rank, other), Alignment(*every, taught))

    def among(self, sources: Sequence[Name], targets: Sequence[Name]) -> "KeyNames":
        """Other names of the same checkpoints, seen among all of these."""
        left, right = self.every
        every = [*(one.said for one in sources), *left], [*(one.said for one in targets), *right]
        alignment = Alignment(*every, self.alignment.taught)
        return KeyNames(sources, targets, every, self.ranks, alignment)

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

    @cached_property
    def alike(self) -> bool:
        """True if both checkpoints call most things the same."""
        left, right = ({said.words for said in side} for side in self.every)
        return 2 * len(left & right) > len(right)


def _read(side: Side, keys: Container[str] | None) -> tuple[list[Name], int, Ranks]:
    """Names of some grids, and behind them those of all others; how many they are; the ranks of numbers."""
    some, every = side.alike(keys), side.alike()
    known = {grid.text for grid in some}
    ordered = [*some, *(grid for grid in every if grid.text not in known)]
    spell = _spelling(ordered)
    rank = _ranks([*some, *every], spell)
    return list(map(Name, ordered, _meanings(ordered, spell, rank))), len(some), rank


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


def _meanings(grids: Sequence[Grid], spell: Spelling, rank: Ranks) -> list[Meaning]:
    """Meanings of the names of one checkpoint, each seen among the others.

    Where everything that names a sublayer below a number says the same one (`layer.0.SelfAttention`), the
    others below this number (`layer.0.layer_norm`) belong to it as well.
    """
    texts = [spell(grid.text) for grid in grids]
    prefixes = [[text[: number.end()] for number in _NUMBERED.finditer(text)] for text in texts]
    of_subtrees: dict[str, set[str]] = {}
    for text, own in zip(texts, prefixes, strict=True):
        for prefix in own:
            first = re.split("[/.]", text[len(prefix) + 1 :])[0]
            of_subtrees.setdefault(prefix, set()).update(SUBLAYERS.intersection(meaning(first).concepts))
    variances = (grid for grid in grids if "var" in meaning(grid.text).concepts)
    norms = {parent_of(key) for grid in variances for key in grid.keys}
    completed = []
    for grid, text, own in zip(grids, texts, prefixes, strict=True):
        said = meaning(text, rank)
        if "norm" not in said.concepts and all(parent_of(key) in norms for key in grid.keys):
            said = replace(said, concepts=(*said.concepts, "norm"))  # a batch norm, whatever it is called
        sublayers = [of_subtrees[prefix] for prefix in own if len(of_subtrees[prefix]) == 1]
        said = with_sublayer(said, next(iter(sublayers[-1]))) if sublayers else said
        completed.append(replace(said, parent=_first_parent(spell(grid.keys[0]), rank)))
    return completed


def _first_parent(key: str, rank: Ranks) -> str:
    """The parent of a key, each number of which is the first of those that are alike."""
    parent = parent_of(key)

    def first(number: re.Match[str]) -> str:
        return str(rank(parent[: number.start()], int(number[0])).first)

    return NUMBER.sub(first, parent)


def _ranks(grids: Iterable[Grid], spell: Spelling) -> Ranks:
    """The rank of a number among those of its siblings that are alike, other numbers aside.

    So the convolutions among the layers of a `Sequential` are counted by themselves, and its norms too.
    """
    below: dict[str, dict[int, set[tuple[str, int]]]] = {}
    for grid in grids:
        for before, numbers, after in _numbers(grid, spell(grid.text)):
            siblings = below.setdefault(outline(before), {})
            for number in numbers:
                siblings.setdefault(number, set()).add((outline(after), len(grid.shape)))
    ranks = {before: _ranked(siblings) for before, siblings in below.items()}
    return lambda before, number: ranks.get(outline(before), {}).get(number, Rank(0, 1, number))


def _numbers(grid: Grid, spelled: str) -> Iterator[tuple[str, Iterable[int], str]]:
    """The numbers of a grid's text and its indices, each between the texts around it."""
    for text in {grid.text, spelled}:
        for match in NUMBER.finditer(text):
            yield text[: match.start()], [int(match[0])], text[match.end() :]
    texts = grid.template.texts
    for slot in range(grid.template.slots):
        indices = {int(numbers[slot]) for numbers in grid.members}
        yield "{}".join(texts[: slot + 1]), indices, "{}".join(texts[slot + 1 :])


def _ranked(siblings: Mapping[int, set[tuple[str, int]]]) -> dict[int, Rank]:
    """The rank of each number among those that have more than a third of their names and axes in common."""
    groups: list[tuple[set[tuple[str, int]], list[int]]] = []
    for number, names in sorted(siblings.items()):
        alike = (numbers for first, numbers in groups if 3 * len(first & names) > len(first | names))
        if group := next(alike, None):
            group.append(number)
        else:
            groups.append((names, [number]))
    return {
        number: Rank(place, len(numbers), numbers[0], kind)
        for kind, (_, numbers) in enumerate(groups)
        for place, number in enumerate(numbers)
    }


def _spelling(grids: Iterable[Grid]) -> Spelling:
    """A function that writes a number behind the first of siblings that are numbered from 1.

    Haiku and Keras call them `dense`, `dense_1`, and so on.
    """
    numbers: dict[str, set[int]] = {}
    for text in {grid.text for grid in grids}:
        for match in _LATER.finditer(text):
            numbers.setdefault(text[: match.start()], set()).add(int(match[1]))
    firsts = {text for text, later in numbers.items() if 1 in later and 0 not in later}

    return cache(lambda text: _ENDS.sub(lambda end: "_0" if text[: end.start()] in firsts else "", text))


def outline(text: str) -> str:
    """The text with `{}` for each number."""
    return NUMBER.sub("{}", text)
