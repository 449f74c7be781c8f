"""Reads a saved plan back, over sources that are opened again.

Everything in the document is checked against the rest of it and against the sources. Everything that follows
from it (fates, working sets, costs, the manifests of stored bytes) is worked out again.
"""

import functools
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import msgspec

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.arrays import ArraySpec, Shape
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError, Place, PlanError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.protocols import DataFile
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.functions.fields import Mismatch, json_value, typed
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.functions.streams import block_shape
from ckpt_surgery.graph.node_json import NodeReader
from ckpt_surgery.graph.nodes import Node, Read, Spare, streams_of
from ckpt_surgery.language.hooks import HookCall, HookFile
from ckpt_surgery.language.params import ParamValue
from ckpt_surgery.planner.cutting import Cut, budget_for, measured, room_of, signature
from ckpt_surgery.planner.document import SAVED, known_kinds, not_saved
from ckpt_surgery.planner.document_forms import (
    DroppedForm,
    OutputForm,
    ParamForm,
    RuleForm,
    SavedPlan,
    SeenForm,
)
from ckpt_surgery.planner.entries import RuleEffect, RuleRef
from ckpt_surgery.planner.plan import Costs, Dropped, DroppedItem, Input, Plan, Step, Transfer
from ckpt_surgery.planner.planning import ambiguous, costs_of, origin
from ckpt_surgery.planner.transfers import Destination, Linkable, adopted, dead_bytes, transfers_of

T = TypeVar("T")
U = TypeVar("U")


class _Malformed(Exception):
    """A field of a saved plan does not go with the others, or with the sources."""

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


def _refuse(field: str, message: str) -> NoReturn:
    raise _Malformed(field, message)


def restored(
    path: PathLike,
    saved: SavedPlan,
    listings: Mapping[str, Mapping[str, Leaf]],
    destination: Destination,
    hooks: HookFile | None,
    memory: int,
    workers: int,
) -> Plan:
    """The plan of a document that was read from `path`: with the same chunks, whatever the memory in bytes.

    Its `inputs` are left empty: the caller has opened the sources, and describes them as they are now.

    Bytes that the document links are copied if the destination is on another file system, or where only
    reflinks would be safe and it has none.

    Raises UsageError for a document that contradicts itself or the sources, PlanError where a task needs more
    than `memory`, or where the destination cannot hold an output.
    """
    try:
        return _plan(saved, listings, destination, hooks, memory, workers)
    except _Malformed as error:
        raise not_saved(path, f"{SAVED}.{error.field}", str(error)) from error


def _plan(
    saved: SavedPlan,
    listings: Mapping[str, Mapping[str, Leaf]],
    destination: Destination,
    hooks: HookFile | None,
    memory: int,
    workers: int,
) -> Plan:
    rules = [_rule(form) for form in saved.rules]
    reader = NodeReader(listings, known_kinds(hooks), {"hooks": hooks})
    _each(saved.shared, "shared", reader.share)
    make = _StepMaker(reader, rules, destination)
    steps = _each(saved.outputs, "outputs", make.step)
    dropped = _each(saved.dropped, "dropped", lambda form: _dropped(form, listings, rules))
    _check_destination(steps, destination)
    _check_memory(steps, memory)
    linked = [step.stored for step in steps if step.stored is not None and step.takes_files]
    looked_at = replace(destination, data_file=make.data_file)
    linkable = transfers_of([step.stored for step in steps], looked_at).linkable
    return Plan(
        recipe=saved.recipe.path,
        recipe_sha256=saved.recipe.sha256,
        inputs=(),
        steps=tuple(steps),
        dropped=tuple(dropped),
        warnings=tuple(saved.warnings),
        costs=costs_of(steps, memory, workers, dead_bytes(linked, make.data_file), linkable),
        metadata=_metadata(saved.metadata),
        params=tuple(_each(saved.params, "params", _param)),
        hooks_sha256=None if hooks is None else hooks.sha256,
        restorable_by=destination.restorable_by([step.leaf for step in steps]),
    )


# --- without sources --------------------------------------------------------------------------------------


class _NoHooks:
    """Stands for the hooks of a plan that is shown: none of them is loaded, and none is called."""

    def function(self, name: str) -> None:
        """Nothing: there is no function to call."""


