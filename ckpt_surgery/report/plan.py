"""A plan as rows, totals and a JSON document: what `plan` and `apply` show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.folding import Fold, ShownKey
from ckpt_surgery.core.protocols import AdoptedFile
from ckpt_surgery.planner.entries import RuleRef
from ckpt_surgery.planner.plan import Dropped, Fate, Plan, Step, Transfer
from ckpt_surgery.planner.plan_json import DROPPED, counts, plan_json
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.report.leaves import describe, folded


@dataclass(frozen=True)
class Row:
    """One line of the diff: leaves that share a fate, a rule and a description."""

    fate: str
    """One of `Fate`, or `dropped`."""
    key: str
    """Pattern of the output keys, or of the source keys where the leaves are dropped; printable."""
    sources: tuple[str, ...]
    """Patterns of the source keys that are read; with the source's name if there are several sources."""
    count: int
    """Number of leaves."""
    gathers: int
    """Number of source leaves that each of them is made from."""
    spec: str
    """Dtype and shape, or kind, of each leaf: `bf16[2048,8192]`."""
    nbytes: int
    """Size of all the leaves together: shape × itemsize."""
    rule: RuleRef | None
    """The rule that decided; None where a policy or the target did."""
    why: str = ""
    """The reason why leaves are dropped: `drop`, `not in target`, …; empty for other fates."""


@dataclass(frozen=True)
class ParamsRow:
    """Params of the recipe whose values come from the same place."""

    values: tuple[str, ...]
    """`heads=32`; with the entry of the config where that has another name: `heads=32 ← n_head`."""
    origin: str
    """One of `set`, `config` and `default`."""
    note: str | None
    """The file that the values come from; for defaults, why the config gave none."""


@dataclass(frozen=True)
class Totals:
    """Numbers of leaves of a whole plan."""

    before: int
    """Leaves of all sources."""
    after: int
    """Leaves of the result."""
    by_fate: Mapping[str, int]
    """Leaves by fate; those that are dropped are leaves of sources, all others are leaves of the result."""


def plan_rows(plan: Plan, *, full: bool = False) -> list[Row]:
    """The diff. Every output leaf and every dropped leaf is in exactly one row.

    Rows are in the plan's own order, dropped leaves last. With `full` each leaf has a row to itself.
    """
    several = len({i.name for i in plan.inputs} - {TARGET}) > 1
    steps = folded([_step_entry(step, several) for step in plan.steps], full)
    dropped = folded([_dropped_entry(gone, several) for gone in plan.dropped], full)
    return [
        *(_step_row(plan.steps[f.first], f) for f in steps),
        *(_dropped_row(plan.dropped[f.first], f) for f in dropped),
    ]


def param_rows(plan: Plan) -> list[ParamsRow]:
    """The values of the recipe's params, grouped by where they come from."""
    alike: dict[tuple[str, str | None], list[str]] = {}
    for param in plan.params:
        renamed = param.entry not in (None, param.name)
        text = f"{param.name}={param.text}{f' ← {param.entry}' if renamed else ''}"
        alike.setdefault((param.origin.value, param.note), []).append(text)
    return [ParamsRow(tuple(values), origin, note) for (origin, note), values in alike.items()]


def totals(plan: Plan) -> Totals:
    """How many leaves there are before and after, and by fate."""
    before = sum(i.leaves for i in plan.inputs if i.name != TARGET)
    return Totals(before, len(plan.steps), counts(plan))


def has_changes(plan: Plan) -> bool:
    """Whether the result differs from the first source in any key or value."""
    return bool(plan.dropped) or any(step.fate is not Fate.KEPT for step in plan.steps)


def plan_document(plan: Plan, **ran: Any) -> dict[str, Any]:
    """The JSON document of `plan`: every leaf, unfolded; sizes in bytes.

    `ran` are the members that `apply` adds: `seconds`, `destination`, `verified` and `shared`.
    """
    return {**plan_json(plan), **ran}


def shared_json(files: Iterable[AdoptedFile]) -> list[dict[str, Any]]:
    """Files that the result shares with sources."""
    return [
        {"file": file.name, "source": file.source, "size": file.size, "mode": file.how.value}
        for file in files
    ]


def linked_sources(plan: Plan) -> list[str]:
    """Paths of the sources of which files are linked, in their order."""
    linked = (step.sources for step in plan.steps if step.transfer is Transfer.LINK)
    names = {name for sources in linked for name, _ in sources}
    return [i.path for i in plan.inputs if i.name in names]


def version_text(versions: Mapping[str, str]) -> str:
    """`orbax-checkpoint ≥ 0.5.21 and tensorstore ≥ 0.1.80`."""
    return " and ".join(f"{package} ≥ {version}" for package, version in versions.items())


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
    return f"{source}:{key}" if several or source == TARGET else key
