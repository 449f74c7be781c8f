"""Where one leaf of a result comes from, and what becomes of one leaf of a source."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ckpt_surgery.core.documents import Document
from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.summaries.represented import Represented
from ckpt_surgery.core.summaries.summary import Summary, SummaryRow
from ckpt_surgery.core.text import brief
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Dropped, Plan, Step, functions, lineage
from ckpt_surgery.planner.plan_json import DROPPED
from ckpt_surgery.planner.tracing import Attempt, Outcome, Stage
from ckpt_surgery.report.leaves import describe, short_spec
from ckpt_surgery.report.plan_texts import ARROW, fate_word, plan_summary_rows, totals_text

UNMATCHED = "unmatched"
"""Where `Explanation.excerpts` has the policy for leaves that no rule claims."""


@dataclass(frozen=True)
class Line:
    """A line of a recipe."""

    number: int
    """Its number, from 1."""
    text: str
    """The line without its line break; characters that would move the cursor are replaced."""

    __repr__ = brief


@dataclass(frozen=True)
class OriginLeaf:
    """A leaf that is read."""

    source: str
    """Name of the source."""
    leaf: Leaf
    """Its key, shape, dtype and kind there."""


@dataclass(frozen=True)
class ExplainedFunction(Document):
    """Functions that are applied side by side, or one."""

    name: str
    """Name of the function, or the operator."""
    count: int
    """How many of them there are."""
    spec: str
    """What each of them gives: `bf16[4,8]`."""


@dataclass(frozen=True)
class Made:
    """How a leaf of the result is made."""

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
    """What becomes of a leaf of a source."""

    source: str
    """Name of the source."""
    leaf: Leaf
    outputs: tuple[str, ...]
    """Keys of the leaves of the result that are made of it, among others."""
    dropped: Dropped | None
    """What dropped it; None if a leaf of the result is made of it."""
    attempts: tuple[Attempt, ...]
    """The `match` rules that claimed it, or nearly did."""

    __repr__ = brief


@dataclass(frozen=True, repr=False)
class Explanation(Represented):
    """What there is to say about one key: as a leaf of the result, as leaves of sources, or as a subtree."""

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
            return Summary(f"{self.key}: {totals_text(self.plan)}", (), plan_summary_rows(self.plan))
        rows = [] if self.made is None else list(_made_rows(self.made))
        rows += [row for one in self.used for row in _used_rows(one)]
        return Summary(f"{self.key} ({self.plan.recipe})", (), rows)


def _made_rows(made: Made) -> Iterator[SummaryRow]:
    step, rule = made.step, "" if made.step.rule is None else made.step.rule.title
    yield SummaryRow(fate_word(step.fate), escaped(step.leaf.key.printed), describe(step.leaf), rule)
    for one in made.sources:
        yield SummaryRow("made from", f"{one.source}:{escaped(one.leaf.key.printed)}", describe(one.leaf))


def _used_rows(used: Used) -> Iterator[SummaryRow]:
    key = f"{used.source}:{escaped(used.leaf.key.printed)}"
    if used.dropped is not None:
        yield SummaryRow(fate_word(DROPPED), key, describe(used.leaf), used.dropped.why)
    for output in used.outputs:
        yield SummaryRow("used for", f"{key}{ARROW}{escaped(output)}", describe(used.leaf))


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
    found = [] if made is None else [made.step.rule, *(stage.rule for stage in made.stages)]
    found += [one.dropped.rule for one in used if one.dropped is not None]
    found += [attempt.rule for one in used for attempt in one.attempts if attempt.outcome is Outcome.CLAIMED]
    return list(dict.fromkeys(rule for rule in found if rule is not None))
