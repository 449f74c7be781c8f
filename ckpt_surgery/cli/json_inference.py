"""The JSON documents of `infer` and `invert` as models."""

from typing import Literal

from pydantic import Field

from ckpt_surgery.cli.json_documents import Document, Versioned

EvidenceName = Literal[
    "values",
    "values after arithmetic",
    "names, the only layout that fits",
    "names, layout as of the others",
]


class Given(Document):
    """What was given."""

    path: str
    """As it was given."""
    leaves: int
    """Number of its leaves."""


class InferredRule(Document):
    """A rule of the draft."""

    rule: str = Field(pattern=r"^rules\[\d+\]$")
    """Which one."""
    line: int
    """Line of the recipe, from 1."""
    claims: int
    """Number of leaves that it claims."""
    outputs: int
    """Number of leaves that it makes."""
    evidence: EvidenceName | None
    """What decided; null for rules that drop leaves, or take the target's values."""
    why: str
    """More about it; empty where there is no more."""


class InferredLeaf(Document):
    """A leaf of the target that is decided."""

    key: str
    """Its key."""
    sources: list[str]
    """Leaves of the source, in the order of `xs`."""
    value: str
    """The expression that makes it: of `x`, or of `xs`."""
    evidence: EvidenceName
    """What decided."""
    why: str
    """More about it; empty where there is no more."""


class InferredCandidate(Document):
    """A way that a leaf could be made."""

    sources: list[str]
    """Leaves of the source."""
    value: str
    """The expression; empty where none is known."""
    score: float
    """How much the names resemble each other, from 0 to 1."""
    how: Literal["same", "stack", "unstack", "split", "concat", ""]
    """How leaves belong together; empty where sizes do not fit."""


class OpenLeaves(Document):
    """Leaves of the target that are not decided."""

    targets: list[str]
    """Their keys."""
    why: str
    """Why not."""
    candidates: list[InferredCandidate]
    """What they could be made of."""


class ConflictEntry(Document):
    """A leaf whose values are not those of the leaf that its name says."""

    target: str
    """Its key."""
    by_values: list[str]
    """The leaves that hold its values, which it is made of."""
    by_names: list[str]
    """The leaves that its name says."""


class InferDocument(Versioned):
    """`infer`."""

    source: Given
    """SRC."""
    target: Given
    """TARGET."""
    values: Literal["shared", "partly", "unrelated", "none"]
    """How many of the target's elements are in the source, in any order: at least half (`shared`), less
    (`partly`), none (`unrelated`); `none` where values were not compared. Leaves of one repeated value count
    for nothing."""
    needs_target: bool
    """Whether the recipe needs `--target`."""
    recipe: str
    """The draft."""
    rules: list[InferredRule]
    """Its rules."""
    leaves: list[InferredLeaf]
    """What is decided."""
    undecided: list[OpenLeaves]
    """What is not."""
    conflicts: list[ConflictEntry]
    """Where values and names disagree."""
    dropped: list[str]
    """Leaves of the source that feed nothing."""
    from_target: list[str]
    """Leaves that keep the target's values."""
    problems: list[str]
    """Why the draft does not do what was found: a mistake of this program, please report it."""
    warnings: list[str]
    """What may be wrong with SRC or TARGET, such as bfloat16 that is kept as uint16."""
