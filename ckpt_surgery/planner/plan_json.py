"""The JSON document of a plan, with one entry for every leaf."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ckpt_surgery.core.documents import NAMED, UNSET, Document, Keyed, Versioned, shape_and_dtype
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.language.loading import ParamSource
from ckpt_surgery.planner.plan import Dropped, DroppedItem, Fate, Plan, Step, Transfer

DROPPED = "dropped"
"""The fate of a source leaf that feeds no output, beside those of `Fate`."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Document):
    """The recipe of a plan."""

    path: str
    """As it was given, or `(recipe)`."""
    sha256: str
    """Digest of its text."""
    hooks_sha256: str | None = UNSET
    """Digest of its hooks, where it has some."""


@dataclass(frozen=True, kw_only=True)
class Param(Document):
    """A param of the recipe."""

    value: Any
    """Text, a number, true or false, or a list of those."""
    origin: Annotated[ParamSource, NAMED]
    """Origin of the value."""
    entry: str | None
    """Path in the config, where that gave it."""
    note: str | None
    """The config's file, or why it gave nothing."""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
    """Size of all arrays of the result: shape × itemsize. The sum of the next three."""
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
    bytes_served: int
    """Of what is copied, the part that an object store copies itself, from object to object."""
    bytes_read: int
    """Decoded bytes that are read from the inputs to compute, and stored bytes that are copied."""
    bytes_through: int
    """Bytes that pass the machines which carry out the plan: what they read, and what they write."""
    peak_memory: int
    """Predicted working set, without the interpreter and libraries."""


@frozen()
class PlannedLeaf(Keyed):
    """A leaf of the result."""

    fate: Annotated[Fate, NAMED]
    """Its fate."""
    sources: tuple[str, ...]
    """The leaves that it is made of, as `source:key`."""
    rule: str | None
    """The rule that did the work, such as `rules[0]`: the first that changed the value, else the key."""
    line: int | None
    """Line of that rule."""
    rules: tuple[str, ...]
    """The rules that changed the leaf, from the first pass to the last."""
    shape: tuple[int, ...] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""
    transfer: Annotated[Transfer, NAMED]
    """Transfer of its bytes into the result."""


@frozen()
class DroppedLeaf(Document):
    """A leaf of a source that is not in the result."""

    source: str
    """The leaf, as `source:key`."""
    components: tuple[str, ...]
    """The components of its key."""
    rule: str | None
    """The rule that dropped it."""
    why: str
    """The reason, such as `drop` or `not in target`."""


@dataclass(frozen=True, kw_only=True)
class Replacement(Document):
    """Content of the destination that a run replaces."""

    path: str
    """The checkpoint, or the step whose items are replaced."""
    items: tuple[str, ...]
    """Names of the items that are replaced; empty where there are none."""
    stays: tuple[str, ...]
    """Names of the items of the step that stay."""


@dataclass(frozen=True, kw_only=True)
class PlannedDocument(Versioned):
    """A plan before it is carried out."""

    recipe: Recipe
    """The recipe."""
    params: Mapping[str, Param]
    """Its params by name."""
    sources: Mapping[str, SourceInput]
    """The checkpoints that are read, by name."""
    summary: Summary
    """Totals."""
    leaves: tuple[PlannedLeaf, ...]
    """Every leaf of the result."""
    dropped: tuple[DroppedLeaf, ...]
    """Every leaf of the sources that is not in the result."""
    dropped_items: tuple[DroppedItem, ...]
    """Every item of the steps that are read which is not in the result."""
    replaces: Replacement | None
    """Content that is replaced; null where nothing is."""
    warnings: tuple[str, ...]
    """Sentences about what is allowed and may still be a mistake."""
    restorable_by: Mapping[str, str]
    """Libraries that can restore the result, and from which version on."""


def counts(plan: Plan) -> dict[str, int]:
    """Number of leaves by fate, `dropped` last."""
    counted = Counter(step.fate for step in plan.steps)
    return {fate.value: counted[fate] for fate in Fate} | {DROPPED: len(plan.dropped)}


def planned_document(plan: Plan) -> PlannedDocument:
    """The JSON document of a plan: every leaf has an entry of its own. Sizes are in bytes."""
    hooks, gone = UNSET if plan.hooks_sha256 is None else plan.hooks_sha256, plan.replaces
    return PlannedDocument.from_attributes(
        plan,
        recipe=Recipe(path=plan.recipe, sha256=plan.recipe_sha256, hooks_sha256=hooks),
        params={one.name: Param.from_attributes(one) for one in plan.params},
        sources={one.name: SourceInput.from_attributes(one) for one in plan.inputs},
        summary=Summary.from_attributes(plan.costs, **counts(plan)),
        leaves=tuple(map(planned_leaf, plan.steps)),
        dropped=tuple(map(dropped_leaf, plan.dropped)),
        replaces=Replacement.from_attributes(gone) if gone is not None and gone.overwrites else None,
    )


def planned_leaf(step: Step) -> PlannedLeaf:
    """One leaf of the result."""
    leaf, key = step.leaf, step.leaf.key
    sources, rules = [f"{source}:{key}" for source, key in step.sources], [rule.path for rule in step.rules]
    rule = (None, None) if step.rule is None else (step.rule.path, step.rule.line)
    about = (*rule, tuple(rules), *shape_and_dtype(leaf), step.transfer)
    return PlannedLeaf(key.text, key.names, step.fate, tuple(sources), *about)


def dropped_leaf(gone: Dropped) -> DroppedLeaf:
    """One leaf of a source that no leaf of the result uses."""
    rule = None if gone.rule is None else gone.rule.path
    return DroppedLeaf(f"{gone.source}:{gone.leaf.key.text}", gone.leaf.key.names, rule, gone.why)
