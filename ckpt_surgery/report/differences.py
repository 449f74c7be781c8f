"""Differences of two checkpoints: the value that holds them, its rows, and its words."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from ckpt_surgery.core.documents import Keyed, Number
from ckpt_surgery.core.folding import ShownKey, escaped
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.summary import Represented, Summary, SummaryRow, warning_lines
from ckpt_surgery.core.text import brief, number_of
from ckpt_surgery.report.distances import EXACT, Tolerance
from ckpt_surgery.report.leaves import describe, folded, times_text
from ckpt_surgery.report.renames import Proof, Renamed

Part = Literal["kind", "shape", "dtype", "value", "container"]
"""Properties that can differ between the descriptions of a leaf in A and in B."""


@frozen()
class ComparedLeaf(Keyed):
    """Distance between the values of a leaf."""

    equal: bool
    """Whether all elements are equal, within the tolerances."""
    max_abs: Number
    """max |a - b|."""
    max_rel: Number
    """max |a - b| / |b|."""
    cosine: Number | None
    """Cosine of the angle between the two, without NaN and infinity that are the same in both; null where a
    norm is zero, or where NaN or infinity stand against something else."""


@frozen()
class NotCompared(Keyed):
    """A leaf whose values could not be compared."""

    why: str
    """The reason."""


@dataclass(frozen=True)
class Change:
    """A leaf with different descriptions in the two checkpoints."""

    key: str
    """Text of the leaf's key."""
    a: Leaf
    """The leaf in A."""
    b: Leaf
    """The leaf in B."""
    what: tuple[Part, ...]
    """The parts that differ, among `kind`, `shape`, `dtype`, `value` (of strings, empty nodes and PRNG
    implementations) and `container` (a list in one, a dict in the other)."""

    __repr__ = brief


@dataclass(frozen=True)
class Holds:
    """Parts of a tree's structure that the format of a checkpoint can express."""

    format: str = ""
    """Name of the format."""
    empty: bool = True
    """Whether the format has None and empty containers, and tells scalars from arrays without axes.

    Each format has either both or neither."""
    lists: bool = True
    """Whether the format distinguishes lists from dicts; if not, a dict of a listing may stand for a list."""


EVERYTHING = Holds()


@dataclass(frozen=True, repr=False)
class Difference(Represented):
    """Checkpoint A against checkpoint B."""

    only_a: tuple[Leaf, ...]
    """Leaves that B lacks."""
    only_b: tuple[Leaf, ...]
    """Leaves that A lacks."""
    changed: tuple[Change, ...]
    """Leaves of both that differ, but for their values."""
    common: int
    """Number of keys that both have."""
    values: tuple[ComparedLeaf, ...] | None = None
    """One for every array that both have in the same shape; None where values were not compared.

    NaN in the same place counts as equal. Distances are infinite where only one of two elements is NaN, where
    they are different infinities, and the relative one where only b is zero."""
    uncompared: tuple[NotCompared, ...] = ()
    """Leaves whose values could not be compared, though this was asked for."""
    holds_a: Holds = EVERYTHING
    holds_b: Holds = EVERYTHING
    tolerance: Tolerance = EXACT
    """Within which values count as the same."""
    renamed: tuple[Renamed, ...] = ()
    """Leaves of `only_a` and `only_b` that are most likely the same under two names."""
    scalars: tuple[str, ...] = ()
    """Texts of keys with a scalar in one, and in the other, whose format has none, an array without axes."""
    warnings: tuple[str, ...] = ()
    """Sentences about A and B that hold whatever is compared."""

    @property
    def sides(self) -> Iterator[tuple[str, tuple[Leaf, ...], Holds]]:
        """The leaves that only A has, then those of B alone; each with what the other can express."""
        yield "only in A", self.only_a, self.holds_b
        yield "only in B", self.only_b, self.holds_a

    @property
    def known(self) -> bool:
        """Whether any difference was found, besides what a format cannot hold."""
        missing = any(not why_missing(leaf, other) for _, leaves, other in self.sides for leaf in leaves)
        return bool(self.changed) or missing or any(not value.equal for value in self.values or ())

    @property
    def different(self) -> bool:
        """Whether the two may differ: a difference was found, or some values could not be compared."""
        return self.known or bool(self.uncompared)

    def _summary(self) -> Summary:
        """Differences, as they are printed."""
        about = f"same: {same_text(self)}{format_note(self)}"
        if self.different:
            word = "different" if self.known else "not known to be the same"
            about = f"{word}: {', '.join(count_texts(self))}; {number_of(self.common, 'leaf')} in both"
        rows = []
        for row in difference_rows(self):
            # Of distances the largest absolute one: all of them are longer than the column, which is cut.
            why = row.why.partition(APART)[0] if row.word == "values" else row.why
            rows.append(replace(row, what=times_text(row.count, row.what), why=why))
        return Summary(about, (), rows, warning_lines(self.warnings))


