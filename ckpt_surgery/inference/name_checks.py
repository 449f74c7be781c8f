"""What names say, where there are values: whether these allow it, perhaps after a sum or a product."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ckpt_surgery.inference.arithmetic import operations
from ckpt_surgery.inference.by_names import ByNames
from ckpt_surgery.inference.comparing import equal_elements
from ckpt_surgery.inference.constants import same_constant
from ckpt_surgery.inference.fingerprints import Fingerprint, kind_of
from ckpt_surgery.inference.formations import Candidate, Evidence, Formation, Undecided, Value
from ckpt_surgery.inference.marginals import Marginals, layouts_between
from ckpt_surgery.inference.members import member
from ckpt_surgery.inference.reading import fingerprint_of
from ckpt_surgery.inference.sides import Side, equal_values
from ckpt_surgery.inference.stacks import Stack
from ckpt_surgery.inference.values import XS, X, around, cast

DIFFERENT = "names fit, but the values are not SRC's: take TARGET's or SRC's?"


@dataclass(frozen=True)
class Checked:
    """What values leave of what names say."""

    formations: tuple[Formation, ...]
    open: tuple[Undecided, ...]
    operations: tuple[str, ...] = ()
    """The sums and products with one number that were found, as they follow an array in an expression."""


def checked(said: ByNames, source: Side, target: Side, shared: bool) -> Checked:
    """What names say, as far as values allow it.

    `shared`: whether the target has any numbers of the source, so that a leaf with the same name and other
    numbers needs a decision. Otherwise names decide by themselves, as for a target that was just initialised;
    but not where parts of the leaf are equal.
    """
    if target.read is None or source.read is None:
        return Checked(said.formations, said.undecided)
    check = _Check(source, target)
    formations: list[Formation] = []
    left_open: list[Undecided] = []
    for row in _rows(said.formations):
        made = check.made(row)
        targets = [one.target for one in row]
        related = not check.reordered.isdisjoint(targets) or any(map(check.overlaps, row))
        if made is None and (shared or related):
            candidates = tuple(Candidate(one.sources, str(one.value), 1.0, "same") for one in row[:1])
            left_open.append(Undecided(tuple(targets), DIFFERENT, candidates))
        else:
            formations += row if made is None else made
    for one in said.undecided:
        found = check.decided(one)
        formations += found
        done = {formation.target for formation in found}
        if not done.issuperset(one.targets):
            left_open.append(replace(one, targets=tuple(key for key in one.targets if key not in done)))
    return Checked(tuple(formations), tuple(left_open), tuple(check.operations))


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
    operations: dict[str, None] = field(default_factory=dict)
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
        if same_constant(self.source, one.sources, self.target, one.target):
            return True
        repeats = _repeats(self.source, one.sources) or _repeats(self.target, [one.target])
        if repeats and equal_elements(one, self.source, self.target):
            return True
        if self.target.is_array(one.target):
            return False
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
            if candidate.how == "same" and len(candidate.sources) == len(one.targets):
                pairs = list(zip(candidate.sources, one.targets, strict=True))
                found = [self._single(key, name, candidate, only) for name, key in pairs]
                if all(found):
                    return [formation for formations in found if formations for formation in formations]
            elif candidate.how == "stack" and len(one.targets) == 1:
                made = self._single(one.targets[0], candidate.sources, candidate, only)
                if made:
                    return made
            elif candidate.how == "unstack" and len(candidate.sources) == 1:
                made = self._after_arithmetic(candidate.sources, one.targets)
                if made:
                    return made
        return []

    def _single(
        self, key: str, sources: str | tuple[str, ...], candidate: Candidate, only: bool
    ) -> list[Formation] | None:
        names = (sources,) if isinstance(sources, str) else sources
        if only and candidate.value and same_constant(self.source, names, self.target, key):
            why = "all elements are equal, so any order gives the same"
            return [Formation(key, names, Value(candidate.value), Evidence.VALUES, why)]
        return self._after_arithmetic(names, [key])

    def _after_arithmetic(self, keys: tuple[str, ...], wanted: Sequence[str]) -> list[Formation] | None:
        """The formations with a sum or a product of one number; None if there are none."""
        given, asked = _stack_of(self.source, keys), _stack_of(self.target, wanted)
        if given is None or asked is None or given.size != asked.size or asked.constant:
            return None
        dtype = self.target.leaves[wanted[0]].spec
        assert dtype is not None, "only arrays have fingerprints"
        if kind_of(dtype.dtype) != "f":
            return None
        leaves = [self.source.leaves[key] for key in keys]
        inner = around(XS, "stack(", ")") if given.lengths else X
        for operation in operations(given.fingerprint, asked.fingerprint):
            value = around(inner, "(", f"{operation})")
            fingerprint = fingerprint_of(value, leaves, self.source, dtype.dtype)
            if fingerprint.total != asked.total:
                continue
            for layout in layouts_between(Marginals(fingerprint), asked.fingerprint):
                stacked = len(given.lengths)
                places = zip(np.ndindex(*asked.lengths), wanted, strict=True)
                values = [(key, member(layout, value, stacked, place, array=True)) for place, key in places]
                self.operations[operation] = None
                return [self._formation(key, keys, one, dtype.dtype) for key, one in values]
            self.reordered.update(wanted)
        return None

    def _formation(
        self, key: str, keys: tuple[str, ...], value: Value, dtype: "np.dtype[np.generic]"
    ) -> Formation:
        value = Value(_bare(value.text), value.numbers)
        specs = [self.source.leaves[name].spec for name in keys]
        if any(spec is None or spec.dtype != dtype for spec in specs):
            value = cast(value, dtype)
        return Formation(key, keys, value, Evidence.ARITHMETIC)


def _bare(text: str) -> str:
    """An expression without parentheses around all of it."""
    depths = itertools.accumulate({"(": 1, ")": -1}.get(letter, 0) for letter in text)
    around_all = text.startswith("(") and list(depths).index(0) == len(text) - 1
    return text[1:-1] if around_all else text


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


def _stack_of(side: Side, keys: Sequence[str]) -> Stack | None:
    """The stack of these leaves, by their own dtypes; None where they are not alike, or no numbers."""
    parts = list(_fingerprints(side, keys))
    if len(parts) != len(keys) or len({part.shape for part in parts}) != 1:
        return None
    return Stack(tuple(keys), (len(keys),) if len(keys) > 1 else (), tuple(parts))


def _fingerprints(side: Side, keys: Sequence[str]) -> Iterator[Fingerprint]:
    for key in keys:
        spec = side.leaves[key].spec
        if spec is not None and key in side.fingerprints and side.is_array(key):
            yield side.fingerprints[key][spec.dtype]
