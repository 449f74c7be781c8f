"""The JSON document of `explain`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ckpt_surgery.core.documents import NAMED, UNSET, Document, Versioned, shape_and_dtype
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.planner.plan_json import DroppedLeaf, PlannedLeaf, dropped_leaf, planned_leaf
from ckpt_surgery.planner.tracing import Attempt, Outcome, Stage
from ckpt_surgery.report.explanation import ExplainedFunction, Explanation, Made, Used


@dataclass(frozen=True, kw_only=True)
class ExplainedSource(Document):
    """A leaf that a leaf of the result is made of."""

    source: str
    """The leaf, as `source:key`."""
    components: tuple[str, ...]
    """The components of its key."""
    kind: Annotated[LeafKind, NAMED]
    """What it is."""
    shape: tuple[int, ...] | None
    """Lengths of its axes; null where it is no array."""
    dtype: str | None
    """Type of its elements."""


@dataclass(frozen=True, kw_only=True)
class ExplainedClaim(Document):
    """A leaf that a rule claimed."""

    source: str
    """The leaf, as `source:key`, with its key before the pass."""
    bound: Mapping[str, str]
    """What the groups of the regex matched, by name or number, and the values of the `for` variables."""


@dataclass(frozen=True, kw_only=True)
class ExplainedStage(Document):
    """What one rule did on the way to a leaf of the result."""

    pass_: str | None
    """Name of the rule's pass, if it has one, and several passes were run."""
    rule: str
    """The rule, such as `rules[0]`."""
    line: int | None
    """Its line; null where the recipe was given as data."""
    keys: tuple[str, ...]
    """Keys after the pass."""
    claims: tuple[ExplainedClaim, ...]
    """What the rule claimed for these keys."""
    looked_up: tuple[str, ...]
    """Other leaves that the values are computed from, as `source:key`."""
    values: tuple[str, ...]
    """Expressions of the values; none where values stay as they are."""
    variables: Mapping[str, str]
    """Values of the `for` variables of an `add` rule."""
    let: Mapping[str, str] = UNSET
    """Names in `values`, and the expressions that they stand for; missing where there are none."""


@frozen()
class ExplainedResult(PlannedLeaf):
    """How a leaf of the result is made."""

    sources: tuple[ExplainedSource, ...]  # type: ignore[assignment]
    """The leaves that it is made of."""
    bytes: int
    """Size of the array."""
    stages: tuple[ExplainedStage, ...]
    """The rules on the way, from the first pass to the last."""
    operations: tuple[ExplainedFunction, ...]
    """The functions of its value, from the leaves on."""


@dataclass(frozen=True, kw_only=True)
class ExplainedAttempt(Document):
    """A `match` rule that claimed a leaf of a source, or nearly did."""

    rule: str
    """The rule, such as `rules[0]`."""
    line: int | None
    """Its line; null where the recipe was given as data."""
    match: str
    """Its regex."""
    outcome: Annotated[Outcome, NAMED]
    """Claimed it; comes after the rule that did; its `when` is not true; reads another source; matches only
    the beginning or the end of the key."""
    key: str
    """The key, or the part of it, that the rule matches."""


@dataclass(frozen=True, kw_only=True)
class ExplainedUse(ExplainedSource):
    """What becomes of a leaf of a source."""

    outputs: tuple[str, ...]
    """Keys of the leaves of the result that are made of it."""
    why_dropped: str | None
    """Why it is not in the result, such as `drop` or `not in target`; null where it is."""
    rule: str | None
    """The rule that dropped it."""
    line: int | None
    """Line of that rule."""
    attempts: tuple[ExplainedAttempt, ...]
    """Rules that claimed it, or nearly did."""


@dataclass(frozen=True, kw_only=True)
class ExplainDocument(Versioned):
    """`explain RECIPE SRC... KEY`."""

    key: str
    """The key that was asked for."""
    recipe: str
    """The recipe's path, or `(recipe)`."""
    sources: Mapping[str, str]
    """Paths of the checkpoints that are read, by name."""
    made: ExplainedResult | None
    """The leaf of the result with this key."""
    used: tuple[ExplainedUse, ...]
    """The leaves of sources with this key."""
    leaves: tuple[PlannedLeaf, ...]
    """Where the key is a subtree: the leaves of the result that are in it, or come from it."""
    dropped: tuple[DroppedLeaf, ...]
    """Where the key is a subtree: the leaves of sources in it that are not in the result."""


def explain_document(explanation: Explanation) -> ExplainDocument:
    """The JSON document of an explanation."""
    plan, made, subtree = explanation.plan, explanation.made, explanation.is_subtree
    return ExplainDocument(
        key=explanation.key,
        recipe=plan.recipe,
        sources={source.name: source.path for source in plan.inputs},
        made=None if made is None else _result(made),
        used=tuple(map(_use, explanation.used)),
        leaves=tuple(map(planned_leaf, plan.steps)) if subtree else (),
        dropped=tuple(map(dropped_leaf, plan.dropped)) if subtree else (),
    )


def _source(source: str, leaf: Leaf) -> dict[str, Any]:
    """The members of `ExplainedSource`."""
    shape, dtype = shape_and_dtype(leaf)
    about = {"components": leaf.key.names, "kind": leaf.kind, "shape": shape, "dtype": dtype}
    return {"source": f"{source}:{leaf.key.text}", **about}


def _result(made: Made) -> ExplainedResult:
    leaf = planned_leaf(made.step)
    return ExplainedResult.from_attributes(
        leaf,
        sources=tuple([ExplainedSource(**_source(one.source, one.leaf)) for one in made.sources]),
        bytes=made.step.leaf.nbytes,
        stages=tuple(map(_stage, made.stages)),
        operations=made.operations,
    )


def _stage(stage: Stage) -> ExplainedStage:
    return ExplainedStage.from_attributes(
        stage,
        pass_=stage.pass_name,
        rule=stage.rule.path,
        line=stage.rule.line,
        let=stage.let or UNSET,
        claims=tuple([ExplainedClaim(source=f"{c.source}:{c.key}", bound=c.bound) for c in stage.claims]),
        looked_up=tuple([f"{source}:{key}" for source, key in stage.looked_up]),
    )


def _use(used: Used) -> ExplainedUse:
    gone = used.dropped
    rule = None if gone is None else gone.rule
    return ExplainedUse(
        **_source(used.source, used.leaf),
        outputs=used.outputs,
        why_dropped=None if gone is None else gone.why,
        rule=None if rule is None else rule.path,
        line=None if rule is None else rule.line,
        attempts=tuple(map(_attempt, used.attempts)),
    )


def _attempt(one: Attempt) -> ExplainedAttempt:
    rule = one.rule
    return ExplainedAttempt(
        rule=rule.path, line=rule.line, match=one.pattern, outcome=one.outcome, key=one.key
    )
