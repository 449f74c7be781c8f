"""Check proposals of names against values, where there are any, perhaps after a sum or a product.

Leaves of one repeated value prove nothing by themselves: names decide, where they are equal.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
)
from ckpt_surgery.inference.values.by_values import match_by_values
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.fingerprints import Limits
from ckpt_surgery.inference.values.reading import Side, equal_leaves

DIFFERENT = "names fit, but the values are not SRC's: take TARGET's or SRC's?"
_CLOSE = 1e-2
"""Largest relative error of a number that is guessed from rounded values."""
_LARGEST = 1 << 20
"""Largest number that is tried, or whose root is, as a factor or a divisor."""


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
    formations: list[Formation] = []
    left_open: list[Undecided] = []
    for one in proposal.undecided:
        decided = _decided(one, source, target, operations)
        formations += decided
        if not decided:
            left_open.append(one)
    for keys, row in _rows(proposal.formations).items():
        if all(_holds(one, source, target) for one in row):  # equal constants: their own key is enough
            own = keys == (row[0].target,) and target.is_array(row[0].target)
            formations += [replace(one, evidence=Evidence.VALUES) for one in row] if own else row
        elif changed := _after_arithmetic(row, source, target, operations):
            formations += changed
        elif shared or any(_overlap(one, source, target) for one in row):
            hinted = [replace(one, evidence=Evidence.HINT) for one in row]
            candidate = Candidate(keys, str(row[0].value), 1.0, "same", (hinted.copy,))
            left_open.append(Undecided(tuple(one.target for one in row), DIFFERENT, (candidate,)))
        else:
            formations += row
    return Proposal(tuple(formations), tuple(left_open))


def _rows(formations: Iterable[Formation]) -> dict[tuple[str, ...], list[Formation]]:
    """Formations by their sources: those of one stack together."""
    rows: dict[tuple[str, ...], list[Formation]] = {}
    for one in formations:
        rows.setdefault(one.sources, []).append(one)
    return rows


def _decided(
    undecided: Undecided, source: Side, target: Side, operations: dict[str, None]
) -> Sequence[Formation]:
    """The formations of leaves that names leave open, if just one candidate makes them after arithmetic."""
    ways, known = [], dict[str, None]()
    for candidate in {one.sources: one for one in undecided.candidates}.values():
        rows = _rows(one for one in candidate.formations if one.target in undecided.targets)
        made = [_after_arithmetic(row, source, target, known) for row in rows.values()]
        if sum(map(len, made)) == len(undecided.targets):
            ways.append([one for row in made for one in row])
    if len(ways) != 1:
        return ()
    operations.update(known)
    return ways[0]


def _holds(formation: Formation, source: Side, target: Side) -> bool:
    """True if a leaf of repeated values, or one without values, is what its name says."""
    if target.is_array(formation.target):
        return target.repeats(formation.target) and equal_elements(formation, source, target)
    here, there = source.leaves[formation.sources[0]], target.leaves[formation.target]
    return equal_leaves(source, here, target, there)


def _after_arithmetic(
    row: Sequence[Formation], source: Side, target: Side, known: dict[str, None]
) -> Sequence[Formation]:
    """The formations of leaves with the same sources after a sum or a product with one number, if any."""
    given, wanted = source.only(row[0].sources), target.only([one.target for one in row])
    for operation in _operations(source.limits(given.leaves), target.limits(wanted.leaves)):
        matches = match_by_values(given, wanted, operation=operation)
        if len(matches.formations) == len(row):
            known[operation] = None
            return matches.formations
    return ()


def _overlap(formation: Formation, source: Side, target: Side) -> bool:
    """True if a leaf shares slices with one of the leaves that it would be made of."""
    sums = _telling_slices(target, formation.target)
    return any(not sums.isdisjoint(_telling_slices(source, key)) for key in formation.sources)


def _telling_slices(side: Side, key: str) -> set[int]:
    """The sums of the slices of an array that occur once; none for constants."""
    known, telling = side.known(key), set[int]()
    for sums in known.axes if known is not None and not known.constant else ():
        values, counts = np.unique(sums, return_counts=True)
        telling.update(values[counts == 1].tolist())
    return telling


# --- sums and products with one number --------------------------------------------------------------------


def _operations(given: Limits, wanted: Limits) -> Iterator[str]:
    """Yield text to append to an array, such as ` * sqrt(64)` or ` + 1.0`, most likely first."""
    if given is None or wanted is None or given[0] == given[1] or wanted[0] == wanted[1]:
        return
    (low, high), (new_low, new_high) = given, wanted
    shift = new_high - high
    if abs((new_low - low) - shift) <= _CLOSE * max(map(abs, (low, high, new_low, new_high))):
        for number in dict.fromkeys([float(round(shift)), shift]):
            if number:
                yield f" + {number!r}" if number > 0 else f" - {-number!r}"
    for ends in ((new_low, new_high), (new_high, new_low)):
        old, new = max(zip((low, high), ends, strict=True), key=lambda pair: abs(pair[0]))
        factor = new / old
        errors = [abs(low * factor - ends[0]), abs(high * factor - ends[1])]
        if factor and max(errors) <= _CLOSE * abs(new):
            yield from _products(factor)


def _products(factor: float) -> Iterator[str]:
    """Products with a whole number, its root, the inverse of either, or the factor itself."""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    inverse = 1 / size
    numbers = (size, inverse, size * size, inverse * inverse)
    forms = ("{}{}.0", "({}1 / {})", "{}sqrt({})", "({}1 / sqrt({}))")
    for number, form in zip(numbers, forms, strict=True):
        whole = round(number) if number < 2 * _LARGEST else 0
        trivial = whole == 1 and not sign
        if 0 < whole <= _LARGEST and math.isclose(whole, number, rel_tol=_CLOSE) and not trivial:
            yield f" * {form.format(sign, whole)}"
    if factor != 1:
        yield f" * {factor!r}"
