"""Two checkpoints beside each other: what differs by description, as values, as rows and as JSON."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from ckpt_surgery.core.documents import JSON_SCHEMA, spec_json
from ckpt_surgery.core.folding import ShownKey, escaped
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report.leaves import describe, folded


@dataclass(frozen=True)
class ValueDifference:
    """How far the values of one leaf are apart. NaN in the same place counts as equal.

    What is no number (texts, dates, records) is compared by its bytes, and has no distances.
    """

    key: str
    equal: bool
    max_abs: float | None
    """max |a - b|; infinite where only one of the two is NaN, or they are different infinities."""
    max_rel: float | None
    """max |a - b| / |b|; infinite where only b is zero."""
    cosine: float | None
    """Of the two as vectors, over the elements finite in both. None where a norm is zero or overflows."""


@dataclass(frozen=True)
class Uncompared:
    """A leaf that both checkpoints have, described alike, whose values could not be compared."""

    key: str
    why: str
    """`it is an array of Python objects`."""


@dataclass(frozen=True)
class Change:
    """A leaf that both checkpoints have, described differently."""

    key: str
    a: Leaf
    b: Leaf
    what: tuple[str, ...]
    """Of `kind`, `shape`, `dtype`, `value` (strings, empty nodes and PRNG implementations), `container`
    (a list in one, a dict in the other)."""


@dataclass(frozen=True)
class Holds:
    """What the format of a checkpoint can tell of the structure of a tree."""

    format: str = ""
    empty: bool = True
    """Whether it has a place for None and empty containers."""
    lists: bool = True
    """Whether it tells lists from dicts; else whatever is no list may be one."""


@dataclass(frozen=True)
class Difference:
    """Checkpoint A against checkpoint B."""

    only_a: tuple[Leaf, ...]
    only_b: tuple[Leaf, ...]
    changed: tuple[Change, ...]
    common: int
    """Number of keys that both have."""
    values: tuple[ValueDifference, ...] | None = None
    """For every array that both have in one shape; None where values were not compared."""
    uncompared: tuple[Uncompared, ...] = ()
    """Where values were to be compared and could not be."""
    holds_a: Holds = Holds()
    holds_b: Holds = Holds()

    @property
    def known(self) -> bool:
        """Whether any difference was found."""
        described = bool(self.only_a or self.only_b or self.changed)
        return described or any(not value.equal for value in self.values or ())

    @property
    def different(self) -> bool:
        """Whether the two are not known to be the same: a difference was found, or could not be looked at."""
        return self.known or bool(self.uncompared)


@dataclass(frozen=True)
class DifferenceRow:
    """One line of a comparison."""

    side: str
    """`only in A`, `only in B` or `changed`."""
    key: str
    """Pattern, printable."""
    count: int
    before: str
    """What A has; empty for `only in B`."""
    after: str
    why: str = ""
    """Why a leaf can be in one of the two only; empty where nothing is known of that."""


def diff_trees(
    a: Mapping[str, Leaf], b: Mapping[str, Leaf], holds_a: Holds | None = None, holds_b: Holds | None = None
) -> Difference:
    """Two checkpoints by their listings alone: keys, kinds, containers, shapes, dtypes, and what strings say.

    `holds_a`, `holds_b`: what their formats can tell; None: everything.
    """
    holds_a, holds_b = holds_a or Holds(), holds_b or Holds()
    common = [key for key in a if key in b]
    changes = (Change(k, a[k], b[k], _changes(a[k], b[k], holds_a.lists, holds_b.lists)) for k in common)
    return Difference(
        only_a=tuple(leaf for key, leaf in a.items() if key not in b),
        only_b=tuple(leaf for key, leaf in b.items() if key not in a),
        changed=tuple(change for change in changes if change.what),
        common=len(common),
        holds_a=holds_a,
        holds_b=holds_b,
    )


def _changes(a: Leaf, b: Leaf, a_tells: bool, b_tells: bool) -> tuple[str, ...]:
    """`a_tells`, `b_tells`: whether what is no list is known to be a dict."""
    found = ["kind"] if a.kind != b.kind else []
    if a.spec is not None and b.spec is not None:
        found += ["shape"] if a.spec.shape != b.spec.shape else []
        found += ["dtype"] if a.spec.dtype != b.spec.dtype else []
    if a.kind == b.kind and (a.string, a.empty, a.prng_impl) != (b.string, b.empty, b.prng_impl):
        found.append("value")
    if a.key.sequences != b.key.sequences and any(
        one != other and (a_tells or one) and (b_tells or other) for one, other in _containers(a, b)
    ):
        found.append("container")
    return tuple(found)


def _containers(a: Leaf, b: Leaf) -> Sequence[tuple[bool, bool]]:
    """For each container around a leaf whether it is a list, in A and in B."""
    # A component may have slashes in it, so that keys of one text may have different numbers of components.
    return list(itertools.zip_longest(a.key.sequences, b.key.sequences, fillvalue=False))


def difference_rows(difference: Difference, *, full: bool = False) -> list[DifferenceRow]:
    """What differs by description, folded; keys of A first, then of B, then those of both."""
    only_a = [
        ShownKey(leaf.key.text, (), ("only in A", describe(leaf), "", why_missing(leaf, difference.holds_b)))
        for leaf in difference.only_a
    ]
    only_b = [
        ShownKey(leaf.key.text, (), ("only in B", "", describe(leaf), why_missing(leaf, difference.holds_a)))
        for leaf in difference.only_b
    ]
    changed = [ShownKey(c.key, (), ("changed", *_change_texts(c), "")) for c in difference.changed]
    return [row for part in (only_a, only_b, changed) for row in _difference_rows(part, full)]


def _difference_rows(entries: Sequence[ShownKey], full: bool) -> list[DifferenceRow]:
    rows = []
    for one in folded(entries, full):
        side, before, after, why = cast(tuple[str, str, str, str], entries[one.first].like)
        rows.append(DifferenceRow(side, one.key, one.count, before, after, why))
    return rows


def why_missing(leaf: Leaf, other: Holds) -> str:
    """Why the other checkpoint cannot have a leaf; empty where it could."""
    return "" if other.empty or leaf.kind is not LeafKind.EMPTY else f"{other.format} holds no empty nodes"


def _change_texts(change: Change) -> tuple[str, str]:
    a, b = _value_text(change.a), _value_text(change.b)
    if "container" not in change.what:
        return a, b
    kinds = [pair for pair in _containers(change.a, change.b) if pair[0] != pair[1]]
    names = [
        " and ".join("a list" if side else "a dict" for side in sides) for sides in zip(*kinds, strict=True)
    ]
    return f"{a} in {names[0]}", f"{b} in {names[1]}"


def _value_text(leaf: Leaf) -> str:
    return describe(leaf) if leaf.string is None else f'"{escaped(leaf.string)}"'


def difference_json(difference: Difference) -> dict[str, Any]:
    """The JSON document of `diff`: every key, unfolded; `values` is null where none were compared.

    `different` is false only where everything that was to be compared was, and is the same.
    """
    values = difference.values
    return {
        "schema": JSON_SCHEMA,
        "different": difference.different,
        "common": difference.common,
        "only_a": [_missing_json(leaf, difference.holds_b) for leaf in difference.only_a],
        "only_b": [_missing_json(leaf, difference.holds_a) for leaf in difference.only_b],
        "changed": [
            {"key": c.key, "what": list(c.what), "a": _side_json(c, c.a), "b": _side_json(c, c.b)}
            for c in difference.changed
        ],
        "values": None if values is None else [_value_difference_json(value) for value in values],
        "not_compared": None if values is None else [asdict(leaf) for leaf in difference.uncompared],
    }


def _missing_json(leaf: Leaf, other: Holds) -> dict[str, Any]:
    why = why_missing(leaf, other)
    return {"key": leaf.key.text, **_value_json(leaf)} | ({"why": why} if why else {})


def _side_json(change: Change, leaf: Leaf) -> dict[str, Any]:
    if "container" not in change.what:
        return _value_json(leaf)
    kinds = ["list" if sequence else "dict" for sequence in leaf.key.sequences]
    return {**_value_json(leaf), "containers": kinds}


def _value_json(leaf: Leaf) -> dict[str, Any]:
    listed = {"kind": leaf.kind.value, **spec_json(leaf)}
    return listed if leaf.string is None else {**listed, "string": leaf.string}


def _value_difference_json(value: ValueDifference) -> dict[str, Any]:
    return {
        "key": value.key,
        "equal": value.equal,
        "max_abs": value.max_abs,
        "max_rel": value.max_rel,
        "cosine": value.cosine,
    }
