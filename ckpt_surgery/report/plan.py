"""Plan → folded rows, JSON."""

from dataclasses import dataclass

from ckpt_surgery.core.folding import Fold, ShownKey
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Dropped, Fate, Plan, Step
from ckpt_surgery.planner.plan_json import DROPPED
from ckpt_surgery.report.leaves import describe, folded


@dataclass(frozen=True)
class Row:
    """One line of the diff: leaves that share a fate, a rule and a description."""

    fate: str
    """One of `Fate`, or `dropped`."""
    key: str
    """Pattern of the output keys (of the source keys where the leaf is dropped), printable."""
    sources: tuple[str, ...]
    """Patterns of what is read; with the source's name where that could be in doubt."""
    count: int
    """Number of leaves."""
    gathers: int
    """Number of source leaves that each of them is made from."""
    spec: str
    """What each leaf is: `bf16[2048,8192]`."""
    nbytes: int
    """Of all the leaves together: shape × itemsize."""
    rule: RuleRef | None
    why: str = ""
    """Of dropped leaves: `drop`, `not in target`, …"""


def plan_rows(plan: Plan, *, full: bool = False) -> list[Row]:
    """The diff. Every output leaf and every dropped leaf is in exactly one row.

    Sorted by the plan's own order, dropped leaves last. With `full` each has a row to itself.
    """
    several = len({i.name for i in plan.inputs} - {"target"}) > 1
    steps = folded([_step_entry(step, several) for step in plan.steps], full)
    dropped = folded([_dropped_entry(gone, several) for gone in plan.dropped], full)
    return [
        *(_step_row(plan.steps[f.first], f) for f in steps),
        *(_dropped_row(plan.dropped[f.first], f) for f in dropped),
    ]


def has_changes(plan: Plan) -> bool:
    """Whether the result differs from the first source in any key or value."""
    return bool(plan.dropped) or any(step.fate is not Fate.KEPT for step in plan.steps)


def _step_entry(step: Step, several: bool) -> ShownKey:
    sources = tuple([_named(source, key, several) for source, key in step.sources])
    return ShownKey(step.leaf.key.text, sources, (step.fate, describe(step.leaf), _path(step.rule)))


def _step_row(step: Step, f: Fold) -> Row:
    nbytes = step.leaf.nbytes * f.count
    return Row(step.fate.value, f.key, f.sources, f.count, f.gathers, describe(step.leaf), nbytes, step.rule)


def _dropped_entry(gone: Dropped, several: bool) -> ShownKey:
    key = _named(gone.source, gone.leaf.key.text, several)
    return ShownKey(key, (), (describe(gone.leaf), _path(gone.rule), gone.why))


def _dropped_row(gone: Dropped, f: Fold) -> Row:
    nbytes = gone.leaf.nbytes * f.count
    return Row(
        DROPPED, f.key, f.sources, f.count, f.gathers, describe(gone.leaf), nbytes, gone.rule, gone.why
    )


def _path(rule: RuleRef | None) -> str:
    return "" if rule is None else rule.path


def _named(source: str, key: str, several: bool) -> str:
    return f"{source}:{key}" if several or source == "target" else key
