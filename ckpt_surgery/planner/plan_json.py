"""The JSON document of a plan, with one entry for every leaf."""

from typing import Any

from ckpt_surgery.core.documents import JSON_SCHEMA, key_json, spec_json
from ckpt_surgery.language.params import ParamValue
from ckpt_surgery.planner.plan import Dropped, DroppedItem, Fate, Input, Plan, Replacement, Step

DROPPED = "dropped"
"""The fate of a source leaf that feeds no output, beside those of `Fate`."""


def counts(plan: Plan) -> dict[str, int]:
    """Number of leaves by fate, `dropped` last."""
    found = {fate.value: 0 for fate in Fate} | {DROPPED: len(plan.dropped)}
    for step in plan.steps:
        found[step.fate.value] += 1
    return found


def plan_json(plan: Plan) -> dict[str, Any]:
    """The JSON document of a plan: every leaf has an entry of its own. Sizes are in bytes."""
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
            "bytes_linkable": costs.bytes_linkable,
            "bytes_through": costs.bytes_through,
            "peak_memory": costs.peak_memory,
        },
        "leaves": [step_json(step) for step in plan.steps],
        "dropped": [dropped_json(gone) for gone in plan.dropped],
        "dropped_items": [_item_json(gone) for gone in plan.dropped_items],
        "replaces": _replacement_json(plan.replaces),
        "warnings": list(plan.warnings),
        "restorable_by": dict(plan.restorable_by),
    }


def _item_json(gone: DroppedItem) -> dict[str, Any]:
    about = {"item": gone.item, "kind": gone.kind, "bytes": gone.nbytes, "why": gone.why}
    return {"source": gone.source, **about}


def _replacement_json(found: Replacement | None) -> dict[str, Any] | None:
    if found is None or not found.overwrites:
        return None
    return {"path": found.path, "items": list(found.items), "stays": list(found.stays)}


def _param_json(value: ParamValue) -> dict[str, Any]:
    return {"value": value.value, "origin": value.origin.value, "entry": value.entry, "note": value.note}


def _input_json(source: Input) -> dict[str, Any]:
    chosen = {"step": source.step, "item": source.item}
    return {"path": source.path, "format": source.format, **chosen, "leaves": source.leaves}


def step_json(step: Step) -> dict[str, Any]:
    """One leaf of the result."""
    return {
        **key_json(step.leaf.key),
        "fate": step.fate.value,
        "sources": [f"{source}:{key}" for source, key in step.sources],
        "rule": None if step.rule is None else step.rule.path,
        "line": None if step.rule is None else step.rule.line,
        "rules": [rule.path for rule in step.rules],
        **spec_json(step.leaf),
        "transfer": step.transfer.value,
    }


def dropped_json(gone: Dropped) -> dict[str, Any]:
    """One leaf of a source that no leaf of the result uses."""
    rule = None if gone.rule is None else gone.rule.path
    return {
        "source": f"{gone.source}:{gone.leaf.key.text}",
        "components": list(gone.leaf.key.names),
        "rule": rule,
        "why": gone.why,
    }