def read_without_sources(path: PathLike, saved: SavedPlan) -> Plan:
    """The plan of a document that was read from `path`, to be shown: nothing can be carried out with it.

    It is what the document says; no source is opened, and no hook is loaded. Raises UsageError for a document
    that contradicts itself.
    """
    try:
        return _shown(saved)
    except _Malformed as error:
        raise not_saved(path, f"{SAVED}.{error.field}", str(error)) from error


def _shown(saved: SavedPlan) -> Plan:
    hooks = saved.recipe.hooks
    rules = [_rule(form) for form in saved.rules]
    listings = {form.name: {leaf.key.text: leaf for leaf in map(_seen, form.seen)} for form in saved.inputs}
    types = kinds() if hooks is None else {**kinds(), HookCall.kind: HookCall}
    reader = NodeReader(listings, types, {"hooks": _NoHooks()})
    _each(saved.shared, "shared", reader.share)
    return Plan(
        recipe=saved.recipe.path,
        recipe_sha256=saved.recipe.sha256,
        inputs=tuple([Input(i.name, i.path, i.format, i.leaves, "", i.step, i.item) for i in saved.inputs]),
        steps=tuple(_each(saved.outputs, "outputs", lambda form: _shown_step(form, reader, rules))),
        dropped=tuple(_each(saved.dropped, "dropped", lambda form: _dropped(form, listings, rules))),
        warnings=tuple(saved.warnings),
        costs=Costs(**msgspec.structs.asdict(saved.costs)),
        metadata=_metadata(saved.metadata),
        params=tuple(_each(saved.params, "params", _param)),
        hooks_sha256=None if hooks is None else hooks.sha256,
        dropped_items=tuple([DroppedItem(**msgspec.structs.asdict(form)) for form in saved.dropped_items]),
        restorable_by=saved.restorable_by,
    )


def _seen(form: SeenForm) -> Leaf:
    """A leaf of a source as the plan has seen it."""
    spec = None
    if form.shape is not None and form.dtype is not None:
        spec = ArraySpec(form.shape, dtype_named(form.dtype))
    key = Key(form.key, tuple(i in form.list_indices for i in range(len(form.key))))
    prng = form.about if form.kind is LeafKind.PRNG_KEY else None
    return Leaf(key, form.kind, spec, prng_impl=prng, empty=None if prng else form.about)


def _shown_step(form: OutputForm, reader: NodeReader, rules: Sequence[RuleRef]) -> Step:
    key = _key(form)
    value = reader.node(form.value)
    fate, sources = origin(key, value)
    effects = tuple([RuleEffect(_numbered(rules, n), *changed) for n, *changed in form.effects])
    rule = None if form.rule is None else _numbered(rules, form.rule)
    leaf = _leaf(form, key, value)
    return Step(leaf, value, fate, rule, sources, form.transfer, served=form.served, effects=effects)


# --- parts ------------------------------------------------------------------------------------------------


def _each(forms: Sequence[T], name: str, read: Callable[[T], U]) -> list[U]:
    """The result of `read` for each form; errors name the number of the form."""
    made: list[U] = []
    for number, form in enumerate(forms):
        try:
            made.append(read(form))
        except _Malformed as error:
            raise _Malformed(f"{name}[{number}].{error.field}", str(error)) from error
        except FunctionError as error:
            field = ".value" if isinstance(form, OutputForm) else ""
            raise _Malformed(f"{name}[{number}]{field}", error.problems[0].message) from error
    return made


def _param(form: ParamForm) -> ParamValue:
    try:
        value = typed(json_value(form.value), str | bool | int | float | tuple[Any, ...])
    except Mismatch as error:
        raise _Malformed("value", "neither text nor a number nor a list of those") from error
    return ParamValue(form.name, value, form.origin, form.entry, form.note)


def _rule(form: RuleForm) -> RuleRef:
    value = None if form.value is None else Place(**msgspec.structs.asdict(form.value))
    return RuleRef(form.path, form.line, (), value, form.name)


def _numbered(rules: Sequence[RuleRef], number: int) -> RuleRef:
    if number >= len(rules):
        _refuse("rule", f"there are {len(rules)} rules, none has the number {number}")
    return rules[number]


