"""Check proposals of names against values, where there are any, perhaps after a sum or a product.

Leaves of one repeated value prove nothing by themselves: they follow others of their family.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
    X,
)
from ckpt_surgery.inference.values.arithmetic import operations
from ckpt_surgery.inference.values.by_values import match_after_operation
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.pieces import Piece, stack_of
from ckpt_surgery.inference.values.reading import Side, equal_leaves

DIFFERENT = "names fit, but the values are not SRC's: take TARGET's or SRC's?"
ANY_ORDER = "all elements are equal, so any order gives the same"


def check_names_by_values(
    proposal: Proposal, source: Side, target: Side, shared: bool, operations: dict[str, None]
) -> Proposal:
    """Keep the formations by names that values allow.

    `operations`: gets the sums and products with one number, as the text after an array in an expression.
    `shared`: True if the target has any numbers of the source, so that a leaf with the same name and other
    numbers needs a decision. Otherwise names decide by themselves, as for a target that was just initialised;
    but not where parts of the leaf are equal.
    """
    if target.read is None or source.read is None:
        return proposal
    check = _Check(source, target, operations)
    formations: list[Formation] = []
    left_open: list[Undecided] = []
    for row in _rows(proposal.formations):
        confirmed = check.confirmed(row)
        targets = tuple(one.target for one in row)
        if confirmed is None and (
            shared or not check.reordered.isdisjoint(targets) or any(map(check.overlaps, row))
        ):
            hinted = [replace(one, evidence=Evidence.HINT) for one in row]
            candidate = Candidate(row[0].sources, str(row[0].value), 1.0, "same", (hinted.copy,))
            left_open.append(Undecided(targets, DIFFERENT, (candidate,)))
        else:
            formations += row if confirmed is None else confirmed
    for undecided in proposal.undecided:
        decided = check.decided(undecided)
        formations += decided
        done = {one.target for one in decided}
        rest = tuple(key for key in undecided.targets if key not in done)
        if rest:
            left_open.append(replace(undecided, targets=rest))
    return Proposal(tuple(formations), tuple(left_open))


def _rows(formations: Iterable[Formation]) -> list[list[Formation]]:
    """Group formations by their sources: those of one stack together."""
    rows: dict[tuple[str, ...], list[Formation]] = {}
    for one in formations:
        rows.setdefault(one.sources, []).append(one)
    return list(rows.values())


@dataclass(frozen=True)
class _Check:
    source: Side
    target: Side
    operations: dict[str, None]
    """Operations that fitted so far, in order."""
    reordered: set[str] = field(default_factory=set)
    """Leaves that hold the source's values after arithmetic, in an unknown order."""

    def confirmed(self, row: Sequence[Formation]) -> list[Formation] | None:
        """The formations of leaves with the same sources; None if values contradict them."""
        if not all(map(self._holds, row)):
            return self._after_arithmetic(row)
        # A leaf that is there under its own key, with the same repeated value, was compared.
        return [
            replace(one, evidence=Evidence.VALUES)
            if one.sources == (one.target,) and one.value == X and self.target.is_array(one.target)
            else one
            for one in row
        ]

    def _holds(self, formation: Formation) -> bool:
        """True if a leaf of repeated values, or one without values, is what its name says."""
        if self.target.is_array(formation.target):
            stacks = _stack_of(self.source, formation.sources), _stack_of(self.target, [formation.target])
            repeats = any(stack is not None and stack.constant for stack in stacks)
            return repeats and equal_elements(formation, self.source, self.target)
        here, there = self.source.leaves[formation.sources[0]], self.target.leaves[formation.target]
        return equal_leaves(self.source, here, self.target, there)

    def overlaps(self, formation: Formation) -> bool:
        """True if a leaf shares slices with one of the leaves that it would be made of."""
        sums = _telling_slices(self.target, formation.target)
        return any(not sums.isdisjoint(_telling_slices(self.source, key)) for key in formation.sources)

    def decided(self, undecided: Undecided) -> list[Formation]:
        """Formations that values decide where names do not; of constants only if just the order is open."""
        ways: dict[tuple[str, ...], Candidate] = {}
        for candidate in undecided.candidates:
            ways.setdefault(candidate.sources, candidate)
        for candidate in ways.values():
            wanted = [one for one in candidate.formations if one.target in undecided.targets]
            rows = [self._in_any_order(row, len(ways) == 1) for row in _rows(wanted)]
            if rows and all(rows):
                return [formation for row in rows for formation in row or ()]
        return []

    def _in_any_order(self, row: Sequence[Formation], constants: bool) -> list[Formation] | None:
        """The formations of leaves with the same sources, however their elements are arranged."""
        if constants and all(same_constant(self.source, one.sources, self.target, one.target) for one in row):
            return [replace(one, evidence=Evidence.VALUES, why=ANY_ORDER) for one in row]
        return self._after_arithmetic(row)

    def _after_arithmetic(self, row: Sequence[Formation]) -> list[Formation] | None:
        """The formations with a sum or a product of one number; None if there are none."""
        keys, wanted = row[0].sources, [one.target for one in row]
        given, targets = _stack_of(self.source, keys), _stack_of(self.target, wanted)
        if given is None or targets is None or given.size != targets.size or targets.constant:
            return None
        for operation in operations(given.fingerprint, targets.fingerprint):
            matches = match_after_operation(operation, self.source, self.target, keys, wanted)
            if len(matches.formations) == len(wanted):
                self.operations[operation] = None
                return list(matches.formations)
            self.reordered.update(matches.reordered)
        return None


