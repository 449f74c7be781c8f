"""The JSON document of `diff`."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ckpt_surgery.core.documents import (
    NAMED,
    UNSET,
    Document,
    Keyed,
    Number,
    Versioned,
    keyed,
    shape_and_dtype,
)
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.report import differences
from ckpt_surgery.report.renames import Proof


@dataclass(frozen=True, kw_only=True)
class Side(Document):
    """A leaf in one of two checkpoints."""

    kind: Annotated[LeafKind, NAMED]
    """Kind of the leaf."""
    shape: tuple[int, ...] | None
    """Lengths of its axes."""
    dtype: str | None
    """Type of its elements."""
    string: str | None = UNSET
    """Value of a string."""
    type: str | None = UNSET
    """Type of an object of a tree in memory that no checkpoint holds."""
    containers: tuple[Literal["list", "dict"], ...] | None = UNSET
    """Kinds of the containers around it, where these differ."""


@dataclass(frozen=True, kw_only=True)
class OnlyLeaf(Side):
    """A leaf that only one of the two has."""

    key: str
    """Its key."""
    components: tuple[str, ...]
    """The components of the key, of which one may have a `/` in it."""
    why: str | None = UNSET
    """The reason why the format of the other cannot hold it."""


@frozen()
class ChangedLeaf(Keyed):
    """A leaf that differs in more than values."""

    what: tuple[differences.Part, ...]
    """The parts that differ."""
    a: Side
    """The leaf in A."""
    b: Side
    """The leaf in B."""


@dataclass(frozen=True, kw_only=True)
class RenamedLeaf(Document):
    """A leaf of A and one of B that are most likely the same under two names."""

    a: Keyed
    """The leaf in A."""
    b: Keyed
    """The leaf in B."""
    proof: Annotated[Proof, NAMED]
    """Evidence: both have the same stored bytes, all values are equal, or only names, shape and dtype
    suggest it."""


@dataclass(frozen=True, kw_only=True)
class DiffDocument(Versioned):
    """`diff`."""

    different: bool
    """Whether the two may differ."""
    common: int
    """Number of keys that both have."""
    only_a: tuple[OnlyLeaf, ...]
    """Leaves that B lacks."""
    only_b: tuple[OnlyLeaf, ...]
    """Leaves that A lacks."""
    changed: tuple[ChangedLeaf, ...]
    """Leaves that differ in more than values."""
    renamed: tuple[RenamedLeaf, ...]
    """Leaves of `only_a` and `only_b` that are most likely the same under two names."""
    rtol: Number
    """Relative tolerance."""
    atol: Number
    """Absolute tolerance."""
    values: tuple[differences.ComparedLeaf, ...] | None
    """With `--values`: every array that both have in one shape; else null."""
    not_compared: tuple[differences.NotCompared, ...] | None
    """With `--values`: leaves that could not be compared."""
    warnings: tuple[str, ...]
    """Possible mistakes in A or B, such as bfloat16 that is kept as uint16."""


def diff_document(difference: differences.Difference) -> DiffDocument:
    """The JSON document of a comparison: every key; `different` unless all was compared and is equal."""
    return DiffDocument.from_attributes(
        difference,
        only_a=tuple([_only(leaf, difference.holds_b) for leaf in difference.only_a]),
        only_b=tuple([_only(leaf, difference.holds_a) for leaf in difference.only_b]),
        changed=tuple(map(_changed, difference.changed)),
        renamed=tuple([RenamedLeaf(a=keyed(r.a), b=keyed(r.b), proof=r.proof) for r in difference.renamed]),
        rtol=difference.tolerance.rtol,
        atol=difference.tolerance.atol,
        not_compared=None if difference.values is None else difference.uncompared,
    )


def _only(leaf: Leaf, other: differences.Holds) -> OnlyLeaf:
    why = differences.why_missing(leaf, other) or UNSET
    return OnlyLeaf(key=leaf.key.text, components=leaf.key.names, **_side(leaf), why=why)


def _changed(change: differences.Change) -> ChangedLeaf:
    sides = []
    for leaf in (change.a, change.b):
        kinds: Any = tuple(["list" if is_list else "dict" for is_list in leaf.key.sequences])
        sides.append(Side(**_side(leaf), containers=kinds if "container" in change.what else UNSET))
    return ChangedLeaf(change.a.key.text, change.a.key.names, change.what, *sides)


def _side(leaf: Leaf) -> dict[str, Any]:
    """The members of `Side` that say what a leaf is."""
    shape, dtype = shape_and_dtype(leaf)
    texts = {"string": leaf.string, "type": leaf.type}
    said = {name: text for name, text in texts.items() if text is not None}
    return {"kind": leaf.kind, "shape": shape, "dtype": dtype, **said}
