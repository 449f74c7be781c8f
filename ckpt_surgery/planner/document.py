"""Plans as JSON: what `plan --out` saves, and `apply` carries out without planning again.

The file is the JSON document of `plan` with one more member, `saved`, which is all that is read back. It says
what will be done: every output with its chunks, its transfer and its value, every input with its fingerprint.
The manifests of stored bytes are not in it, because they follow from the values.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ckpt_surgery.core import urls
from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import FunctionError, UsageError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.fields import value_json
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.graph.node_json import nodes_json
from ckpt_surgery.graph.nodes import Node, inputs_first
from ckpt_surgery.language.hooks import HookCall, HookFile
from ckpt_surgery.language.other_documents import REPORT, SAVE
from ckpt_surgery.planner.document_forms import (
    MOST_BYTES,
    MOST_STEP,
    MOST_WORKERS,
    CostsForm,
    DestinationForm,
    DroppedForm,
    FileForm,
    HooksForm,
    InputForm,
    ItemForm,
    OutputForm,
    ParamForm,
    PlaceForm,
    RecipeForm,
    RuleForm,
    SavedPlan,
    SeenForm,
)
from ckpt_surgery.planner.entries import RuleEffect, RuleRef
from ckpt_surgery.planner.options import DestinationOptions
from ckpt_surgery.planner.origins import origins
from ckpt_surgery.planner.plan import Input, Plan, Step
from ckpt_surgery.planner.plan_json import plan_json

T = TypeVar("T")

SAVED = "saved"
"""The member of a plan's file that is read back."""


class _Version(msgspec.Struct):
    version: str | None = None


class _File(msgspec.Struct):
    saved: _Version | None = None
    schema: Any = None
    summary: Any = None


class _WholeFile(msgspec.Struct):
    saved: SavedPlan


# --- from a plan to a file --------------------------------------------------------------------------------


def saved_plan(
    plan: Plan, destination: DestinationOptions, memory: int, workers: int, hooks: HookFile | None
) -> SavedPlan:
    """The document of a plan. Raises UsageError where something in it cannot be written."""
    for name, value, most in (
        ("workers", workers, MOST_WORKERS),
        ("memory", memory, MOST_BYTES),
        ("dst_step", destination.step or 0, MOST_STEP),
    ):
        if value > most:
            raise UsageError(f"`{name}`: a saved plan can have {most} at most, not {value}")
    if hooks is None:
        _refuse_functions([step.value for step in plan.steps])
    found = [rule for step in plan.steps for rule in step.claimed_by]
    found += [rule for gone in plan.dropped for rule in gone.rules]
    rules = {rule: number for number, rule in enumerate(dict.fromkeys(found))}
    try:
        shared, values = nodes_json([step.value for step in plan.steps], known_kinds(hooks))
    except FunctionError as error:
        raise UsageError(*error.problems) from error
    saved = SavedPlan(
        version=VERSION,
        recipe=RecipeForm(plan.recipe, plan.recipe_sha256, _hooks_form(hooks)),
        inputs=_input_forms(plan),
        destination=_destination_form(destination),
        memory=memory,
        workers=workers,
        metadata=json.dumps(plan.metadata),
        params=[ParamForm(**{**asdict(p), "value": value_json(p.value)}) for p in plan.params],
        rules=[_rule_form(rule) for rule in rules],
        shared=shared,
        outputs=[_output_form(s, value, rules) for s, value in zip(plan.steps, values, strict=True)],
        dropped=[
            DroppedForm(
                gone.source,
                gone.leaf.key.text,
                gone.why,
                rules[gone.rule] if gone.rule else None,
                tuple([rules[rule] for rule in gone.earlier]),
            )
            for gone in plan.dropped
        ],
        warnings=list(plan.warnings),
        costs=CostsForm(**asdict(plan.costs)),
        restorable_by=dict(plan.restorable_by),
        dropped_items=tuple(
            [
                ItemForm(gone.source, gone.item, gone.kind, gone.nbytes, gone.why)
                for gone in plan.dropped_items
            ]
        ),
    )
    return msgspec.structs.replace(saved, sha256=seal(saved))