def _telling_slices(side: Side, key: str) -> set[int]:
    """The sums of the slices of an array that occur once; none for constants."""
    known = _stack_of(side, [key])
    telling: set[int] = set()
    for sums in known.fingerprint.axes if known is not None and not known.constant else ():
        values, counts = np.unique(sums, return_counts=True)
        telling.update(map(int, values[counts == 1]))
    return telling


def _stack_of(side: Side, keys: Sequence[str]) -> Piece | None:
    """The stack of these leaves, by their own dtypes; None if they differ in shape, or have no numbers."""
    parts = [side.sums(key) for key in keys if key in side.fingerprints and side.is_array(key)]
    return stack_of(keys, parts) if len(parts) == len(keys) else None


def constants_of_families(
    source: Side, target: Side, decided: Mapping[str, Formation]
) -> Iterator[Formation]:
    """Yield formations of leaves that are decided by those of other members of their family.

    A member is decided by the others, where these agree: its sources are the leaves with its own indices in
    the families of the others' sources. All of them have to hold the same repeated value as the leaf itself.
    """
    grids = {grid.template: grid for grid in source.grids}
    for family in target.grids:
        origins = {}
        for indices, key in family.members.items():
            if key in decided:
                places = [source.places[name] for name in decided[key].sources]
                own = all(numbers == indices for _, numbers in places)
                templates = tuple(grid.template for grid, _ in places)
                origins[decided[key].value, templates if own else ()] = decided[key]
        if len(origins) != 1:
            continue
        [((_, templates), known)] = origins.items()
        for indices, key in family.members.items() if templates else ():
            names = tuple(grids[template].members.get(indices, "") for template in templates)
            if key not in decided and all(names) and same_constant(source, names, target, key):
                formation = replace(known, target=key, sources=names)
                if equal_elements(formation, source, target):
                    yield formation


def same_constant(source: Side, keys: Iterable[str], target: Side, key: str) -> bool:
    """True if the target leaf and all these source leaves are constant and equal."""
    if key not in target.fingerprints or not target.is_array(key):
        return False
    wanted = target.sums(key)
    given = (source.after_cast(name, target.dtype_of(key)) for name in keys)
    return wanted.constant and all(
        sums is not None and sums.constant and sums.low == wanted.low for sums in given
    )
