"""Check proposals of names against values, where there are any, perhaps after a sum or a product.

Leaves of one repeated value prove nothing by themselves: they follow others of their family.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
)
from ckpt_surgery.inference.values.arithmetic import operations
from ckpt_surgery.inference.values.by_values import match_after_operation
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.pieces import Piece
from ckpt_surgery.inference.values.reading import Side, equal_leaves

DIFFERENT = "names fit, but the values are not SRC's: take TARGET's or SRC's?"


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
    rows: dict[tuple[str, ...], list[Formation]] = {}  # those of one stack together
    for one in proposal.formations:
        rows.setdefault(one.sources, []).append(one)
    formations: list[Formation] = []
    left_open = list(proposal.undecided)
    for keys, row in rows.items():
        if all(_holds(one, source, target) for one in row):  # equal constants: their own key is enough
            own = keys == (row[0].target,) and target.is_array(row[0].target)
            formations += [replace(row[0], evidence=Evidence.VALUES)] if own else row
        elif changed := _after_arithmetic(row, source, target, operations):
            formations += changed
        elif shared or any(_overlap(one, source, target) for one in row):
            hinted = [replace(one, evidence=Evidence.HINT) for one in row]
            candidate = Candidate(keys, str(row[0].value), 1.0, "same", (hinted.copy,))
            left_open.append(Undecided(tuple(one.target for one in row), DIFFERENT, (candidate,)))
        else:
            formations += row
    return Proposal(tuple(formations), tuple(left_open))


def _holds(formation: Formation, source: Side, target: Side) -> bool:
    """True if a leaf of repeated values, or one without values, is what its name says."""
    if target.is_array(formation.target):
        stacks = _stack_of(source, formation.sources), _stack_of(target, [formation.target])
        repeats = any(stack is not None and stack.constant for stack in stacks)
        return repeats and equal_elements(formation, source, target)
    here, there = source.leaves[formation.sources[0]], target.leaves[formation.target]
    return equal_leaves(source, here, target, there)


def _after_arithmetic(
    row: Sequence[Formation], source: Side, target: Side, known: dict[str, None]
) -> Sequence[Formation]:
    """The formations of leaves with the same sources after a sum or a product with one number, if any."""
    keys, wanted = row[0].sources, [one.target for one in row]
    given, targets = _stack_of(source, keys), _stack_of(target, wanted)
    if given is None or targets is None or given.size != targets.size or targets.constant:
        return ()
    for operation in operations(given.fingerprint, targets.fingerprint):
        matches = match_after_operation(operation, source, target, keys, wanted)
        if len(matches.formations) == len(wanted):
            known[operation] = None
            return matches.formations
    return ()


def _overlap(formation: Formation, source: Side, target: Side) -> bool:
    """True if a leaf shares slices with one of the leaves that it would be made of."""
    sums = _telling_slices(target, formation.target)
    return any(not sums.isdisjoint(_telling_slices(source, key)) for key in formation.sources)


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
    alike = len(parts) == len(keys) and len({part.shape for part in parts}) == 1
    return Piece(tuple(keys), (len(keys),) if len(keys) > 1 else (), tuple(parts)) if alike else None


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