def _refuse_functions(values: Sequence[Node]) -> None:
    """Raise UsageError where values are computed by functions of the running program, which have no file."""
    calls = [node.function for node in inputs_first(values) if isinstance(node.function, HookCall)]
    if calls:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(call.function for call in calls))
        raise UsageError(
            f"a plan file cannot hold functions of the running program, and the recipe calls {names}",
            hint="Carry the recipe out at once, or write the functions as a file of hooks.",
        )


def seal(saved: SavedPlan) -> str:
    """SHA-256, hexadecimal, of all that a saved plan says but the paths of its inputs, which may change."""
    inputs = [msgspec.structs.replace(form, path="") for form in saved.inputs]
    rest = msgspec.structs.replace(saved, inputs=inputs, sha256="")
    try:
        text = msgspec.json.encode(rest)
    except UnicodeEncodeError:  # as in `plan_file`
        text = json.dumps(msgspec.to_builtins(rest)).encode()
    return hashlib.sha256(text).hexdigest()


def known_kinds(hooks: HookFile | None) -> Mapping[str, type[Function]]:
    """The functions that values can have."""
    return kinds() if hooks is None else {**kinds(), HookCall.kind: HookCall}


def _hooks_form(hooks: HookFile | None) -> HooksForm | None:
    return None if hooks is None else HooksForm(os.path.abspath(hooks.file), hooks.sha256)


def _input_forms(plan: Plan) -> list[InputForm]:
    """The sources, each with those of its leaves that the plan shows."""
    seen = {(gone.source, gone.leaf.key.text): gone.leaf for gone in plan.dropped}
    for step in plan.steps:
        seen |= origins(step)
    of_source: dict[str, list[SeenForm]] = {}
    for (source, _), leaf in seen.items():
        of_source.setdefault(source, []).append(_seen_form(leaf))
    return [
        InputForm(
            *(i.name, urls.absolute(i.path), i.format, _files_form(i), i.step, i.item, i.leaves),
            tuple(of_source.get(i.name, ())),
        )
        for i in plan.inputs
    ]


def _seen_form(leaf: Leaf) -> SeenForm:
    shape, dtype = (None, None) if leaf.spec is None else (leaf.spec.shape, leaf.spec.dtype.name)
    indices = tuple(i for i, sequence in enumerate(leaf.key.sequences) if sequence)
    return SeenForm(leaf.key.names, leaf.kind, indices, shape, dtype, leaf.prng_impl or leaf.empty)


def _files_form(given: Input) -> dict[str, FileForm]:
    return {name: FileForm(one.size, one.version, one.sample) for name, one in given.files.items()}


def _destination_form(options: DestinationOptions) -> DestinationForm:
    path = None if options.path is None else urls.absolute(options.path)
    return DestinationForm(**{**asdict(options), "path": path})


def _rule_form(rule: RuleRef) -> RuleForm:
    value = None if rule.value is None else PlaceForm(**asdict(rule.value))
    return RuleForm(rule.path, rule.line, value, rule.name)


def _several(effects: Sequence[RuleEffect]) -> Sequence[RuleEffect]:
    """The effects of several rules; nothing where there is one, about which the leaf itself says all."""
    return effects if len(effects) > 1 else ()


def _output_form(step: Step, value: Any, rules: Mapping[RuleRef, int]) -> OutputForm:
    leaf, cut = step.leaf, step.cut
    return OutputForm(
        key=leaf.key.names,
        kind=leaf.kind,
        transfer=step.transfer,
        value=value,
        list_indices=tuple(i for i, sequence in enumerate(leaf.key.sequences) if sequence),
        shape=None if leaf.spec is None else leaf.spec.shape,
        dtype=None if leaf.spec is None else leaf.spec.dtype.name,
        served=step.served,
        chunks=None if cut is None else cut.chunks,
        block=None if cut is None else cut.block,
        pieces=() if cut is None else cut.pieces,
        sharding=leaf.sharding,
        prng_impl=leaf.prng_impl,
        string=leaf.string,
        empty=leaf.empty,
        rule=None if step.rule is None else rules[step.rule],
        effects=tuple([(rules[one.rule], one.renames, one.computes) for one in _several(step.effects)]),
    )


