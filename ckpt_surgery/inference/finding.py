"""Infer how a target follows from a source: by values first, then by names, then by what is left.

`infer_findings` decides in this order: leaves that are equal on both sides; leaves that hold the same
numbers; the rest by names, if values allow it; and at last, which leaves stay open.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.memory import without_collection
from ckpt_surgery.inference.expressions.formations import (
    COMPARED,
    Candidate,
    ConflictEntry,
    Evidence,
    Findings,
    Formation,
    Shared,
    Undecided,
    X,
)
from ckpt_surgery.inference.expressions.layouts import Layout
from ckpt_surgery.inference.hint_rules import with_rules
from ckpt_surgery.inference.hints import Hints, known_layouts
from ckpt_surgery.inference.keys.grids import layer_kinds
from ckpt_surgery.inference.names.by_names import match_by_names
from ckpt_surgery.inference.names.leftovers import MAYBE, leftovers
from ckpt_surgery.inference.names.matches import Match
from ckpt_surgery.inference.names.ties import choose_equal_copies, orient_symmetric_matrices
from ckpt_surgery.inference.values.by_values import match_by_values
from ckpt_surgery.inference.values.fingerprints import Fingerprint, kind_of
from ckpt_surgery.inference.values.name_checks import (
    check_names_by_values,
)
from ckpt_surgery.inference.values.reading import Side, equal_leaves

REORDERED = "it holds values of SRC in another order, and no known expression gives that order"
_ALONE = "nothing in SRC has its size and kind; a listing has no value for it"
_MOST_ROUNDS = 4
"""Maximum number of rounds in which names decide the remaining leaves."""
_MOST_OPERATIONS = 4
"""Maximum number of sums and products tried on the remaining leaves: each reads them once more."""


@without_collection()
def infer_findings(source: Side, target: Side, hints: Hints | None = None) -> Findings:
    """Infer how the target follows from the source; values are compared where both sides can be read.

    Raises PlanError for hints that these contradict.
    """
    search = _Search(source, target, hints or Hints())
    search.add(search.hints.formations)
    search.by_equal_keys()
    if search.values:
        search.by_values()
    search.by_names()
    search.rest()
    return search.result()


@dataclass
class _Search:
    """Decisions so far, and the steps that add to them."""

    source: Side
    target: Side
    hints: Hints
    formations: dict[str, Formation] = field(default_factory=dict)
    undecided: list[Undecided] = field(default_factory=list)
    from_target: list[str] = field(default_factory=list)
    reordered: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Leaves of the target that hold the elements of these leaves of the source in an unknown order."""
    operations: dict[str, None] = field(default_factory=dict)
    """Sums and products that some leaves show."""
    unclear: set[str] = field(default_factory=set)
    """Leaves of the target whose values fit in several ways, and names do not tell which."""
    shared: Shared = Shared.NONE
    held: set[str] = field(default_factory=set)
    """Leaves of the source that are not dropped, because an undecided leaf could be made of them."""

    @property
    def values(self) -> bool:
        """True if the values of both sides are known."""
        return self.source.read is not None and self.target.read is not None

    @property
    def _compared(self) -> bool:
        """True if the target has numbers of the source, so that other numbers are those of other leaves."""
        return self.shared in (Shared.SHARED, Shared.PARTLY)

    def add(self, formations: Iterable[Formation]) -> None:
        """Take these formations as decided."""
        self.formations.update((one.target, one) for one in formations)

    def by_equal_keys(self) -> None:
        """Decide leaves that are equal on both sides, with the same key."""
        for key in self._missing():
            here, there = self.target.leaves[key], self.source.leaves.get(key)
            if there is None or key in self.hints.claims:
                continue
            if self.values and self.target.repeats(key):
                continue  # names decide first: equal keys may be those of other layers
            if equal_leaves(self.source, there, self.target, here):
                evidence = Evidence.ONLY_LAYOUT if here.spec is None else Evidence.VALUES
                self.add([Formation(key, (key,), X, evidence)])

    def by_values(self) -> None:
        """Decide leaves by their values, and measure how much of the target is in the source."""
        different = self.hints.different(self.source, self.target)
        if self.hints.claims:  # leaves that are equal to those that hints claim come first
            self._by_values(self.hints.without_claimed(self.source))
        self._by_values(self.source)
        changed, unclear = orient_symmetric_matrices(self.source, self.target, self.formations.values())
        self.add(changed)
        self._withdraw(unclear)
        for key, sources in self.reordered.items():
            how = "same" if len(sources) == 1 else "stack"
            self.undecided.append(Undecided((key,), REORDERED, (Candidate(sources, "", 1.0, how),)))
        self.shared = self._share(different)
        if self._compared:
            self.hints.refuse_different(different)

    def _by_values(self, source: Side) -> None:
        """Decide remaining leaves by the values that this source has."""
        said = match_by_values(source, self.target, self.formations.keys() | self.unclear)
        copies = choose_equal_copies(source, self.target, said.formations, self.hints.formations)
        self.add((*said.formations, *copies.formations))
        self.reordered.update(said.reordered)
        self._withdraw(copies.undecided)

    def _withdraw(self, unclear: Sequence[Undecided]) -> None:
        """Leave open what values proposed, but names have to decide."""
        self.undecided += unclear
        for key in (key for one in unclear for key in one.targets):
            del self.formations[key]
            self.unclear.add(key)

    def _share(self, different: Collection[str]) -> Shared:
        """Measure how much of the target is in the source. `different`: decided leaves with other values.

        Leaves of one repeated value count for nothing, and neither do counters, masks and indices beside
        weights: a model that was just initialised has the same ones.
        """
        telling = _telling(self.target)
        if not telling and not _telling(self.source):
            return Shared.SHARED  # constants are all that there is on both sides
        weights = {key: sums for key, sums in telling.items() if _is_weight(self.target.dtype_of(key))}
        there = (self.formations.keys() - set(different)) | self.reordered.keys() | self.unclear
        sizes = {key: sums.size for key, sums in (weights or telling).items()}
        common = sum(size for key, size in sizes.items() if key in there)
        if not common:
            return Shared.UNRELATED
        return Shared.SHARED if 2 * common >= sum(sizes.values()) else Shared.PARTLY

    def by_names(self) -> None:
        """Decide leaves by names, checked against the values where there are some.

        They are asked again while that decides more; then about the layers of each kind by themselves.
        """
        unclear: Sequence[Undecided] = ()
        for _ in range(_MOST_ROUNDS):
            known = len(self.formations)
            unclear = self._decide_by_names(self.source.leaves.keys(), self.target.leaves.keys())
            if not unclear or len(self.formations) == known:
                break
        for kind in layer_kinds(self.source.grids):
            self._decide_by_names(kind, self._free(unclear))
        for kind in layer_kinds(self.target.grids):
            self._decide_by_names(self.source.leaves.keys(), kind & self._free(unclear))
        # `1 + w` of one norm is that of all norms, also of those that only values can pair, such as every
        # second layer.
        for operation in list(self.operations)[:_MOST_OPERATIONS]:
            used = self._used()
            unused = self.source.only(key for key in self.source.leaves if key not in used)
            said = match_by_values(unused, self.target.only(self._missing()), operation=operation)
            self.add(said.formations)
        for one in unclear:
            targets = tuple(key for key in one.targets if key not in self.formations)
            if targets and (not self.values or _possible(one)):  # else sizes do not fit: the rest decides
                self.undecided.append(replace(one, targets=targets))

    def _free(self, unclear: Iterable[Undecided]) -> set[str]:
        """Leaves of the target without any possible candidate."""
        held = {key for one in unclear if _possible(one) for key in one.targets}
        return set(self._missing()) - held

    def _decide_by_names(self, sources: AbstractSet[str], targets: AbstractSet[str]) -> Sequence[Undecided]:
        """Decide some of the leaves by names; return what names leave open."""
        asked = sources - self._used(), targets & set(self._missing())
        if not all(asked):
            return ()
        said = match_by_names(self.source, self.target, asked, self.formations.values(), self._known_layouts)
        decided = check_names_by_values(said, self.source, self.target, self._compared, self.operations)
        self.add(decided.formations)
        return decided.undecided

    @cached_property
    def _known_layouts(self) -> Sequence[tuple[Match, Layout]]:
        """Layouts of the leaves that hints decide."""
        return known_layouts(self.hints, self.source, self.target)

    def rest(self) -> None:
        """Give leaves that nothing fits the target's own value, if it has values."""
        open_keys = {key for one in self.undecided for key in one.targets}
        alone = [key for key in self._missing() if key not in open_keys]
        maybe, self.held = leftovers(self.source, self.target, self._dropped(), alone, self._compared)
        self.undecided += maybe
        known = {key for one in maybe for key in one.targets}
        constants: dict[object, list[str]] = {}  # values do not show what these were joined or cut into
        for key in self._dropped() if self._compared else ():
            constants.setdefault(_repeated(self.source, key), []).append(key)
        for key in (key for key in alone if key not in known):
            value = _repeated(self.target, key)
            if value is not None and value in constants:
                candidate = Candidate(tuple(constants[value]), "", 0.0, "concat")
                self.undecided.append(Undecided((key,), MAYBE, (candidate,)))
            elif self.values:
                self.from_target.append(key)
            else:
                self.undecided.append(Undecided((key,), _ALONE))

    def result(self) -> Findings:
        """All findings, in the order of the target."""
        order = {key: place for place, key in enumerate(self.target.leaves)}
        undecided = with_rules(self.undecided, self.source, self.target, self._compared)
        return Findings(
            tuple(self.source.leaves),
            tuple(self.target.leaves),
            tuple(sorted(self.formations.values(), key=lambda one: order[one.target])),
            (*self.hints.dropped, *self._dropped()),
            tuple(self.from_target),
            tuple(sorted(undecided, key=lambda one: order[one.targets[0]])),
            tuple(self._conflicts()),
            self.hints.given,
            self.shared,
        )

    def _missing(self) -> list[str]:
        known = self.formations.keys() | self.reordered.keys() | self.unclear
        return [key for key in self.target.leaves if key not in known]

    def _used(self) -> set[str]:
        inputs = (one.sources for one in self.formations.values() if one.evidence is not Evidence.HINT)
        return {key for sources in (self.hints.claims, *inputs, *self.reordered.values()) for key in sources}

    def _dropped(self) -> list[str]:
        """Leaves of the source that feed nothing, and could not be what is undecided."""
        candidates = (candidate.sources for one in self.undecided for candidate in one.candidates)
        used = self._used() | self.held
        used.update(*(one.sources for one in self.hints.formations), *candidates)
        return [key for key in self.source.leaves if key not in used]

    def _conflicts(self) -> Iterator[ConflictEntry]:
        """Leaves that names alone would make of other leaves than values do."""
        compared = {key: one.sources for key, one in self.formations.items() if one.evidence in COMPARED}
        if not self.values or not compared:
            return
        by_names = {one.target: one.sources for one in match_by_names(self.source, self.target).formations}
        for key, values in compared.items():
            names = by_names.get(key, values)
            if names != values and self._totals(names) != self._totals(values):
                yield ConflictEntry(key, values, names)

    def _totals(self, keys: Iterable[str]) -> list[object]:
        """Sums of leaves, or their keys: what has the same elements cannot contradict names."""
        known = self.source.fingerprints
        return [self.source.sums(key).total if key in known else key for key in keys]


def _telling(side: Side) -> dict[str, Fingerprint]:
    """The leaves that do not repeat one value."""
    own = {key: side.sums(key) for key in side.fingerprints}
    return {key: sums for key, sums in own.items() if not sums.constant}


def _repeated(side: Side, key: str) -> object:
    """The value that an array repeats, with its kind; None for other leaves."""
    return (kind_of(side.dtype_of(key)), side.limits([key])) if side.repeats(key) else None


def _is_weight(dtype: np.dtype[Any]) -> bool:
    """True for dtypes of weights, quantized ones included; False for those of counters, masks and indices."""
    return kind_of(dtype) in ("f", "c") or (kind_of(dtype) in ("i", "u") and dtype.itemsize == 1)


def _possible(one: Undecided) -> bool:
    """True if sizes allow any of the candidates."""
    return any(candidate.how for candidate in one.candidates)