def _dropped(
    form: DroppedForm, listings: Mapping[str, Mapping[str, Leaf]], rules: Sequence[RuleRef]
) -> Dropped:
    if form.source not in listings:
        _refuse("source", f"not a source: `{form.source}`")
    if form.key not in listings[form.source]:
        _refuse("key", f"`{form.source}` has no leaf `{form.key}`")
    rule = None if form.rule is None else _numbered(rules, form.rule)
    earlier = tuple([_numbered(rules, number) for number in form.earlier])
    return Dropped(form.source, listings[form.source][form.key], rule, form.why, earlier)


def _metadata(text: str) -> Mapping[str, Any]:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Malformed("metadata", f"not JSON: {error}") from error
    if not isinstance(metadata, dict):
        _refuse("metadata", "not a JSON object")
    return metadata


def _check_destination(steps: Sequence[Step], destination: Destination) -> None:
    problems = ambiguous(steps, lambda rule: rule.value)
    refused = destination.encoder.unsupported([step.leaf for step in steps])
    if not destination.holds_empty:
        refused += [
            f"`{shown(step.leaf.key.printed)}` is an empty node, and {destination.format} holds none"
            for step in steps
            if step.leaf.kind is LeafKind.EMPTY
        ]
    if problems or refused:
        raise PlanError(*problems, *refused, code=Code.UNSUITED)


def _check_memory(steps: Sequence[Step], memory: int) -> None:
    computed = [step for step in steps if step.cut is not None]
    largest = max(computed, key=lambda step: step.cut.working_set if step.cut else 0, default=None)
    if largest is None or largest.cut is None or largest.cut.working_set <= room_of(memory):
        return
    needed = largest.cut.working_set
    raise PlanError(
        f"`{shown(largest.leaf.key.printed)}`: one of its tasks needs {bytes_text(needed)}; the budget of "
        f"{bytes_text(memory)} leaves {bytes_text(room_of(memory))} for computing",
        hint=f'Give it more: `memory="{budget_for(needed)}"`; or make the plan again with this budget, '
        "which cuts finer.",
        code=Code.BUDGET,
    )


class _StepMaker:
    """Makes the steps of a plan from its document."""

    def __init__(self, reader: NodeReader, rules: Sequence[RuleRef], destination: Destination):
        self._reader = reader
        self._rules = rules
        self._destination = destination
        self._spare = Spare()
        self._keys: set[str] = set()
        self._cuts: dict[Hashable, Cut] = {}
        self.data_file: Callable[[str], DataFile] = functools.cache(destination.data_file)

    def step(self, form: OutputForm) -> Step:
        """One output. Raises _Malformed for a contradiction, FunctionError for an invalid value."""
        key = _key(form)
        if key.text in self._keys:
            _refuse("key", f"`{key.text}` occurs twice")
        self._keys.add(key.text)
        value = self._reader.node(form.value)
        leaf = _leaf(form, key, value)
        effects = tuple([RuleEffect(_numbered(self._rules, n), *changed) for n, *changed in form.effects])
        rule = None if form.rule is None else _numbered(self._rules, form.rule)
        fate, sources = origin(key, value)
        if form.transfer is not Transfer.COMPUTE:
            stored = self._stored(form, leaf, value)
            taken = self._takes_files(form, stored)
            served = taken and self._destination.served
            transfer = Transfer.LINK if taken and not served else Transfer.COPY
            return Step(leaf, value, fate, rule, sources, transfer, None, stored, served, effects)
        cut = self._cut(form, leaf, value)
        return Step(leaf, value, fate, rule, sources, form.transfer, cut, effects=effects)

    def _stored(self, form: OutputForm, leaf: Leaf, value: Node) -> Manifest:
        _check_uncut(form)
        stored = adopted(leaf, value, self._destination, self._spare)
        if stored is None:
            _refuse("transfer", f"no stored bytes can become this output as they are ({form.transfer})")
        return stored

    def _takes_files(self, form: OutputForm, stored: Manifest) -> bool:
        linkable = self._destination.linkable
        if (form.transfer is Transfer.COPY and not form.served) or linkable is None:
            return False
        files = {chunk.file for chunk in stored.chunks.values() if chunk.inline is None}
        return all(linkable(self.data_file(file)) is Linkable.YES for file in files)

    def _cut(self, form: OutputForm, leaf: Leaf, value: Node) -> Cut | None:
        if leaf.spec is None:
            _check_uncut(form)
            return None
        chunks, block = _grid(form, leaf.spec.shape)
        if self._destination.encoder.grid(leaf, chunks) != chunks:
            _refuse("chunks", f"{self._destination.format} cannot write chunks of {list(chunks)} one by one")
        alike = (signature(value), chunks, block, form.pieces)
        if alike not in self._cuts:
            _check_pieces(form, value)
            self._cuts[alike] = measured(value, chunks, block, form.pieces)
        return self._cuts[alike]