def plan_file(plan: Plan, saved: SavedPlan) -> bytes:
    """The JSON document of a plan, and what is read back of it."""
    document = {**plan_json(plan), SAVED: saved}
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
    except UnicodeEncodeError:  # halves of surrogate pairs, in names of files that are not UTF-8
        return json.dumps(msgspec.to_builtins(document), indent=1).encode() + b"\n"


# --- from a file to a plan --------------------------------------------------------------------------------


def read_plan_file(path: PathLike) -> SavedPlan | None:
    """A saved plan; None where the file is something else (a recipe, most likely).

    Raises UsageError for the report of a plan, for a plan of another version of the tool, for what no
    `plan --out` wrote, and for a plan that was changed since, but for the paths of its inputs.
    """
    try:
        text = Path(path).read_bytes()
        file = _decoded(text, _File)
    except msgspec.ValidationError as error:
        if " - at " not in str(error):
            return None  # no object
        raise _malformed(path, error) from error
    except (OSError, ValueError, RecursionError):
        return None  # load_recipe says what is wrong with the file
    found = file.saved
    if found is None and file.schema is not None and file.summary is not None:
        raise UsageError(f"{shown(os.fspath(path))} is {REPORT}", hint=SAVE)
    if found is None:
        return None
    if found.version != VERSION:
        raise UsageError(
            f"{shown(os.fspath(path))} was saved by version {shown(found.version or 'unknown')} of the tool; "
            f"this is {VERSION}",
            hint="Make the plan again with this version, or carry it out with that one.",
        )
    try:
        saved = _decoded(text, _WholeFile).saved
    except (ValueError, RecursionError) as error:
        raise _malformed(path, error) from error
    _check_paths(path, saved)
    if saved.sha256 != seal(saved):
        raise UsageError(
            f"{shown(os.fspath(path))}: the plan was changed after it was saved, or is damaged",
            hint="Make the plan again. Only the `path` of an input may be changed, to where it lies now.",
        )
    return saved


def _check_paths(path: PathLike, saved: SavedPlan) -> None:
    """Refuse paths that depend on the working directory, or that no file can have. Raises UsageError."""
    paths = {f"inputs[{number}].path": form.path for number, form in enumerate(saved.inputs)}
    if saved.destination.path is not None:
        paths["destination.path"] = saved.destination.path
    if saved.recipe.hooks is not None:
        paths["recipe.hooks.file"] = saved.recipe.hooks.file
    for field, named in paths.items():
        if "\0" in named or not (urls.is_url(named) or os.path.isabs(named)):
            raise not_saved(path, f"{SAVED}.{field}", f"{abridged(named)} is not an absolute path")


def _decoded(text: bytes, form: type[T]) -> T:
    """Raises ValueError where it is not JSON, or not of that form."""
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.ValidationError:
        raise
    except ValueError:  # Python takes halves of surrogate pairs
        return msgspec.convert(json.loads(text), form)


def _malformed(path: PathLike, error: Exception) -> UsageError:
    what, _, where = str(error).partition(" - at ")
    return not_saved(path, where.strip("`").removeprefix("$.") or SAVED, what)


def not_saved(path: PathLike, field: str, why: str) -> UsageError:
    """The error to raise for a document that no `plan --out` wrote."""
    return UsageError(
        f"{shown(os.fspath(path))}: not a plan that was saved: {field}: {shown(why)}",
        hint="Make the plan again.",
    )


def destination_options(saved: SavedPlan) -> DestinationOptions:
    """Where the plan writes, and how."""
    return DestinationOptions(**msgspec.structs.asdict(saved.destination))
