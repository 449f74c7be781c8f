"""What the names of two checkpoints say, each seen among the others."""

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ckpt_surgery.inference.keys.concepts import (
    SUBLAYERS,
    Meaning,
    Rank,
    as_norm,
    counted,
    meaning,
    with_sublayer,
)
from ckpt_surgery.inference.keys.grids import Grid, Member
from ckpt_surgery.inference.names.alignment import Alignment

_NUMBERED = re.compile(r"\d+(?=[/.])")


@dataclass(frozen=True)
class KeyNames:
    """What the names of two checkpoints' grids say, and how they are aligned."""

    sources: Sequence[Meaning]
    targets: Sequence[Meaning]
    alignment: Alignment
    others: tuple[Sequence[Meaning], Sequence[Meaning]]
    """Of all other grids of both checkpoints."""
    ranks: tuple[Rank, Rank]
    taught: Sequence[tuple[Meaning, Meaning]] = ()
    """The names of leaves that are decided already."""

    @cached_property
    def alike(self) -> bool:
        """Whether both checkpoints call most things the same."""
        own = ((*self.sources, *self.others[0]), (*self.targets, *self.others[1]))
        left, right = ({said.words for said in side} for side in own)
        return 2 * len(left & right) > len(right)

    @staticmethod
    def of(
        sources: Sequence[Grid],
        targets: Sequence[Grid],
        all_sources: Sequence[Grid] = (),
        all_targets: Sequence[Grid] = (),
        decided: Iterable[tuple[str, str]] = (),
    ) -> "KeyNames":
        """Of these grids, in their order; seen among all of their checkpoints.

        `decided`: keys of leaves of the source and of the target that are the same, which teach words.
        """
        left, right = _seen(sources, all_sources), _seen(targets, all_targets)
        mine, theirs = (
            [said for _, said in side[: len(some)]] for side, some in ((left, sources), (right, targets))
        )
        others = [said for _, said in left[len(sources) :]], [said for _, said in right[len(targets) :]]
        by_key = [{key: said for one, said in side for key in one.keys} for side in (left, right)]
        pairs = [(by_key[0][a], by_key[1][b]) for a, b in decided if a in by_key[0] and b in by_key[1]]
        taught = tuple({(id(a), id(b)): (a, b) for a, b in pairs}.values())
        ranks = _ranks([*sources, *all_sources]), _ranks([*targets, *all_targets])
        names = KeyNames(mine, theirs, Alignment(mine, theirs, others), others, ranks, taught)
        names.alignment.learn(taught)
        return names

    def of_members(self, left: Sequence[Member], right: Sequence[Member]) -> "KeyNames":
        """The same for single members, whose indices are parts of their names."""
        sources = [_with_indices(self.sources[one.number], one, self.ranks[0]) for one in left]
        targets = [_with_indices(self.targets[one.number], one, self.ranks[1]) for one in right]
        others = [*self.sources, *self.others[0]], [*self.targets, *self.others[1]]
        names = KeyNames(
            sources, targets, Alignment(sources, targets, others), others, self.ranks, self.taught
        )
        names.alignment.learn(self.taught)
        return names


def _seen(some: Sequence[Grid], every: Sequence[Grid]) -> list[tuple[Grid, Meaning]]:
    """Some, and behind them all others whose names are not among theirs, with what each says."""
    known = {one.text for one in some}
    ordered = [*some, *(one for one in every if one.text not in known)]
    return list(zip(ordered, meanings(ordered), strict=True))


def _with_indices(said: Meaning, member: Member, rank: Rank) -> Meaning:
    """The meaning of a member of a grid: with its indices, as ranks."""
    concepts, ranks = list(said.concepts), list(said.ranks)
    texts = member.grid.template.texts
    for slot, number in enumerate(member.numbers):
        place, among = rank("{}".join(texts[: slot + 1]), int(number))
        concepts.append(f"{counted(texts[slot])}#{place}")
        ranks.append(f"#{place}/{among}")
    return replace(said, concepts=tuple(concepts), ranks=tuple(ranks))


def meanings(grids: Sequence[Grid]) -> list[Meaning]:
    """What the names of all grids of one checkpoint say, each seen among the others.

    Where everything that names a sublayer below a number says the same one (`layer.0.SelfAttention`), the
    others below this number (`layer.0.layer_norm`) belong to it as well.
    """
    rank = _ranks(grids)
    prefixes = [list(_numbered(grid.text)) for grid in grids]
    of_subtrees: dict[str, set[str]] = {}
    for grid, own in zip(grids, prefixes, strict=True):
        for prefix in own:
            first = re.split("[/.]", grid.text[len(prefix) + 1 :])[0]
            of_subtrees.setdefault(prefix, set()).update(SUBLAYERS.intersection(meaning(first).concepts))
    made = []
    norms = _norms(grids)
    for grid, own in zip(grids, prefixes, strict=True):
        said = meaning(grid.text, rank)
        if _parent(grid.text) in norms:
            said = as_norm(said)
        told = [of_subtrees[prefix] for prefix in own if len(of_subtrees[prefix]) == 1]
        made.append(with_sublayer(said, next(iter(told[-1]))) if told else said)
    return made


def _norms(grids: Iterable[Grid]) -> set[str]:
    """The parents of leaves that are a running mean and variance: batch norms, whatever they are called."""
    below: dict[str, set[str]] = {}
    for one in grids:
        below.setdefault(_parent(one.text), set()).update(meaning(one.text).concepts)
    return {parent for parent, concepts in below.items() if {"mean", "var"} <= concepts}


def _parent(text: str) -> str:
    return re.sub(r"[/.][^/.]*$", "", text)


def _numbered(text: str) -> Iterator[str]:
    """A template's text up to each number that ends a component, but not the text."""
    for match in _NUMBERED.finditer(text):
        yield text[: match.end()]


def _ranks(grids: Iterable[Grid]) -> Rank:
    """The rank of a number among all that stand behind the same text in a checkpoint, other numbers aside."""
    values: dict[str, set[int]] = {}
    for grid in grids:
        text = grid.text
        for match in re.finditer(r"\d+", text):
            values.setdefault(_outline(text[: match.start()]), set()).add(int(match.group()))
        for slot in range(grid.template.slots):
            before = "{}".join(grid.template.texts[: slot + 1])
            values.setdefault(_outline(before), set()).update(int(numbers[slot]) for numbers in grid.members)
    ordered = {before: sorted(found) for before, found in values.items()}

    def rank(before: str, number: int) -> tuple[int, int]:
        among = ordered.get(_outline(before), [number])
        return bisect.bisect_left(among, number), len(among)

    return rank


def _outline(text: str) -> str:
    return re.sub(r"\d+", "{}", text)