def diff_trees(
    a: Mapping[str, Leaf], b: Mapping[str, Leaf], holds_a: Holds = EVERYTHING, holds_b: Holds = EVERYTHING
) -> Difference:
    """Compare two listings, but no values of arrays. `holds_a`, `holds_b`: what the formats can express."""
    common = [key for key in a if key in b]
    scalars = [key for key in common if _is_scalar_of_both(a[key], b[key], holds_a, holds_b)]
    kinds = set(scalars)
    changes = (
        Change(key, a[key], b[key], _changes(a[key], b[key], holds_a.lists, holds_b.lists, key in kinds))
        for key in common
    )
    return Difference(
        only_a=tuple(leaf for key, leaf in a.items() if key not in b),
        only_b=tuple(leaf for key, leaf in b.items() if key not in a),
        changed=tuple(change for change in changes if change.what),
        common=len(common),
        holds_a=holds_a,
        holds_b=holds_b,
        scalars=tuple(scalars),
    )


def _is_scalar_of_both(a: Leaf, b: Leaf, holds_a: Holds, holds_b: Holds) -> bool:
    """Whether one is a scalar, and the other the array without axes that its format has instead."""
    sides = {a.kind: holds_a.empty, b.kind: holds_b.empty}
    is_pair = sides.keys() == {LeafKind.SCALAR, LeafKind.ARRAY}
    return is_pair and not sides[LeafKind.ARRAY] and a.spec is not None and a.spec.shape == ()


def _changes(a: Leaf, b: Leaf, a_tells: bool, b_tells: bool, is_scalar: bool) -> tuple[Part, ...]:
    """The parts that differ. `a_tells` and `b_tells`: whether the format distinguishes lists from dicts.

    `is_scalar`: the kinds differ only because a format has no scalars.
    """
    parts: list[Part] = ["kind"] if a.kind != b.kind and not is_scalar else []
    if a.spec is not None and b.spec is not None:
        parts += ["shape"] if a.spec.shape != b.spec.shape else []
        parts += ["dtype"] if a.spec.dtype != b.spec.dtype else []
    # What a description tells of a leaf that is no array.
    values = ((leaf.string, leaf.empty, leaf.prng_impl, leaf.type) for leaf in (a, b))
    if a.kind == b.kind and len(set(values)) > 1:
        parts.append("value")
    if a.key.sequences != b.key.sequences and any(
        one != other and (a_tells or one) and (b_tells or other) for one, other in _containers(a, b)
    ):
        parts.append("container")
    return tuple(parts)


def _containers(a: Leaf, b: Leaf) -> Sequence[tuple[bool, bool]]:
    """Whether each container around a leaf is a list, in A and in B, from the outermost to the innermost."""
    # A component may have slashes in it, so that keys of one text may have different numbers of components.
    return list(itertools.zip_longest(a.key.sequences, b.key.sequences, fillvalue=False))


def difference_rows(difference: Difference, *, full: bool = False) -> list[SummaryRow]:
    """The differences, folded: keys only in A, only in B, in both, under two names; then those of values.

    Words are `only in A`, `only in B`, `changed`, `renamed`, or `renamed?` where that is a guess, `values`
    and `not compared`. `what` says what one leaf is, and what it was in A; `why`, why the format of the other
    cannot hold it, how far values are apart, or why they could not be compared.
    """

    def entry(leaf: Leaf, word: str, what: str, why: str = "", *sources: str) -> ShownKey:
        return ShownKey(leaf.key.printed, sources, (word, what, why))

    moved = {leaf.key.text for one in difference.renamed for leaf in (one.a, one.b)}
    parts = []
    for word, only, other in difference.sides:
        left = (leaf for leaf in only if leaf.key.text not in moved)
        parts.append([entry(leaf, word, describe(leaf), why_missing(leaf, other)) for leaf in left])
    parts.append([entry(c.a, "changed", " → ".join(_change_texts(c))) for c in difference.changed])
    pairs = []
    for one in difference.renamed:
        word = "renamed?" if one.proof is Proof.NAMES else "renamed"
        pairs.append(entry(one.b, word, describe(one.a), "", one.a.key.printed))
    rows = []
    for entries in (*parts, pairs):
        for line in folded(entries, full):
            word, what, why = cast(tuple[str, str, str], entries[line.first].like)
            rows.append(SummaryRow(word, " → ".join([*line.sources, line.key]), what, why, line.count))
    rows += _value_rows(difference.values or (), full)
    return rows + [SummaryRow("not compared", escaped(one.key), "", one.why) for one in difference.uncompared]


