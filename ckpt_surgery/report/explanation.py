"""Origin of one leaf of a result, fate of one leaf of a source, and the document of `explain`."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from ckpt_surgery.core.documents import NAMED, UNSET, Document, Versioned, shape_and_dtype
from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.summary import Represented, Summary, SummaryRow
from ckpt_surgery.core.text import brief
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Dropped, Plan, Step, functions, lineage
from ckpt_surgery.planner.plan_json import DROPPED, DroppedLeaf, PlannedLeaf, dropped_leaf, planned_leaf
from ckpt_surgery.planner.tracing import Attempt, Outcome, Stage
from ckpt_surgery.report.leaves import describe, short_spec
from ckpt_surgery.report.plan import ARROW
from ckpt_surgery.report.plan_texts import diff_rows, fate_word, totals_text

UNMATCHED = "unmatched"
"""Place in `Explanation.excerpts` of the policy for leaves that no rule claims."""


class Line(NamedTuple):
    """A line of a recipe."""

    number: int
    """Its number, from 1."""
    text: str
    """The line without its line break; characters that would move the cursor are replaced."""


class OriginLeaf(NamedTuple):
    """A leaf that is read."""

    source: str
    """Name of the source, or `target`."""
    leaf: Leaf
    """Its key, shape, dtype and kind there."""


@dataclass(frozen=True)
class ExplainedFunction(Document):
    """Functions that are applied side by side, or one."""

    name: str
    """Name of the function, or the operator."""
    count: int
    """Their number."""
    spec: str
    """Result of each of them: `bf16[4,8]`."""


@dataclass(frozen=True)
class Made:
    """Origin of a leaf of the result."""

    step: Step
    """The leaf, its fate, its transfer, and the rule that decided."""
    sources: tuple[OriginLeaf, ...]
    """The leaves of sources, or of the target, that it is made of."""
    stages: tuple[Stage, ...]
    """The rules on the way, from the first pass to the last."""
    operations: tuple[ExplainedFunction, ...]
    """The functions of its value, each after its inputs; none where the value stays as it is."""

    __repr__ = brief


@dataclass(frozen=True)
class Used:
    """Fate of a leaf of a source."""

    source: str
    """Name of the source."""
    leaf: Leaf
    outputs: tuple[str, ...]
    """Keys of the leaves of the result that are made of it, among others."""
    dropped: Dropped | None
    """Rule or policy that dropped it; None if a leaf of the result is made of it."""
    attempts: tuple[Attempt, ...]
    """The `match` rules that claimed it, or nearly did."""

    __repr__ = brief


@dataclass(frozen=True, repr=False)
class Explanation(Represented):
    """Explanation of one key: as a leaf of the result, as leaves of sources, or as a subtree."""

    key: str
    """The key that was asked for."""
    plan: Plan
    """The whole plan; where the key is a subtree, only what is in it."""
    made: Made | None
    """The leaf of the result with this key, if there is one."""
    used: tuple[Used, ...]
    """The leaves of sources with this key, one of each source that has one."""
    excerpts: Mapping[str, tuple[Line, ...]]
    """The lines of the recipe with the rules that are named, by their paths (`rules[3]`); those of the policy
    for unclaimed leaves are under `unmatched`."""

    @property
    def is_subtree(self) -> bool:
        """Whether no leaf has the key, and leaves lie under it."""
        return self.made is None and not self.used

    def _summary(self) -> Summary:
        if self.is_subtree:
            return Summary(f"{self.key}: {totals_text(self.plan)}", (), diff_rows(self.plan))
        rows = []
        if self.made is not None:
            step, rule = self.made.step, "" if self.made.step.rule is None else self.made.step.rule.title
            key = escaped(step.leaf.key.printed)
            rows.append(SummaryRow(fate_word(step.fate), key, describe(step.leaf), rule))
            for source, leaf in self.made.sources:
                rows.append(SummaryRow("made from", f"{source}:{escaped(leaf.key.printed)}", describe(leaf)))
        for used in self.used:
            key, what = f"{used.source}:{escaped(used.leaf.key.printed)}", describe(used.leaf)
            if used.dropped is not None:
                rows.append(SummaryRow(fate_word(DROPPED), key, what, used.dropped.why))
            outputs = map(escaped, used.outputs)
            rows += [SummaryRow("used for", f"{key}{ARROW}{output}", what) for output in outputs]
        return Summary(f"{self.key} ({self.plan.recipe})", (), rows)


def made(step: Step, stages: Sequence[Stage]) -> Made:
    """The report about a leaf of the result."""
    read = tuple([OriginLeaf(source, leaf) for (source, _), leaf in lineage(step).items()])
    operations = [ExplainedFunction(name, count, short_spec(spec)) for name, spec, count in functions(step)]
    return Made(step, read, tuple(stages), tuple(operations))


def described(leaves: Sequence[OriginLeaf]) -> str:
    """`f32[2,3]`, or `48 × f32[2,3]`, or `2 × f32[2,3], f32[3]`."""
    counts = Counter(describe(one.leaf) for one in leaves)
    return ", ".join(spec if count == 1 else f"{count:,} × {spec}" for spec, count in counts.items())


def rules_of(made: Made | None, used: Sequence[Used]) -> list[RuleRef]:
    """The rules of which an explanation shows the lines."""
    rules = [] if made is None else [made.step.rule, *(stage.rule for stage in made.stages)]
    rules += [one.dropped.rule for one in used if one.dropped is not None]
    rules += [attempt.rule for one in used for attempt in one.attempts if attempt.outcome is Outcome.CLAIMED]
    return list(dict.fromkeys(rule for rule in rules if rule is not None))


@dataclass(frozen=True, kw_only=True)
class ExplainedSource(Document):
    """A leaf that a leaf of the result is made of."""

    source: str
    """The leaf, as `source:key`."""
    components: tuple[str, ...]
    """The components of its key."""
    kind: Annotated[LeafKind, NAMED]
    """Kind of the leaf."""
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
    """Matches of the regex's groups, by name or number, and the values of the `for` variables."""


@dataclass(frozen=True, kw_only=True)
class ExplainedStage(Document):
    """Step of one rule on the way to a leaf of the result."""

    pass_: str | None
    """Name of the rule's pass, if it has one, and several passes were run."""
    rule: str
    """The rule, such as `rules[0]`."""
    line: int | None
    """Its line; null where the recipe was given as data."""
    keys: tuple[str, ...]
    """Keys after the pass."""
    claims: tuple[ExplainedClaim, ...]
    """Leaves that the rule claimed for these keys."""
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
    """A leaf of the result, and its origin."""

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
    """Fate of a leaf of a source."""

    outputs: tuple[str, ...]
    """Keys of the leaves of the result that are made of it."""
    why_dropped: str | None
    """The reason why it is not in the result, such as `drop` or `not in target`; null where it is."""
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
    """Leaves of the result that are in the subtree, or come from it; empty where the key is a leaf's."""
    dropped: tuple[DroppedLeaf, ...]
    """Leaves of sources in the subtree that are not in the result; empty where the key is a leaf's."""


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
    return ExplainedResult.from_attributes(
        planned_leaf(made.step),
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


def _attempt(attempt: Attempt) -> ExplainedAttempt:
    rule = attempt.rule
    return ExplainedAttempt.from_attributes(attempt, rule=rule.path, line=rule.line, match=attempt.pattern)