def _key(form: OutputForm) -> Key:
    for index in form.list_indices:
        if index >= len(form.key) or not form.key[index].isdecimal():
            _refuse("list_indices", f"component {index} of the key is not a list index")
    return Key(form.key, tuple(i in form.list_indices for i in range(len(form.key))))


def _leaf(form: OutputForm, key: Key, value: Node) -> Leaf:
    """The leaf as it will be written. Its description in the document must be that of its value."""
    if form.kind is LeafKind.OBJECT:
        _refuse("kind", "no checkpoint holds objects")
    listed = value.leaf.spec is None if isinstance(value, Read) else False
    if listed != (form.kind in (LeafKind.STRING, LeafKind.EMPTY)):
        _refuse("kind", f"the value is {'no array' if listed else 'an array'}, which is not {form.kind}")
    spec = None if listed else value.spec
    shape, dtype = (None, None) if spec is None else (spec.shape, spec.dtype.name)
    if form.shape != shape:
        _refuse("shape", f"the value has the shape {_text(shape)}, not {_text(form.shape)}")
    if form.dtype != dtype:
        _refuse("dtype", f"the value is {dtype}, not {form.dtype}")
    said = {
        LeafKind.STRING: ("string", form.string),
        LeafKind.EMPTY: ("empty", form.empty),
        LeafKind.PRNG_KEY: ("prng_impl", form.prng_impl),
    }
    for kind, (name, text) in said.items():
        if (kind is form.kind) != (text is not None):
            _refuse(name, f"{form.kind} has none" if text is not None else f"{form.kind} needs it")
    return Leaf(key, form.kind, spec, None, form.sharding, form.prng_impl, form.string, form.empty)


def _check_uncut(form: OutputForm) -> None:
    for name, lengths in (("chunks", form.chunks), ("block", form.block), ("pieces", form.pieces or None)):
        if lengths is not None:
            _refuse(name, "only a computed output has it")


def _grid(form: OutputForm, shape: Shape) -> tuple[Shape, Shape]:
    """Chunks and block of what is computed."""
    for name, lengths in (("chunks", form.chunks), ("block", form.block)):
        if lengths is None or len(lengths) != len(shape):
            _refuse(name, f"one length for each of {len(shape)} axes is needed")
    chunks, block = form.chunks or (), form.block or ()
    if any(chunk > max(1, length) for chunk, length in zip(chunks, shape, strict=True)):
        _refuse("chunks", f"{_text(chunks)} is larger than {_text(shape)}, the shape")
    if any(length % chunk for length, chunk in zip(block, chunks, strict=True)):
        _refuse("block", f"{_text(block)} is not made of whole chunks of {_text(chunks)}")
    return chunks, block


def _check_pieces(form: OutputForm, value: Node) -> None:
    """Refuse what is no whole blocks of the inputs of the streams that a value needs."""
    streams = streams_of(value)
    if len(form.pieces) != len(streams):
        _refuse("pieces", f"the value has {len(streams)} parts that are computed in streams")
    for node, piece in zip(streams, form.pieces, strict=True):
        blocks = block_shape(node.inputs[0].spec.shape)
        if len(piece) != len(blocks) or any(n % block for n, block in zip(piece, blocks, strict=True)):
            _refuse("pieces", f"{_text(piece)} is not made of whole blocks of {_text(blocks)}")


def _text(shape: Shape | None) -> str:
    return str(shape and list(shape))