_INDEX = re.compile(r"\d+")


def _value_rows(values: Iterable[ComparedLeaf], full: bool) -> Iterator[SummaryRow]:
    """Rows of the leaves with other values, those with the largest distances first; `full`: each on its own.

    Leaves whose keys differ in indices only have their largest distances, and the smallest cosine.
    """
    unequal = (value for value in values if not value.equal)
    alike: dict[Any, list[ComparedLeaf]] = {}
    for n, value in enumerate(sorted(unequal, key=lambda value: (-value.max_abs, -value.max_rel))):
        alike.setdefault(n if full else _INDEX.sub("0", value.key), []).append(value)
    for group in alike.values():
        patterns = folded([ShownKey(value.key) for value in group], full)
        if len(patterns) == 1:
            yield SummaryRow("values", patterns[0].key, "", distance_text(group), len(group))
        else:  # their indices are no product of sets
            yield from (SummaryRow("values", escaped(one.key), "", distance_text([one])) for one in group)


def why_missing(leaf: Leaf, other: Holds) -> str:
    """Reason why the other checkpoint cannot hold a leaf; empty if it can."""
    return "" if other.empty or leaf.kind is not LeafKind.EMPTY else f"{other.format} holds no empty nodes"


def _change_texts(change: Change) -> list[str]:
    """The leaf in A and in B, with the kinds of the containers around it where these differ."""
    sides = (change.a, change.b)
    texts = [describe(one) if one.string is None else f'"{escaped(one.string)}"' for one in sides]
    if "container" not in change.what:
        return texts
    kinds = [pair for pair in _containers(*sides) if pair[0] != pair[1]]
    names = (" and ".join("a list" if side else "a dict" for side in one) for one in zip(*kinds, strict=True))
    return [f"{text} in {name}" for text, name in zip(texts, names, strict=True)]


def count_texts(difference: Difference, of_guesses: str = "") -> list[str]:
    """`2 only in A`, `1 changed`, …; `of_guesses` is added where only names say that leaves are the same."""
    unequal = sum(not value.equal for value in difference.values or ())
    guessed = sum(one.proof is Proof.NAMES for one in difference.renamed)
    moved = len(difference.renamed)
    counts = []
    for word, leaves, other in difference.sides:
        empty = sum(bool(why_missing(leaf, other)) for leaf in leaves)
        about = f" ({number_of(empty, 'empty node')}, which {other.format} does not hold)" if empty else ""
        counts.append((len(leaves) - moved, f"{word}{about}"))
    counts += [
        (moved - guessed, "renamed"),
        (guessed, f"renamed, to go by names and shapes{of_guesses}"),
        (len(difference.changed), "changed"),
        (unequal, f"with other values{tolerance_note(difference.tolerance)}"),
        (len(difference.uncompared), "not compared"),
    ]
    return [f"{count:,} {what}" for count, what in counts if count]


def same_text(difference: Difference) -> str:
    """`keys, kinds, shapes, dtypes and values (164 leaves)`: what was compared and is the same."""
    keys = "" if difference.only_a or difference.only_b else "keys, "
    kinds = "" if difference.scalars or not keys else "kinds, "
    values = "" if difference.values is None else " and values"
    return f"{keys}{kinds}shapes, dtypes{values} ({number_of(difference.common, 'leaf')})"


APART = "  "
"""Between the distances of a text, as between columns."""


def distance_text(values: Sequence[ComparedLeaf]) -> str:
    """The largest distances, and the smallest cosine."""
    cosines = [value.cosine for value in values if value.cosine is not None]
    cosine = f"{min(cosines):.8f}" if len(cosines) == len(values) else "-"
    most_abs, most_rel = (max(getattr(one, name) for one in values) for name in ("max_abs", "max_rel"))
    return APART.join((f"max abs {most_abs:.4g}", f"max rel {most_rel:.4g}", f"cosine {cosine}"))


def tolerance_note(tolerance: Tolerance) -> str:
    """` (rtol 1e-05, atol 0)`; nothing where only equal values are the same."""
    return "" if tolerance.exact else f" (rtol {tolerance.rtol:g}, atol {tolerance.atol:g})"


def format_note(difference: Difference) -> str:
    """A remark on what one of the formats cannot express, although the values are the same."""
    holds = difference.holds_a if not difference.holds_a.empty else difference.holds_b
    empty = len(difference.only_a) + len(difference.only_b)
    counts = {"scalar": len(difference.scalars), "empty node": empty}
    lacking = " and ".join(number_of(count, noun) for noun, count in counts.items() if count)
    return f"; {holds.format} has no place for {lacking}" if lacking else ""
