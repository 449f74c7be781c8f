"""Decide by names, or by other leaves of the same kind, where values fit in several ways.

If leaves of the source are equal, such as a target network or an average that started as a copy, values do
not show which of them a leaf of the target is, and they differ in the next checkpoint. The values of a
symmetric matrix do not show whether it is transposed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

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
from ckpt_surgery.inference.keys.grids import Grid
from ckpt_surgery.inference.names.analogies import Names, last_words, nearest
from ckpt_surgery.inference.names.matches import Match
from ckpt_surgery.inference.names.names import KeyNames, Name
from ckpt_surgery.inference.names.pairing import MOST_NAMES, pair_names
from ckpt_surgery.inference.values.comparing import equal_elements
from ckpt_surgery.inference.values.reading import Side

EQUAL = "several leaves of SRC hold the same values, and names do not decide between them"
_NAMED = "other leaves of SRC hold the same values; its name decides"
EITHER = "its values fit as they are and transposed, and similar leaves do not agree"
_TURNED = Value("x.T")

Sources = tuple[str, ...]


def choose_equal_copies(
    source: Side, target: Side, proposed: Collection[Formation], known: Iterable[Formation] = ()
) -> Proposal:
    """Decide by names which of several equal leaves each formation reads.

    `known`: formations that are decided already, which teach words.
    """
    choices = dict(_choices(source, target, proposed))
    sure = [*known, *(one for one in proposed if one.target not in choices)]
    chosen = {key: several[0] for key, several in choices.items() if len(several) == 1}
    if len(chosen) < len(choices):
        several = {key: copies for key, copies in choices.items() if key not in chosen}
        chosen |= _by_names(source, target, several, sure)
    formations, undecided = [], []
    for one in proposed:
        if one.target in chosen:
            formations.append(replace(one, sources=chosen[one.target], why=one.why or _NAMED))
        elif one.target in choices:
            candidates = tuple(_candidate(replace(one, sources=keys)) for keys in choices[one.target])
            undecided.append(Undecided((one.target,), EQUAL, candidates))
    return Proposal(tuple(formations), tuple(undecided))


def _candidate(one: Formation) -> Candidate:
    hinted = [replace(one, evidence=Evidence.HINT)]
    return Candidate(one.sources, str(one.value), 0.0, "same", (hinted.copy,))


def _choices(
    source: Side, target: Side, proposed: Iterable[Formation]
) -> Iterator[tuple[str, list[Sources]]]:
    """Alternative sources of each target that has several: without those that are named as other targets.

    Leaves are equal if the sums of all slices along every axis are.
    """
    kind: dict[str, object] = {}
    equal: dict[object, list[str]] = {}
    for key in source.fingerprints:
        own = source.sums(key)
        if not own.constant:
            kind[key] = own.shape, own.total, source.dtype_of(key), *(axis.tobytes() for axis in own.axes)
            equal.setdefault(kind[key], []).append(key)
    for one in proposed:
        first, *others = one.sources
        copies = {one.sources: None}
        for key in equal.get(kind.get(first), ()):
            grid = source.places[key][0]
            copy = key, *(grid.members.get(source.places[other][1], "") for other in others)
            elsewhere = not others or grid is not source.places[first][0]
            if elsewhere and all(
                kind.get(a, a) == kind.get(b, b) for a, b in zip(copy, one.sources, strict=True)
            ):
                copies[copy] = None
        if len(copies) > 1:
            free = [keys for keys in copies if keys[0] == one.target or keys[0] not in target.leaves]
            yield one.target, free or list(copies)


def _by_names(
    source: Side, target: Side, choices: Mapping[str, Sequence[Sources]], sure: Sequence[Formation]
) -> dict[str, Sources]:
    """Choices among alternatives that names decide, by target."""
    allowed = {key: {keys[0]: keys for keys in several} for key, several in choices.items()}
    first = {key for several in allowed.values() for key in several}
    if max(len(first), len(choices)) > MOST_NAMES:
        return {}

    def allowed_matches(a: Grid, b: Grid) -> tuple[Match, ...]:
        return (Match(a, b),) if a.keys[0] in allowed[b.keys[0]] else ()

    names = KeyNames.of(source, target, decided=[(one.sources[0], one.target) for one in sure])
    alone = names.alone(first, choices)
    sides = (  # as if all were of one size: values say which can be which
        [Name(replace(grid, kind="", shape=()), said) for grid, said in side]
        for side in (alone.sources, alone.targets)
    )
    pairs, _ = pair_names(names.among(*sides), allowed_matches)
    return {target: allowed[target][source] for source, target in (pair.keys for pair in pairs)}


# --- matrices that equal their transpose ---------------------------------------------------------------


def orient_symmetric_matrices(
    source: Side, target: Side, known: Iterable[Formation]
) -> tuple[list[Formation], list[Undecided]]:
    """Orient symmetric matrices like those with the most last words in common; the rest stays open."""
    lying: list[tuple[Names, Value]] = []
    symmetric: list[Formation] = []
    for one in known:
        if one.value in (X, _TURNED):
            spec, hinted = target.leaves[one.target].spec, one.evidence is Evidence.HINT
            if not hinted and _symmetric(target, one.target):
                symmetric.append(one)
            elif hinted or (spec is not None and len(spec.shape) == 2 and min(spec.shape) > 1):
                lying.append((_words(one), one.value))
    changed: list[Formation] = []
    unclear: list[Undecided] = []
    for one in symmetric:
        values = nearest(_words(one), lying) or {X, *(value for _, value in lying)}
        other = replace(one, value=X if one.value == _TURNED else _TURNED)
        if values == {one.value} or not equal_elements(other, source, target):
            continue
        if values == {other.value}:
            changed.append(other)
        else:
            ways = tuple(_candidate(replace(one, value=value)) for value in (X, _TURNED))
            unclear.append(Undecided((one.target,), EITHER, ways))
    return changed, unclear


def _words(one: Formation) -> Names:
    return last_words(one.sources[0]), last_words(one.target)


def _symmetric(side: Side, key: str) -> bool:
    """True if the sums of a square matrix are the same along both axes; False for constants."""
    if key not in side.fingerprints:
        return False
    own = side.sums(key)
    square = len(own.shape) == 2 and own.shape[0] == own.shape[1] > 1
    return square and not own.constant and np.array_equal(own.axes[0], own.axes[1])
