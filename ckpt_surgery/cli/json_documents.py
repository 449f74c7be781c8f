"""The JSON documents of the commands as models: their JSON Schemas and docs/json.md are made from these."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Document(BaseModel):
    """A mapping with these members and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Versioned(Document):
    """What every document starts with."""

    version: Literal[1] = Field(alias="schema")
    """Version of the documents; a change that programs could notice raises it."""


class Recipe(Document):
    """The recipe of a plan."""

    path: str
    """As it was given, or `(recipe)`."""
    sha256: str
    """Digest of its text."""
    hooks_sha256: str | None = None
    """Digest of its hooks, where it has some."""


class Param(Document):
    """A param of the recipe."""

    value: Any
    """Text, a number, true or false, or a list of those."""
    origin: Literal["set", "config", "default"]
    """What gave the value."""
    entry: str | None
    """Path in the config, where that gave it."""
    note: str | None
    """The config's file, or why it gave nothing."""


class SourceInput(Document):
    """A checkpoint that is read."""

    path: str
    """As it was given."""
    format: str
    """Name of its format."""
    step: int | None
    """Step inside a CheckpointManager's directory."""
    item: str | None
    """Item of that step."""
    leaves: int
    """Number of its leaves."""


class Summary(Document):
    """Totals of a plan: numbers of leaves by fate, and bytes."""

    kept: int
    """Leaves that are in the result as they were."""
    renamed: int
    """Leaves with another key."""
    transformed: int
    """Leaves with another value."""
    defaulted: int
    """Leaves with the target's own value."""
    added: int
    """Leaves that are made of no other."""
    dropped: int
    """Leaves of sources that are not in the result."""
    bytes_out: int
    """Size of all arrays of the result."""
    bytes_linked: int
    """Of these, what is linked."""
    bytes_copied: int
    """Of these, what is copied as it is stored."""
    bytes_computed: int
    """Of these, what is computed."""
    bytes_dead: int
    """Bytes in linked files that no leaf uses."""
    bytes_linkable: int
    """Of what is copied, the part that is copied only because programs may rewrite its files in place."""
    bytes_through: int
    """Bytes that pass the machines which carry out the plan: what they read, and what they write."""
    peak_memory: int
    """Predicted working set, without the interpreter and libraries."""


class Keyed(Document):
    """Something about a leaf."""

    key: str
    """Its key: the components with `/` between them."""
    components: list[str]
    """The components of the key, of which one may have a `/` in it."""


class PlannedLeaf(Keyed):
    """A leaf of the result."""

    fate: Literal["kept", "renamed", "transformed", "defaulted", "added"]
    """What becomes of it."""
    sources: list[str]
    """The leaves that it is made of, as `source:key`."""
    rule: str | None
    """The rule that did the work, such as `rules[0]`: the first that changed the value, else the key."""
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


class DroppedLeaf(Document):
    """A leaf of a source that is not in the result."""

    source: str
    """The leaf, as `source:key`."""
    components: list[str]
    """The components of its key."""
    rule: str | None
    """The rule that dropped it."""
    why: str
    """The reason, such as `drop` or `not in target`."""


class DroppedItem(Document):
    """An item beside the one that is read, which the result does not get."""

    source: str
    """Name of the source."""
    item: str
    """Name of the item."""
    kind: Literal["arrays", "json", "other"]
    """What it holds."""
    bytes: int
    """Size of its files."""
    why: str
    """The reason, such as `DST has no items`."""


class Replacement(Document):
    """What a run replaces at its destination."""

    path: str
    """The checkpoint, or the step whose items are replaced."""
    items: list[str]
    """Names of the items that are replaced; empty where there are none."""
    stays: list[str]
    """Names of the items of the step that stay."""


class VerifiedRun(Document):
    """How a result was read back before it was published."""

    mode: Literal["none", "fast", "full"]
    """As `--verify` said."""
    bytes_read: int
    """Decoded bytes that were read back."""
    bytes_not_read: int
    """Decoded bytes of which at most a few of each chunk were read."""


class SharedFile(Document):
    """A file that the result shares with a source."""

    file: str
    """Its name in the result."""
    source: str
    """Its path in the source."""
    size: int
    """Bytes."""
    mode: str
    """How it is shared."""


class CompanionFile(Document):
    """A config or tokenizer file copied beside the weights."""

    file: str
    """Its name in the result."""
    source: str
    """Its path beside the source."""
    size: int
    """Bytes."""


class OverflowedLeaf(Document):
    """A leaf of the result with permitted NaN or infinity (`allow_nonfinite`, `on_overflow='inf'`)."""

    key: str
    """Its key."""
    count: int
    """Elements that are not finite although what they were made of is."""


class PlanDocument(Versioned):
    """`plan`, `apply`, `convert`, and `commit` where it publishes something."""

    recipe: Recipe
    """The recipe."""
    params: dict[str, Param]
    """Its params by name."""
    sources: dict[str, SourceInput]
    """The checkpoints that are read, by name."""
    summary: Summary
    """Totals."""
    leaves: list[PlannedLeaf]
    """Every leaf of the result."""
    dropped: list[DroppedLeaf]
    """Every leaf of the sources that is not in the result."""
    dropped_items: list[DroppedItem]
    """Every item of the steps that are read which is not in the result."""
    replaces: Replacement | None
    """What is replaced; null where nothing is."""
    warnings: list[str]
    """What is allowed and may still be a mistake."""
    restorable_by: dict[str, str]
    """Libraries that can restore the result, and from which version on."""
    misfits: dict[str, str | None] | None = None
    """Of `plan plan.json`: for each source why it no longer fits the saved plan; null where it fits."""
    seconds: float | None = None
    """Wall time; where the plan was carried out, as the members that follow."""
    destination: str | None = None
    """What was written."""
    verified: VerifiedRun | None = None
    """How it was verified."""
    shared: list[SharedFile] | None = None
    """Files that the result shares with other checkpoints."""
    companions: list[CompanionFile] | None = None
    """Config and tokenizer files copied beside the weights."""
    overflowed: list[OverflowedLeaf] | None = None
    """Leaves with NaN or infinity that the recipe permitted."""


class ProblemEntry(Document):
    """A problem."""

    code: str = Field(pattern=r"^CS\d{3}$")
    """Its code: `explain CODE` says what it means."""
    message: str
    """What is wrong."""
    hint: str | None
    """What to do about it."""
    path: str | None
    """The recipe; null where it is not about a place of one."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""


class Error(Document):
    """Why a command failed."""

    exit_code: int
    """The exit code."""
    problems: list[ProblemEntry]
    """Everything that is wrong."""


class ErrorDocument(Versioned):
    """Any command that fails."""

    error: Error
    """Why."""


class WarningEntry(Document):
    """What a recipe seems to forget."""

    message: str
    """What may go wrong."""
    hint: str | None
    """What to do about it."""
    path: str
    """The recipe."""
    line: int | None
    """Line, from 1."""
    column: int | None
    """Column, from 1."""


class LintDocument(Versioned):
    """`lint --format json`."""

    recipes: list[str]
    """The recipes that were checked."""
    error: Error | None = None
    """Their problems, if there are any."""
    warnings: list[WarningEntry] = []
    """What they seem to forget; leaves the exit code as it is."""
