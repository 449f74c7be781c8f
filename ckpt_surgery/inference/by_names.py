"""What names say about leaves that values do not decide: formations, and what stays open."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.analogies import Analogies, Choice
from ckpt_surgery.inference.concepts import counted
from ckpt_surgery.inference.conventions import plausible
from ckpt_surgery.inference.families import families
from ckpt_surgery.inference.fits import Fit, fits
from ckpt_surgery.inference.formations import Candidate, Evidence, Formation, Undecided, Value
from ckpt_surgery.inference.layouts import Layout, expression
from ckpt_surgery.inference.leftovers import MOST_CANDIDATES
from ckpt_surgery.inference.members import member
from ckpt_surgery.inference.names import Names
from ckpt_surgery.inference.pairing import Open, Pair, paired
from ckpt_surgery.inference.possible_layouts import MOST, layouts
from ckpt_surgery.inference.subfamilies import Subfamily, subfamilies
from ckpt_surgery.inference.values import XS, X, cast

RESEMBLES = 0.6
"""The score of names from which it is said that they resemble each other, though nothing fits."""
_MOST_RESEMBLING = 4


@frozen()
class ByNames:
    """What names say. Leaves of the target that are in neither resemble nothing that is left."""

    formations: tuple[Formation, ...]
    undecided: tuple[Undecided, ...]


def found_by_names(
    sources: Iterable[Leaf],
    targets: Iterable[Leaf],
    all_sources: Iterable[Leaf] = (),
    all_targets: Iterable[Leaf] = (),
) -> ByNames:
    """What the names, shapes and dtypes of these leaves say about how the targets follow from the sources.

    `all_sources`, `all_targets`: all leaves of both checkpoints, where `sources` and `targets` are only some
    of them. They tell which numbers of keys are indices, and which words are rare. Each source leaf is used
    at most once.
    """
    left, all_left = _subfamilies(sources, all_sources)
    right, all_right = _subfamilies(targets, all_targets)
    names = Names.of(left, right, all_left, all_right)
    pairing = paired(left, right, lambda a, b: fits(a, b, counted), names)
    choices = [_choice(pair) for pair in pairing.decided]
    analogies = Analogies(choice for choice in choices if choice is not None)
    formations: list[Formation] = []
    undecided: list[Undecided] = []
    for pair, choice in zip(pairing.decided, choices, strict=True):
        decided = None if choice is None else _decided(choice, analogies)
        if choice is None or decided is None:
            undecided.append(_layouts_open(pair))
        else:
            formations += _formations(choice, *decided)
    undecided += [_names_open(one) for one in pairing.undecided]
    done = {id(subfamily) for pair in pairing.decided for subfamily in (pair.source, pair.target)}
    done |= {id(one.target) for one in pairing.undecided}
    undecided += _resembling(left, right, names, done)
    return ByNames(tuple(formations), tuple(undecided))


def _subfamilies(
    leaves: Iterable[Leaf], every: Iterable[Leaf]
) -> tuple[tuple[Subfamily, ...], tuple[Subfamily, ...]]:
    """The subfamilies of some leaves, and those of all of the checkpoint."""
    some = list(leaves)
    known = {leaf.key.text: leaf for leaf in [*every, *some]}
    found = families(known)
    return subfamilies(some, found), subfamilies(known.values(), found)


def _choice(pair: Pair) -> Choice | None:
    """The layouts of a pair whose indices fit in one way; None where it is open which index is which."""
    if len(pair.fits) > 1:
        return None
    return Choice(pair, pair.fits[0], tuple(_layouts(pair, pair.fits[0])))


def _layouts(pair: Pair, fit: Fit) -> list[Layout]:
    """The layouts from the stack of members to the whole; for `unstack`, these are the wrong way round."""
    if not pair.source.numeric:
        return layouts(pair.source.shape, pair.target.shape)[:1]
    part, whole = (pair.target, pair.source) if fit.how == "unstack" else (pair.source, pair.target)
    stacked = len(fit.lengths)
    return plausible(layouts((*fit.lengths, *part.shape), whole.shape, stacked), stacked)


def _decided(choice: Choice, analogies: Analogies) -> tuple[Layout, Evidence] | None:
    """The layout of a pair, and what decides it; None where nothing does."""
    if len(choice.layouts) == 1:
        return choice.layouts[0], Evidence.ONLY_LAYOUT
    if not choice.layouts or len(choice.layouts) >= MOST:
        return None
    if _same_key(choice):
        return choice.layouts[0], Evidence.ANALOGY
    layout = analogies.layout(choice)
    return None if layout is None else (layout, Evidence.ANALOGY)


def _same_key(choice: Choice) -> bool:
    """Whether the leaves have the same key and shape on both sides: then they are moved as they are."""
    pair = choice.pair
    same = pair.source.text == pair.target.text and pair.source.shape == pair.target.shape
    return same and choice.fit.how == "same"


def _formations(choice: Choice, layout: Layout, evidence: Evidence) -> Iterator[Formation]:
    pair, fit = choice.pair, choice.fit
    same_key = evidence is Evidence.ANALOGY and _same_key(choice)
    why = "the key and the shape are the same" if same_key else _caution(layout)
    for sources, targets in fit.pairs:
        for at, target in enumerate(targets):
            yield Formation(target, sources, _value(pair, fit, layout, at), evidence, why)


def _caution(layout: Layout) -> str:
    """What a layout that cuts or joins axes takes for granted."""
    if any(len(cut) > 1 for cut in layout.cuts) or any(count > 1 for count in layout.joins):
        return "the order inside of axes that are cut or joined is taken to be plain"
    return ""


def _value(pair: Pair, fit: Fit, layout: Layout, at: int) -> Value:
    """The expression of the target with this number among those that follow from one source."""
    if fit.how == "same":
        value = expression(layout)
    elif fit.how == "stack":
        value = expression(layout, XS, len(fit.lengths))
    else:
        value = member(layout.inverse(), X, 0, tuple(map(int, np.unravel_index(at, fit.lengths))))
    if pair.source.dtype == pair.target.dtype or pair.target.dtype is None:
        return value
    return cast(value, pair.target.dtype)


def _layouts_open(pair: Pair) -> Undecided:
    """A pair that names decide, but not how its axes go."""
    candidates = []
    for fit in pair.fits:
        for layout in _layouts(pair, fit):
            value = str(_value(pair, fit, layout, 0))
            candidates.append(Candidate(pair.source.keys, value, pair.score, fit.how))
    count = f"{MOST} or more" if len(candidates) >= MOST else str(len(candidates))
    if not candidates:
        why = f"names fit, but no layout takes {_shape(pair.source)} to {_shape(pair.target)}"
    else:
        why = f"names fit, but {count} layouts take {_shape(pair.source)} to {_shape(pair.target)}"
    return Undecided(pair.target.keys, why, tuple(candidates))


def _names_open(one: Open) -> Undecided:
    """A subfamily with candidates, none of which stands out."""
    candidates = [_candidate(pair) for pair in one.candidates]
    why = "several source leaves fit, and neither names nor values tell them apart"
    if len(candidates) == 1:
        why = (
            "several leaves of the target fit this source leaf, and neither names nor values tell them apart"
        )
    return Undecided(one.target.keys, why, tuple(candidates))


def _candidate(pair: Pair) -> Candidate:
    possible = _layouts(pair, pair.fits[0])
    value = str(_value(pair, pair.fits[0], possible[0], 0)) if possible else ""
    return Candidate(pair.source.keys, value, pair.score, pair.fits[0].how)


def _resembling(
    left: Sequence[Subfamily], right: Sequence[Subfamily], names: Names, done: set[int]
) -> Iterator[Undecided]:
    """Subfamilies of the target whose names resemble others that do not fit; without those that are done."""
    free_left = ["free" if id(subfamily) not in done else "source" for subfamily in left]
    free_right = ["free" if id(subfamily) not in done else "target" for subfamily in right]
    near: dict[int, list[tuple[float, int]]] = {}
    for score, a, b in names.alike(RESEMBLES, (free_left, free_right)):
        near.setdefault(b, []).append((score, a))
    for b in sorted(near):
        best = sorted(near[b], key=lambda found: -found[0])[:_MOST_RESEMBLING]
        keys = [(key, score) for score, a in best for key in left[a].keys]
        candidates = tuple(Candidate((key,), "", score, "") for key, score in keys[:MOST_CANDIDATES])
        why = "names resemble these, but neither sizes nor values fit"
        yield Undecided(right[b].keys, why, candidates)


def _shape(subfamily: Subfamily) -> str:
    return f"[{', '.join(map(str, subfamily.shape))}]"
