"""What names say, where there are values: whether these allow it, perhaps after a sum or a product."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
    Value,
    X,
)
from ckpt_surgery.inference.values.arithmetic import found_after, operations
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.constants import ANY_ORDER, same_constant
from ckpt_surgery.inference.values.fingerprints import Fingerprint
from ckpt_surgery.inference.values.sides import Side, equal_values
from ckpt_surgery.inference.values.stacks import StackedLeaves

DIFFERENT = "names fit, but the values are not SRC's: take TARGET's or SRC's?"


def checked(
    said: Proposal, source: Side, target: Side, shared: bool, operations: dict[str, None]
) -> Proposal:
    """What names say, as far as values allow it.

    `operations`: gets the sums and products with one number that are found, as they follow an array in an
    expression. `shared`: whether the target has any numbers of the source, so that a leaf with the same name
    and other numbers needs a decision. Otherwise names decide by themselves, as for a target that was just
    initialised; but not where parts of the leaf are equal.
    """
    if target.read is None or source.read is None:
        return said
    check = _Check(source, target, operations)
    formations: list[Formation] = []
    left_open: list[Undecided] = []
    for row in _rows(said.formations):
        made = check.made(row)
        targets = [one.target for one in row]
        related = not check.reordered.isdisjoint(targets) or any(map(check.overlaps, row))
        if made is None and (shared or related):
            hinted = [replace(one, evidence=Evidence.HINT) for one in row]
            candidate = Candidate(row[0].sources, str(row[0].value), 1.0, "same", (hinted.copy,))
            left_open.append(Undecided(tuple(targets), DIFFERENT, (candidate,)))
        else:
            formations += row if made is None else made
    for one in said.undecided:
        found = check.decided(one)
        formations += found
        done = {formation.target for formation in found}
        if not done.issuperset(one.targets):
            left_open.append(replace(one, targets=tuple(key for key in one.targets if key not in done)))
    return Proposal(tuple(formations), tuple(left_open))


def _rows(formations: Sequence[Formation]) -> list[list[Formation]]:
    """The formations by their sources: those of one stack together."""
    rows: dict[tuple[str, ...], list[Formation]] = {}
    for one in formations:
        rows.setdefault(one.sources, []).append(one)
    return list(rows.values())


@dataclass(frozen=True)
class _Check:
    source: Side
    target: Side
    operations: dict[str, None]
    """Those that were found so far, in order."""
    reordered: set[str] = field(default_factory=set)
    """Leaves that hold the source's values after arithmetic, in an unknown order."""

    def made(self, row: Sequence[Formation]) -> list[Formation] | None:
        """The formations of leaves with the same sources; None where the values are others."""
        if all(self._holds(one) for one in row):
            return [self._of_equal_key(one) for one in row]
        return self._after_arithmetic(row[0].sources, [one.target for one in row])

    def _of_equal_key(self, one: Formation) -> Formation:
        """Call a leaf compared that is there under its own key, with the same repeated value."""
        kept = one.sources == (one.target,) and one.value == X and self.target.is_array(one.target)
        return replace(one, evidence=Evidence.VALUES) if kept else one

    def _holds(self, one: Formation) -> bool:
        """Whether a leaf of repeated values, or one without values, is what its name says."""
        leaf = self.target.leaves[one.target]
        if self.target.is_array(one.target):
            repeats = _repeats(self.source, one.sources) or _repeats(self.target, [one.target])
            return repeats and equal_elements(one, self.source, self.target)
        here = self.source.leaves[one.sources[0]]
        if leaf.spec is not None:
            return here.spec == leaf.spec and equal_values(self.source, here, self.target, leaf)
        return (leaf.string, leaf.empty) == (here.string, here.empty)

    def overlaps(self, one: Formation) -> bool:
        """Whether slices of a leaf are those of one of the leaves that it would be made of."""
        wanted = _stack_of(self.target, [one.target])
        if wanted is None:
            return False
        sums = _telling_slices(wanted.fingerprint)
        return any(
            not sums.isdisjoint(_telling_slices(given.fingerprint))
            for given in (_stack_of(self.source, [key]) for key in one.sources)
            if given is not None
        )

    def decided(self, one: Undecided) -> list[Formation]:
        """What values decide of what names leave open; constants only where it is the order alone."""
        only = len({candidate.sources for candidate in one.candidates}) == 1
        for candidate in one.candidates:
            rows = [
                self._of_candidate(sources, targets, candidate.value if only else "")
                for sources, targets in _pairs(candidate, one.targets)
            ]
            if rows and all(rows):
                return [formation for row in rows for formation in row or ()]
        return []

    def _of_candidate(
        self, sources: tuple[str, ...], targets: Sequence[str], value: str
    ) -> list[Formation] | None:
        """The formations of leaves with the same sources. `value`: what makes them if they are constant."""
        if value and len(targets) == 1 and same_constant(self.source, sources, self.target, targets[0]):
            return [Formation(targets[0], sources, Value(value), Evidence.VALUES, ANY_ORDER)]
        return self._after_arithmetic(sources, targets)

    def _after_arithmetic(self, keys: tuple[str, ...], wanted: Sequence[str]) -> list[Formation] | None:
        """The formations with a sum or a product of one number; None if there are none."""
        given, asked = _stack_of(self.source, keys), _stack_of(self.target, wanted)
        if given is None or asked is None or given.size != asked.size or asked.constant:
            return None
        for operation in operations(given.fingerprint, asked.fingerprint):
            found = found_after(operation, self.source, self.target, keys, wanted)
            if len(found.formations) == len(wanted):
                self.operations[operation] = None
                return list(found.formations)
            self.reordered.update(found.reordered)
        return None


def _pairs(candidate: Candidate, targets: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Sequence[str]]]:
    """The sources and the targets of a candidate that belong together."""
    if candidate.how == "same" and len(candidate.sources) == len(targets):
        yield from (((source,), (key,)) for source, key in zip(candidate.sources, targets, strict=True))
    elif (candidate.how == "stack" and len(targets) == 1) or (
        candidate.how == "unstack" and len(candidate.sources) == 1
    ):
        yield candidate.sources, targets


def _repeats(side: Side, keys: Sequence[str]) -> bool:
    """True if each of these leaves repeats one value, so that the search by values leaves them out."""
    parts = list(_fingerprints(side, keys))
    return len(parts) == len(keys) and all(part.constant for part in parts)


def _telling_slices(of: Fingerprint) -> set[int]:
    """The sums of the slices of an array, but for those that occur twice, as those of constants do."""
    found: set[int] = set()
    for sums in of.axes:
        values, counts = np.unique(sums, return_counts=True)
        found.update(map(int, values[counts == 1]))
    return found if not of.constant else set()


def _stack_of(side: Side, keys: Sequence[str]) -> StackedLeaves | None:
    """The stack of these leaves, by their own dtypes; None where they are not alike, or no numbers."""
    parts = list(_fingerprints(side, keys))
    if len(parts) != len(keys) or len({part.shape for part in parts}) != 1:
        return None
    return StackedLeaves(tuple(keys), (len(keys),) if len(keys) > 1 else (), tuple(parts))


def _fingerprints(side: Side, keys: Sequence[str]) -> Iterator[Fingerprint]:
    for key in keys:
        spec = side.leaves[key].spec
        if spec is not None and key in side.fingerprints and side.is_array(key):
            yield side.fingerprints[key][spec.dtype]
