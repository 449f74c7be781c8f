"""A plan's file: the JSON document of `plan` with one more member, `saved`, which `apply` carries out.

`saved.looks` is for showing the plan where no source is at hand: the distinct looks of leaves, and the number
of its look for each of `leaves` and `dropped`. A look is `[description, descriptions of its sources, rule,
effects, how, served]`, a description `[kind, shape, dtype, PRNG or kind of empty node]`, a rule `[path, line,
name]`. Sources that are all alike have one description.
"""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import LinkMode, PathLike
from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.documents import plain
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import InPlaceOf
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.reductions import ListReduction
from ckpt_surgery.language.files import REPORT, SAVE
from ckpt_surgery.language.loading import ParamSource, ParamValue
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
from ckpt_surgery.planner.plan_json import planned_document

SAVED = "saved"
"""The member of a plan's file that is carried out."""
MOST_BYTES = 2**63 - 1
MOST_WORKERS = 4096
MOST_STEP = 10**18 - 1
"""Largest number of a step: Orbax's names of steps are read up to 18 digits."""

Bytes = Annotated[int, Meta(ge=1, le=MOST_BYTES)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Part of `saved`: reading one checks the names and types of all members."""


class RecipeForm(_Form, frozen=True):
    """The recipe, which is not read from its file again."""

    path: str
    """As it was given, for messages."""
    text: str
    set: tuple[str, ...] = ()
    """Texts `NAME=VALUE`."""
    rules: tuple[tuple[tuple[str | int, ...], str], ...] | None = None
    """None for a text that somebody wrote; otherwise what rules were made of, by their paths."""


class RequestForm(_Form, frozen=True):
    """Parts of the request, as they were decided; `Request` describes the fields."""

    format: str
    memory: Bytes
    """Budget in bytes that outputs are cut for."""
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
    dst: str | None = None
    """Absolute path; None if the plan was made without a destination."""
    dst_step: Annotated[int, Meta(ge=0, le=MOST_STEP)] | None = None
    dst_item: str | None = None
    shard_size: Bytes | None = None
    link_mode: LinkMode = LinkMode.AUTO
    item: str | None = None
    uint16: Literal["keep", "bfloat16"] | None = None
    config: str | None = None
    unshard: bool = False
    made_from: str | None = None
    notes: tuple[str, ...] = ()


class SavedPlan(_Form, frozen=True):
    """A request with everything fixed that it depends on, so that it plans to the same digest again."""

    version: str
    """Version of the tool that made the plan; no other version carries it out."""
    request: RequestForm
    recipe: RecipeForm | None
    """None where every leaf is kept."""
    hooks: tuple[str, Sha256] | None
    """Absolute path and digest of the file of hooks, which has to be the same."""
    inputs: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Names of the sources in order, then of the target where it is a checkpoint."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None]
    """Name and content of each config that planning read, by source; None where there was none."""
    target: list[Any] | None
    """The target, where that is a listing."""
    linked: Annotated[str, Meta(pattern="^[01]*$")]
    """For each output, `1` where its files may be linked. All others are never linked."""
    digest: Sha256
    """Digest of the plan: see `identity.plan_digest`."""
    looks: dict[str, Any]
    """Descriptions of leaves that `plan plan.json` shows besides the document."""
    sha256: str = ""
    """Digest of the document (`seal`), by which a file that was damaged or changed is recognized."""


class _WholeFile(msgspec.Struct):
    sources: dict[str, Input]
    saved: SavedPlan


@dataclass(frozen=True, eq=False)
class PlanFile:
    """A saved plan."""

    path: str
    text: bytes
    document: Mapping[str, Any]
    """The whole document, as `PlannedDocument` describes it."""
    saved: SavedPlan
    inputs: tuple[Input, ...]
    """The inputs as they were when the plan was made, at the paths that the file says now."""


Look = tuple[Any, ...]
AVERAGED, REPLACED = "averaged", "replaced"


def plan_file(plan: Plan, saved: SavedPlan) -> bytes:
    """The text of a plan's file, with absolute paths of inputs, the states of their files, and the seal."""
    document = plain(planned_document(plan))
    for param in plan.params:
        document["params"][param.name]["value"] = param_json(param.value)
    inputs = [replace(i, path=urls.absolute(i.path), fingerprint="") for i in plan.inputs]
    document["sources"] = {one.name: msgspec.to_builtins(one) for one in inputs}
    document[SAVED] = msgspec.to_builtins(saved)
    document[SAVED]["sha256"] = seal(document)
    text = _encoded(document)
    with contextlib.suppress(msgspec.DecodeError):  # of halves of surrogate pairs: such a file has one line
        text = msgspec.json.format(text, indent=1)
    return text + b"\n"


def seal(document: Mapping[str, Any]) -> str:
    """SHA-256, hexadecimal, of a plan's document without the paths of its inputs, which may change."""
    sources = {name: {**source, "path": ""} for name, source in document["sources"].items()}
    rest = {**document, "sources": sources, SAVED: {**document[SAVED], "sha256": ""}}
    return hashlib.sha256(_encoded(rest, "sorted")).hexdigest()


def _encoded(document: Mapping[str, Any], order: Literal["sorted"] | None = None) -> bytes:
    try:
        return msgspec.json.encode(document, order=order)
    except UnicodeEncodeError:  # halves of surrogate pairs, in names of files that are not UTF-8
        return json.dumps(document, sort_keys=order is not None).encode()


def looks_of(plan: Plan) -> dict[str, Any]:
    """The looks of all leaves of a plan."""
    looks: dict[Look, int] = {}
    leaves = [looks.setdefault(_look(step), len(looks)) for step in plan.steps]
    gone = ((_description(d.leaf), (), _rule(d.rule), tuple(map(_rule, d.earlier))) for d in plan.dropped)
    dropped = [looks.setdefault(look, len(looks)) for look in gone]
    read = ((*names, leaf) for step in plan.steps for names, leaf in lineage(step).items())
    keys = {f"{source}:{key}": leaf.key.names for source, key, leaf in read if leaf.key.printed != key}
    return {"looks": list(looks), "leaves": leaves, "dropped": dropped, "keys": keys}


def _look(step: Step) -> Look:
    leaves = lineage(step)
    read = tuple([_description(leaves[source]) for source in step.sources])
    read = read[:1] if len(set(read)) == 1 else read
    effects = [(_rule(e.rule), e.renames, e.computes) for e in step.effects if len(step.effects) > 1]
    how = REPLACED if step.replaces else AVERAGED if is_mean(step.value) else None
    return _description(step.leaf), read, _rule(step.rule), tuple(effects), how, step.served


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


def read_plan_file(path: PathLike, text: bytes | None = None) -> PlanFile | None:
    """A saved plan; None where the file, whose `text` may be at hand, is something else, such as a recipe.

    Raises UsageError for the report of a plan, for a plan of another version of the tool, for what no
    `plan --out` wrote, and for a plan that was changed since, but for the paths of its inputs.
    """
    name = shown(os.fspath(path))
    try:
        text = Path(path).read_bytes() if text is None else text
        try:
            document = msgspec.json.decode(text)
        except ValueError:  # Python takes halves of surrogate pairs
            document = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None  # load_recipe says what is wrong with the file
    members = document if isinstance(document, dict) else {}
    saved = members.get(SAVED)
    if saved is None:
        if None not in (members.get("schema"), members.get("summary")):
            raise UsageError(f"{name} is {REPORT}", hint=SAVE)
        return None
    if isinstance(saved, dict) and saved.get("version") != VERSION:
        version = shown(str(saved.get("version") or "unknown"))
        hint = "Make the plan again with this version, or carry it out with that one."
        message = f"{name} was saved by version {version} of the tool; this is {VERSION}"
        raise UsageError(message, hint=hint)
    try:
        whole = msgspec.convert(document, _WholeFile)
    except (ValueError, RecursionError) as error:
        what, _, where = str(error).partition(" - at ")
        raise not_saved(path, where.strip("`").removeprefix("$.") or SAVED, what) from error
    _check_paths(path, whole)
    if whole.saved.sha256 != seal(document):
        hint = "Make the plan again. Only the `path` of an input may be changed, to where it lies now."
        raise UsageError(f"{name}: the plan was changed after it was saved, or is damaged", hint=hint)
    found_inputs = [whole.sources[name] for name in whole.saved.inputs]
    inputs = tuple([replace(one, path=urls.near(one.path)) for one in found_inputs])
    return PlanFile(os.fspath(path), text, document, whole.saved, inputs)


def _check_paths(path: PathLike, file: _WholeFile) -> None:
    """Refuse inputs without a path, and paths that are relative, or that no file can have."""
    saved = file.saved
    if sorted(saved.inputs) != sorted(file.sources):
        raise not_saved(path, "sources", "not the inputs of the plan")
    paths = {f"sources.{name}.path": source.path for name, source in file.sources.items()}
    paths |= {} if saved.request.dst is None else {f"{SAVED}.request.dst": saved.request.dst}
    paths |= {} if saved.hooks is None else {f"{SAVED}.hooks": saved.hooks[0]}
    for field, named in paths.items():
        if "\0" in named or not (urls.is_url(named) or os.path.isabs(named)):
            raise not_saved(path, field, f"{abridged(named)} is not an absolute path")


def not_saved(path: PathLike, field: str, why: str) -> UsageError:
    """The error to raise for a document that no `plan --out` wrote."""
    message = f"{shown(os.fspath(path))}: not a plan that was saved: {field}: {shown(why)}"
    return UsageError(message, hint="Make the plan again.")


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
    names = [keys.get(":".join(source)) or source[1].split("/") for source in sources]
    described = zip(sources, names, read * len(names) if len(read) == 1 else read, strict=True)
    reads = [Read(source, _leaf(*about)) for (source, _), *about in described]
    return Step(
        leaf=_leaf(one["components"], description),
        value=Apply(_FUNCTIONS[how], tuple(reads)),
        fate=Fate(one["fate"]),
        rule=rule and _ref(rule),
        sources=tuple(sources),
        transfer=Transfer(one["transfer"]),
        served=served,
        effects=tuple([RuleEffect(_ref(rule), *changed) for rule, *changed in effects]),
    )


def _dropped(one: Mapping[str, Any], look: Look) -> Dropped:
    description, _, rule, earlier = look
    leaf, source = _leaf(one["components"], description), one["source"].split(":", 1)[0]
    return Dropped(source, leaf, rule and _ref(rule), one["why"], tuple(map(_ref, earlier)))


def _ref(rule: Look) -> RuleRef:
    path, line, name = rule
    return RuleRef(path, line, name=name)
