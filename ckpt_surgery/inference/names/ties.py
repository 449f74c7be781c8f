"""Decide by names, or by other leaves of the same kind, where values fit in several ways.

If leaves of the source are equal, such as a target network or an average that started as a copy, values do
not show which of them a leaf of the target is, and they differ in the next checkpoint. The values of a
symmetric matrix do not show whether it is transposed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ckpt_surgery.core.arrays import Shape
from ckpt_surgery.inference.expressions.formations import (
    Candidate,
    Evidence,
    Formation,
    Proposal,
    Undecided,
    Value,
    X,
)
from ckpt_surgery.inference.keys.grids import Grid, places_of
from ckpt_surgery.inference.names.analogies import Names, last_words, nearest
from ckpt_surgery.inference.names.matches import Match
from ckpt_surgery.inference.names.names import KeyNames
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
    if not choices:
        return Proposal((), ())
    sure = [*known, *(one for one in proposed if one.target not in choices)]
    chosen = {key: several[0] for key, several in choices.items() if len(several) == 1}
    open_choices = {key: several for key, several in choices.items() if key not in chosen}
    if open_choices:
        chosen |= _by_names(source, target, open_choices, sure)
    formations, undecided = [], []
    for one in proposed:
        if one.target not in choices:
            continue
        formation = _read_from(source, target, one, chosen.get(one.target, ()))
        if formation is not None:
            formations.append(replace(formation, why=formation.why or _NAMED))
        else:
            ways = [(keys, _read_from(source, target, one, keys)) for keys in choices[one.target]]
            candidates = tuple(_candidate(keys, each) for keys, each in ways)
            undecided.append(Undecided((one.target,), EQUAL, candidates))
    return Proposal(tuple(formations), tuple(undecided))


def _candidate(sources: Sources, formation: Formation | None) -> Candidate:
    if formation is None:
        return Candidate(sources, "", 0.0, "same")
    return Candidate(
        sources, str(formation.value), 0.0, "same", (lambda: [replace(formation, evidence=Evidence.HINT)],)
    )


def _choices(
    source: Side, target: Side, proposed: Iterable[Formation]
) -> Iterator[tuple[str, list[Sources]]]:
    """Alternative sources of each target, for targets with several."""
    equal: dict[tuple[object, ...], list[str]] = {}
    kind: dict[str, tuple[object, ...]] = {}
    for key in source.fingerprints:
        own = source.sums(key)
        if not own.constant:
            kind[key] = own.shape, own.total, source.dtype_of(key)
            equal.setdefault(kind[key], []).append(key)
    places = places_of(source.grids)
    for one in proposed:
        if all(len(equal.get(kind.get(key, ()), ())) < 2 for key in one.sources):
            continue
        first, *others = one.sources
        copies = []
        for key in equal.get(kind.get(first, ()), ()):
            grid, _ = places[key]
            if others and grid is places[first][0]:
                continue
            rest = [grid.members.get(places[other][1]) for other in others]
            if all(
                copy is not None and kind.get(copy) == kind.get(other)
                for copy, other in zip(rest, others, strict=True)
            ):
                copies.append((key, *(copy for copy in rest if copy is not None)))
        alternatives = list(dict.fromkeys([one.sources, *copies]))
        if len(alternatives) > 1:
            others_of_target = target.leaves.keys() - {one.target}
            unnamed = [keys for keys in alternatives if keys[0] not in others_of_target]
            yield one.target, unnamed or alternatives


def _by_names(
    source: Side, target: Side, choices: Mapping[str, Sequence[Sources]], sure: Sequence[Formation]
) -> dict[str, Sources]:
    """Choices among alternatives that names decide, by target."""
    names = KeyNames.of(
        source.alike(), target.alike(), decided=[(one.sources[0], one.target) for one in sure]
    )
    allowed = {key: {keys[0]: keys for keys in several} for key, several in choices.items()}
    first = {key for several in allowed.values() for key in several}
    if max(len(first), len(choices)) > MOST_NAMES:
        return {}

    def allowed_matches(a: Grid, b: Grid) -> tuple[Match, ...]:
        return (Match(a, b),) if a.keys[0] in allowed[b.keys[0]] else ()

    alone = names.alone(first, choices)
    sides = (  # as if all were of one size: values say which can be which
        [replace(name, grid=replace(name.grid, kind="", shape=())) for name in side]
        for side in (alone.sources, alone.targets)
    )
    pairs, _ = pair_names(names.among(*sides), allowed_matches)
    return {pair.target.keys[0]: allowed[pair.target.keys[0]][pair.source.keys[0]] for pair in pairs}


def _read_from(source: Side, target: Side, one: Formation, sources: Sources) -> Formation | None:
    """The same formation of other sources; None if there are none, or their elements differ."""
    formation = replace(one, sources=sources)
    same = sources == one.sources or (sources and equal_elements(formation, source, target))
    return formation if same else None


# --- matrices that equal their transpose ---------------------------------------------------------------


def orient_symmetric_matrices(
    source: Side, target: Side, known: Iterable[Formation]
) -> tuple[list[Formation], list[Undecided]]:
    """Orient symmetric matrices like those with the most last words in common; the rest stays open."""
    matrices = [one for one in known if one.value in (X, _TURNED)]
    symmetric = {
        one.target for one in matrices if one.evidence is not Evidence.HINT and _symmetric(target, one.target)
    }
    lying = [
        (_words(one), one.value)
        for one in matrices
        if one.target not in symmetric
        and (one.evidence is Evidence.HINT or min(_sides(target, one.target), default=0) > 1)
    ]
    changed: list[Formation] = []
    unclear: list[Undecided] = []
    for one in matrices:
        if one.target not in symmetric:
            continue
        values = nearest(_words(one), lying)
        if not values and all(value == X for _, value in lying):
            continue
        other = replace(one, value=X if one.value == _TURNED else _TURNED)
        if not equal_elements(other, source, target):
            continue
        if values == {other.value}:
            changed.append(other)
        elif values != {one.value}:
            ways = tuple(_candidate(one.sources, replace(one, value=value)) for value in (X, _TURNED))
            unclear.append(Undecided((one.target,), EITHER, ways))
    return changed, unclear


def _words(one: Formation) -> Names:
    return last_words(one.sources[0]), last_words(one.target)


def _sides(side: Side, key: str) -> Shape:
    """Shape of a matrix; empty for other leaves."""
    spec = side.leaves[key].spec
    return spec.shape if spec is not None and len(spec.shape) == 2 else ()


def _symmetric(side: Side, key: str) -> bool:
    """True if the sums of a matrix are the same along both axes; False for constants."""
    shape = _sides(side, key)
    if not shape or shape[0] != shape[1] or shape[0] < 2 or key not in side.fingerprints:
        return False
    own = side.sums(key)
    return not own.constant and np.array_equal(own.axes[0], own.axes[1])
