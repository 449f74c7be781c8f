"""A plan that is shown from its file, where no source is at hand: what the file says besides its document.

`looks` has the distinct looks of leaves, and for each entry of `leaves` and of `dropped` the number of its
look. A look is `[description, descriptions of its sources, rule, effects, how, served]`; sources that are all
alike have one description. A description is `[kind, shape, dtype, PRNG or kind of empty node]`; a rule is
`[path, line, name]`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import InPlaceOf
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.language.params import ParamSource, ParamValue
from ckpt_surgery.planner.entries import RuleEffect, RuleRef
from ckpt_surgery.planner.plan import (
    Costs,
    Dropped,
    DroppedItem,
    Fate,
    Input,
    Plan,
    Step,
    Transfer,
    is_mean,
    lineage,
)

Look = tuple[Any, ...]
AVERAGED, REPLACED = "averaged", "replaced"


# --- writing ----------------------------------------------------------------------------------------------


class _Numbers(dict[Any, int]):
    """Values that occur many times, each with its number."""

    def __missing__(self, value: Any) -> int:
        self[value] = number = len(self)
        return number


def looks_of(plan: Plan) -> dict[str, Any]:
    """The looks of all leaves of a plan."""
    looks = _Numbers()
    leaves = [looks[_look(step)] for step in plan.steps]
    dropped = [
        looks[_description(gone.leaf), (), _rule(gone.rule), tuple(map(_rule, gone.earlier))]
        for gone in plan.dropped
    ]
    return {
        "looks": list(looks),
        "leaves": leaves,
        "dropped": dropped,
        "keys": {
            f"{source}:{key}": leaf.key.names
            for step in plan.steps
            for (source, key), leaf in lineage(step).items()
            if leaf.key.printed != key
        },
    }


def _look(step: Step) -> Look:
    leaves, effects = lineage(step), step.effects if len(step.effects) > 1 else ()
    read = tuple([_description(leaves[source]) for source in step.sources])
    return (
        _description(step.leaf),
        read[:1] if len(set(read)) == 1 else read,
        _rule(step.rule),
        tuple([(_rule(one.rule), one.renames, one.computes) for one in effects]),
        REPLACED if step.replaces else AVERAGED if is_mean(step.value) else None,
        step.served,
    )


def _rule(rule: RuleRef | None) -> Look | None:
    return None if rule is None else (rule.path, rule.line, rule.name)


def _description(leaf: Leaf) -> tuple[Any, ...]:
    shape, dtype = (None, None) if leaf.spec is None else (leaf.spec.shape, leaf.spec.dtype.name)
    return leaf.kind, shape, dtype, leaf.prng_impl or leaf.empty


def param_json(value: Any) -> Any:
    """The value of a param as JSON; what JSON lacks as an object: `{"float": "nan"}`, `{"int": "123…"}`."""
    if isinstance(value, tuple):
        return list(map(param_json, value))
    if type(value) is int and not -(2**63) <= value < 2**63:  # which not every reader of JSON takes
        return {"int": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


# --- reading ----------------------------------------------------------------------------------------------


_FUNCTIONS: Mapping[str | None, Function] = {
    AVERAGED: ListReduction("mean"),
    REPLACED: InPlaceOf(),
    None: Stack(),
}
"""A function for each way in which a value is shown; the last stands for all others, which look alike."""


def shown_plan(document: Mapping[str, Any], looks: Mapping[str, Any], inputs: Iterable[Input]) -> Plan:
    """The plan of a document, to be shown: it has neither values nor stored bytes.

    Raises LookupError, TypeError, ValueError or FunctionError where the document contradicts itself.
    """
    leaves = zip(document["leaves"], looks["leaves"], strict=True)
    gone = zip(document["dropped"], looks["dropped"], strict=True)
    recipe, summary = document["recipe"], document["summary"]
    return Plan(
        recipe=recipe["path"],
        recipe_sha256=recipe["sha256"],
        inputs=tuple(inputs),
        steps=tuple([_step(one, looks["looks"][look], looks["keys"]) for one, look in leaves]),
        dropped=tuple([_dropped(one, looks["looks"][look]) for one, look in gone]),
        warnings=tuple(document["warnings"]),
        costs=Costs(**{field.name: summary[field.name] for field in fields(Costs)}),
        params=tuple(
            ParamValue(name, _value(p["value"]), ParamSource(p["origin"]), p["entry"], p["note"])
            for name, p in document["params"].items()
        ),
        hooks_sha256=recipe.get("hooks_sha256"),
        dropped_items=tuple([DroppedItem(**one) for one in document["dropped_items"]]),
        restorable_by=document["restorable_by"],
    )


def _value(document: Any) -> Any:
    """The value of a param, as `param_json` wrote it."""
    match document:
        case list():
            return tuple(map(_value, document))
        case {"float": str(text)}:
            return float(text)
        case {"int": str(text)}:
            return int(text)
    return document


def _leaf(components: Sequence[str], description: Sequence[Any]) -> Leaf:
    kind, shape, dtype, about = description
    spec = None if shape is None else ArraySpec(tuple(shape), dtype_named(dtype))
    prng = about if kind == LeafKind.PRNG_KEY else None
    return Leaf(Key.of(components), LeafKind(kind), spec, prng_impl=prng, empty=None if prng else about)


def _step(one: Mapping[str, Any], look: Look, keys: Mapping[str, Sequence[str]]) -> Step:
    description, read, rule, effects, how, served = look
    sources = [tuple(text.split(":", 1)) for text in one["sources"]]
    names = [keys.get(text) or text.split(":", 1)[1].split("/") for text in one["sources"]]
    described = read * len(names) if len(read) == 1 else read
    reads = [
        Read(source, _leaf(*about)) for (source, _), *about in zip(sources, names, described, strict=True)
    ]
    return Step(
        leaf=_leaf(one["components"], description),
        value=Apply(_FUNCTIONS[how], tuple(reads)),
        fate=Fate(one["fate"]),
        rule=_ref(rule),
        sources=tuple(sources),
        transfer=Transfer(one["transfer"]),
        served=served,
        effects=tuple(
            [RuleEffect(RuleRef(path, line, name=name), *changed) for (path, line, name), *changed in effects]
        ),
    )


def _dropped(one: Mapping[str, Any], look: Look) -> Dropped:
    description, _, rule, earlier = look
    leaf, source = _leaf(one["components"], description), one["source"].split(":", 1)[0]
    before = tuple([RuleRef(path, line, name=name) for path, line, name in earlier])
    return Dropped(source, leaf, _ref(rule), one["why"], before)


def _ref(rule: Look | None) -> RuleRef | None:
    return None if rule is None else RuleRef(rule[0], rule[1], name=rule[2])
