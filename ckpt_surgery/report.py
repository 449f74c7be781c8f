"""Plan → folded rows, JSON."""

from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.folding import Entry, Fold
from ckpt_surgery.descriptions import JSON_SCHEMA, describe, folded, spec_json
from ckpt_surgery.entries import RuleRef
from ckpt_surgery.language.params import ParamValue
from ckpt_surgery.planner import Dropped, Fate, Input, Plan, Step

DROPPED = "dropped"
"""The fate of a source leaf that feeds no output, beside those of `Fate`."""


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


def counts(plan: Plan) -> dict[str, int]:
    """Number of leaves by fate, `dropped` last."""
    found = {fate.value: 0 for fate in Fate} | {DROPPED: len(plan.dropped)}
    for step in plan.steps:
        found[step.fate.value] += 1
    return found


def _step_entry(step: Step, several: bool) -> Entry:
    sources = tuple([_named(source, key, several) for source, key in step.sources])
    return Entry(step.leaf.key.text, sources, (step.fate, describe(step.leaf), _path(step.rule)))


def _step_row(step: Step, f: Fold) -> Row:
    nbytes = step.leaf.nbytes * f.count
    return Row(step.fate.value, f.key, f.sources, f.count, f.gathers, describe(step.leaf), nbytes, step.rule)


def _dropped_entry(gone: Dropped, several: bool) -> Entry:
    key = _named(gone.source, gone.leaf.key.text, several)
    return Entry(key, (), (describe(gone.leaf), _path(gone.rule), gone.why))


def _dropped_row(gone: Dropped, f: Fold) -> Row:
    nbytes = gone.leaf.nbytes * f.count
    return Row(
        DROPPED, f.key, f.sources, f.count, f.gathers, describe(gone.leaf), nbytes, gone.rule, gone.why
    )


def _path(rule: RuleRef | None) -> str:
    return "" if rule is None else rule.path


def _named(source: str, key: str, several: bool) -> str:
    return f"{source}:{key}" if several or source == "target" else key


def plan_json(plan: Plan) -> dict[str, Any]:
    """The JSON document of `plan`: every leaf, unfolded. Sizes in bytes."""
    costs = plan.costs
    hooks = {} if plan.hooks_sha256 is None else {"hooks_sha256": plan.hooks_sha256}
    return {
        "schema": JSON_SCHEMA,
        "recipe": {"path": plan.recipe, "sha256": plan.recipe_sha256, **hooks},
        "params": {value.name: _param_json(value) for value in plan.params},
        "sources": {source.name: _input_json(source) for source in plan.inputs},
        "summary": {
            **counts(plan),
            "bytes_out": costs.bytes_out,
            "bytes_linked": costs.bytes_linked,
            "bytes_copied": costs.bytes_copied,
            "bytes_computed": costs.bytes_computed,
            "bytes_dead": costs.bytes_dead,
            "peak_memory": costs.peak_memory,
        },
        "leaves": [_step_json(step) for step in plan.steps],
        "dropped": [_dropped_json(gone) for gone in plan.dropped],
        "warnings": list(plan.warnings),
        "restorable_by": dict(plan.restorable_by),
    }


def _param_json(value: ParamValue) -> dict[str, Any]:
    return {"value": value.value, "origin": value.origin.value, "entry": value.entry, "note": value.note}


def _input_json(source: Input) -> dict[str, Any]:
    chosen = {"step": source.step, "item": source.item}
    return {"path": source.path, "format": source.format, **chosen, "leaves": source.leaves}


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "key": step.leaf.key.text,
        "fate": step.fate.value,
        "sources": [f"{source}:{key}" for source, key in step.sources],
        "rule": None if step.rule is None else step.rule.path,
        "line": None if step.rule is None else step.rule.line,
        **spec_json(step.leaf),
        "transfer": step.transfer.value,
    }


def _dropped_json(gone: Dropped) -> dict[str, Any]:
    rule = None if gone.rule is None else gone.rule.path
    return {"source": f"{gone.source}:{gone.leaf.key.text}", "rule": rule, "why": gone.why}
