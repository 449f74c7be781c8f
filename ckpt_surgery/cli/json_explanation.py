"""The JSON document of `explain` as a model."""

from typing import Literal

from pydantic import Field

from ckpt_surgery.cli.json_documents import Document, DroppedLeaf, Keyed, PlannedLeaf, Versioned


class ExplainedSource(Document):
    """A leaf that a leaf of the result is made of."""

    source: str
    """The leaf, as `source:key`."""
    components: list[str]
    """The components of its key."""
    kind: Literal["array", "scalar", "string", "prng_key", "empty", "object"]
    """What it is."""
    shape: list[int] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""


class ExplainedClaim(Document):
    """A leaf that a rule claimed."""

    source: str
    """The leaf, as `source:key`, with its key before the pass."""
    bound: dict[str, str]
    """What the groups of the regex matched, by name or number, and the values of the `for` variables."""


class ExplainedStage(Document):
    """What one rule did on the way to a leaf of the result."""

    pass_: str | None = Field(alias="pass")
    """Name of the rule's pass, if it has one, and several passes were run."""
    rule: str
    """The rule, such as `rules[0]`."""
    line: int | None
    """Its line; null where the recipe was given as data."""
    keys: list[str]
    """Keys after the pass."""
    claims: list[ExplainedClaim]
    """What the rule claimed for these keys."""
    looked_up: list[str]
    """Other leaves that the values are computed from, as `source:key`."""
    values: list[str]
    """Expressions of the values; none where values stay as they are."""
    variables: dict[str, str]
    """Values of the `for` variables of an `add` rule."""


class ExplainedFunction(Document):
    """Functions that are applied side by side, or one."""

    name: str
    """Name of the function, or the operator."""
    count: int
    """How many of them there are."""
    spec: str
    """What each of them gives: `bf16[4,8]`."""


class ExplainedResult(Keyed):
    """How a leaf of the result is made."""

    fate: Literal["kept", "renamed", "transformed", "defaulted", "added"]
    """What becomes of it."""
    sources: list[ExplainedSource]
    """The leaves that it is made of."""
    rule: str | None
    """The rule that did the work; null where a policy decided."""
    line: int | None
    """Line of that rule."""
    rules: list[str]
    """The rules that changed the leaf, from the first pass to the last."""
    shape: list[int] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""
    transfer: Literal["link", "copy", "compute"]
    """How its bytes get into the result."""
    bytes: int
    """Size of the array."""
    stages: list[ExplainedStage]
    """The rules on the way, from the first pass to the last."""
    operations: list[ExplainedFunction]
    """The functions of its value, from the leaves on."""


class ExplainedAttempt(Document):
    """A `match` rule that claimed a leaf of a source, or nearly did."""

    rule: str
    """The rule, such as `rules[0]`."""
    line: int | None
    """Its line; null where the recipe was given as data."""
    match: str
    """Its regex."""
    outcome: Literal["claimed", "later", "when", "source", "beginning", "end"]
    """Claimed it; comes after the rule that did; its `when` is not true; reads another source; matches only
    the beginning or the end of the key."""
    key: str
    """The key, or the part of it, that the rule matches."""


class ExplainedUse(ExplainedSource):
    """What becomes of a leaf of a source."""

    outputs: list[str]
    """Keys of the leaves of the result that are made of it."""
    why_dropped: str | None
    """Why it is not in the result, such as `drop` or `not in target`; null where it is."""
    rule: str | None
    """The rule that dropped it."""
    line: int | None
    """Line of that rule."""
    attempts: list[ExplainedAttempt]
    """Rules that claimed it, or nearly did."""


class ExplainDocument(Versioned):
    """`explain RECIPE SRC... KEY`."""

    key: str
    """The key that was asked for."""
    recipe: str
    """The recipe's path, or `(recipe)`."""
    sources: dict[str, str]
    """Paths of the checkpoints that are read, by name."""
    made: ExplainedResult | None
    """The leaf of the result with this key."""
    used: list[ExplainedUse]
    """The leaves of sources with this key."""
    leaves: list[PlannedLeaf]
    """Where the key is a subtree: the leaves of the result that are in it, or come from it."""
    dropped: list[DroppedLeaf]
    """Where the key is a subtree: the leaves of sources in it that are not in the result."""
