"""Requests pinned by a saved plan or a Plan object: they are planned again, and must give the same plan.

Neither reads the recipe again. Saved plans can be shown without their sources, with a note on whether these
still fit.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ckpt_surgery.core import errors, urls
from ckpt_surgery.core.arguments import LinkMode, PathLike
from ckpt_surgery.core.documents import plain
from ckpt_surgery.core.errors import (
    Code,
    FunctionError,
    PlanError,
    SourcesChanged,
    SurgeryError,
    UsageError,
)
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs.opening import describe_inputs, in_memory, open_input, with_states
from ckpt_surgery.inputs.options import SourceOptions
from ckpt_surgery.inputs.request import InMemory, Pinned, Request
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.live.source import FORMAT
from ckpt_surgery.planner import document
from ckpt_surgery.planner.cutting import budget_for, room_of, too_little
from ckpt_surgery.planner.document import looks_of, shown_plan
from ckpt_surgery.planner.listings import listed_leaves, listing_json
from ckpt_surgery.planner.plan import Input, Plan, origin_of, with_origin
from ckpt_surgery.planner.plan_json import planned_leaf
from ckpt_surgery.planner.planning import peak_of
from ckpt_surgery.planner.prepared import Prepared, plan_digest
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.storage.views import forget

if TYPE_CHECKING:
    from ckpt_surgery.live.carrying_out import Restoration

SAID_ANEW = frozenset({"recipe", "dst", "memory", "workers", "allow_hooks", "link_mode"})
"""Fields of a request that a plan leaves open."""
AGAIN = "Make the plan again."
THE_PLAN = "the plan"
"""Name of a Plan object in messages."""
APPLY = "apply"
RESTORE = "restore"
MADE_BY = {APPLY: "plan", RESTORE: "plan_restore"}
"""Function that makes the plans, by the function that carries them out."""


def links_of(plan: Plan) -> str:
    """Encode which outputs have files that may be linked: see `Pinned.linked`."""
    return "".join(["1" if step.takes_files else "0" for step in plan.steps])


def entries_of(plan: Plan) -> list[dict[str, Any]]:
    """The leaves of a plan's document: see `Pinned.leaves`."""
    return [plain(planned_leaf(step)) for step in plan.steps]


def decided_options(prepared: Prepared) -> dict[str, Any]:
    """Options that planning decided where the request left them open, by their fields of `Request`."""
    options = prepared.destination
    return {
        "format": options.format,
        "dst": options.path and urls.absolute(options.path),
        "dst_step": options.step,
        "dst_item": options.item,
        "link_mode": options.link_mode,
        "memory": prepared.memory,
        "workers": prepared.workers,
    }


def digest_of_plan(plan: Plan) -> str:
    """Digest of a plan; without its values where these call functions of this program, which have no text."""
    try:
        return plan_digest(plan)
    except FunctionError:
        return plan_digest(plan, with_values=False)


def pinned_request(pinned: Pinned, given: Request) -> Request:
    """Make the request that repeats the planning. `given` sets what the plan leaves open.

    Raises UsageError if it also sets what the plan has decided, or if the plan does not suit the destination.
    """
    said = {f.name: value for f in fields(Request) if (value := getattr(given, f.name)) != f.default}
    if decided := [name for name in said if name not in SAID_ANEW]:
        named = ("the sources" if name == "sources" else f"`{name}=…`" for name in decided)
        what = "is made already, and" if pinned.name == THE_PLAN else "is a saved plan, which"
        hint = f"Leave out {' and '.join(named)}, or make the plan again."
        raise UsageError(f"{shown(pinned.name)} {what} has its sources and options", hint=hint)
    planned = pinned.request
    link_mode = given.link_mode or planned.link_mode
    if planned.link_mode is LinkMode.COPY and link_mode is not LinkMode.COPY:
        problem = f"{shown(pinned.name)} was made to copy everything, so it does not say what can be linked"
        raise UsageError(problem, hint=f'Make the plan again with `link_mode="{link_mode}"`.')
    name, before = (os.path.basename(urls.absolute(dst or "checkpoint")) for dst in (given.dst, planned.dst))
    promised = formats.promised(name)
    if given.dst is not None and name != before and promised not in (None, planned.format):
        problem = f"{shown(pinned.name)} was made for {planned.format}, but {shown(name)} says {promised}"
        raise UsageError(problem, hint="Choose another name, or make the plan again with this destination.")
    dst = planned.dst and urls.near(planned.dst)
    return replace(planned, **{"dst": dst, **said, "recipe": planned.recipe, "pinned": pinned})


def reopen_sources(request: Request, pinned: Pinned) -> list[Source]:
    """Open the sources with the planned step, item and format. Raises SourcesChanged if one is missing."""
    planned = [options_of(source) for source in pinned.inputs if source.name != TARGET]
    try:
        return [open_input(source, **which) for source, which in zip(request.sources, planned, strict=True)]
    except UsageError as error:
        raise SourcesChanged(*error.problems) from error


def options_of(pinned: Input) -> SourceOptions:
    """Options that open an input with its planned step, item and format; none for a tree."""
    if pinned.format == FORMAT:
        return {}
    return {"step": pinned.step, "item": pinned.item, "src_format": pinned.format}


def check_same_sources(pinned: Pinned, inputs: Sequence[Input]) -> None:
    """Raise SourcesChanged if sources have changed since the plan was made. `inputs`: as they are now.

    With states, sizes and samples are compared, not times and places; without, names, sizes and times.
    """
    before = {planned.name: planned for planned in pinned.inputs}
    problems = []
    for now in inputs:
        planned = before[now.name]
        what = changes_text(changes(planned.files, now.files, times=False))
        if planned.fingerprint and not planned.files:
            same = planned.fingerprint == now.fingerprint
            what = "" if same else "its files have other names, sizes or times"
        if what:
            message = f"{shown(now.name)} changed since the plan was made: {what}"
            problems.append(errors.Problem(message, hint=AGAIN))
    if problems:
        raise SourcesChanged(*problems)


def load_hooks(name: str, hooks: tuple[str, str], allowed: bool) -> HookFile:
    """Run the hooks file of a plan. Raises PlanError if it has changed, or is not allowed."""
    file, sha256 = hooks
    if not allowed:
        hint = "Read that file; then allow it to run: `allow_hooks=True`."
        raise PlanError(f"{shown(name)} has hooks: Python code, in {shown(file)}", hint=hint, code=Code.HOOKS)
    return HookFile(Path(file), sha256)


def as_pinned(prepared: Prepared, pinned: Pinned) -> Prepared:
    """Check that the repeated plan equals the pinned one.

    Raises what `check_same_plan` raises, and UsageError where it copies what is to be linked.
    """
    plan, memory = prepared.plan, prepared.memory
    check_same_plan(plan, memory, pinned)
    if prepared.destination.link_mode is LinkMode.HARDLINK and plan.costs.bytes_linkable:
        size, hint = bytes_text(plan.costs.bytes_linkable), 'Make the plan again with `link_mode="hardlink"`.'
        raise UsageError(f"{shown(pinned.name)} was made to copy {size} that could be linked", hint=hint)
    if memory == pinned.request.memory:
        return prepared
    costs = replace(plan.costs, peak_memory=peak_of(plan.steps, memory, prepared.workers))
    return replace(prepared, plan=replace(plan, costs=costs))


def check_same_plan(plan: Plan, memory: int, pinned: Pinned) -> None:
    """Raise PlanError if a plan differs from the pinned one, or a task needs more than the budget."""
    if digest_of_plan(plan) != pinned.digest:
        about, both = ("components", "fate", "sources", "shape", "dtype"), (pinned.leaves(), entries_of(plan))
        before, now = ({e["key"]: [e.get(name) for name in about] for e in leaves} for leaves in both)
        differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        what = few_keys(differing) if differing else "values, chunks or metadata differ"
        problem = f"{shown(pinned.name)}: planned again, it came out differently: {what}"
        raise PlanError(problem, hint=AGAIN)
    cut = [(step.cut.working_set, step.leaf) for step in plan.steps if step.cut is not None]
    needed, leaf = max(cut, key=lambda task: task[0], default=(0, None))
    if leaf is not None and needed > room_of(memory):
        what = f"`{shown(leaf.key.printed)}`: one of its tasks needs {bytes_text(needed)}"
        otherwise = "; or make the plan again with this budget, which cuts finer"
        raise too_little(what, memory, room_of(memory), budget_for(needed), otherwise)


@dataclass(frozen=True, eq=False)
class PlanOrigin:
    """Inputs of planning that the Plan itself does not hold."""

    request: Request
    """The request as it was decided, with its recipe, hooks and trees loaded."""
    carried_out_by: str
    """The function that carries the plan out: `apply` or `restore`."""
    configs: Mapping[str, tuple[str, Mapping[str, Any]] | None] = field(default_factory=dict)
    """See `Pinned`, as for `listing`."""
    listing: Mapping[str, Leaf] | None = None


def remember_request(prepared: Prepared, request: Request) -> Plan:
    """Attach its origin to a plan, so that `apply` can carry it out. `request` has its recipe loaded."""
    decided = replace(request_of_inputs(request, prepared), **decided_options(prepared))
    origin = PlanOrigin(decided, APPLY, prepared.configs, prepared.listing)
    return with_origin(prepared.plan, origin)


def request_of_inputs(request: Request, planned: "Prepared | Restoration") -> Request:
    """Resolve the inputs of a request: trees as they are, absolute paths, and the hooks loaded."""
    given: dict[str, str | InMemory] = {
        i.name: InMemory(source) if in_memory(source := planned.sources[i.name]) else urls.absolute(i.path)
        for i in planned.plan.inputs
    }
    target = given.pop(TARGET, None)
    recipe = request.recipe
    if recipe is not None and planned.hooks is not None:
        recipe = replace(recipe, hooks=planned.hooks)
    chosen = replace(request, step=None, src_format=None, last=None, opened=())
    return replace(chosen, recipe=recipe, sources=tuple(given.values()), target=target)


def request_of_plan(given: Request, function: str) -> Request:
    """Make the request of a Plan given as the recipe. Raises UsageError if it does not suit `function`."""
    plan, origin = given.recipe, origin_of(given.recipe)
    if not isinstance(origin, PlanOrigin):
        why = "it was copied, changed or pickled, or is part of a result"
        hint = f"Give the Plan itself that `{MADE_BY[function]}` returned."
        raise UsageError(f"{THE_PLAN} has lost its sources: {why}", hint=hint)
    if (other := origin.carried_out_by) != function:
        made = f"{THE_PLAN} was made by `{MADE_BY[other]}`"
        hint = f"Call `{other}(plan)`, or make the plan with `{MADE_BY[function]}`."
        raise UsageError(f"{made}, and `{function}` carries out those of `{MADE_BY[function]}`", hint=hint)
    request = origin.request
    sources = tuple([urls.near(source) if isinstance(source, str) else source for source in request.sources])
    target = urls.near(request.target) if isinstance(request.target, str) else request.target
    pinned = Pinned(
        name=THE_PLAN,
        request=replace(request, sources=sources, target=target),
        inputs=plan.inputs,
        configs=origin.configs,
        listing=origin.listing,
        linked=links_of(plan),
        digest=digest_of_plan(plan),
        leaves=lambda: entries_of(plan),
    )
    return pinned_request(pinned, given)


def document_of(prepared: Prepared, request: Request) -> bytes:
    """Write a saved plan of a request whose recipe is loaded. Raises UsageError if it cannot be written."""
    plan, options = prepared.plan, prepared.destination
    for name, value, most in (
        ("workers", prepared.workers, document.MOST_WORKERS),
        ("memory", prepared.memory, document.MOST_BYTES),
        ("dst_step", options.step or 0, document.MOST_STEP),
    ):
        if value > most:
            raise UsageError(f"`{name}`: a saved plan can have {most} at most, not {value}")
    loaded: LoadedRecipe | None = request.recipe
    hooks = prepared.hooks
    if loaded is not None and loaded.hooks is not None and hooks is None:
        names = ", ".join(f"`{name}`" for name in getattr(loaded.hooks, "functions", ()))
        raise UsageError(
            f"a plan file cannot hold functions of the running program, and the recipe calls {names}",
            hint="Carry the recipe out at once, or write the functions as a file of hooks.",
        )
    if loaded is not None and loaded.function is not None:
        loaded.function.check_written()
    try:
        digest = plan_digest(plan)
    except FunctionError as error:
        raise UsageError(*error.problems) from error
    asked = {name: getattr(request, name) for name in document.RequestForm.__struct_fields__}
    recipe = None
    if loaded is not None:
        rules = loaded.document.rules
        made_of = None if rules is None else tuple(rules.items())
        recipe = document.RecipeForm(loaded.path, loaded.document.text, loaded.set_texts, made_of)
    saved = document.SavedPlan(
        version=VERSION,
        request=document.RequestForm(**{**asked, **decided_options(prepared)}),
        recipe=recipe,
        hooks=None if hooks is None else (os.path.abspath(hooks.file), hooks.sha256),
        inputs=tuple([i.name for i in plan.inputs]),
        configs=prepared.configs,
        target=None if prepared.listing is None else listing_json(prepared.listing),
        linked=links_of(plan),
        digest=digest,
        looks=looks_of(plan),
    )
    return document.plan_file(plan, saved)


def saved_request(request: Request, text: bytes | None = None) -> Request | None:
    """Read the request of a saved plan, with everything pinned; None where the file is something else.

    `request` says what the plan leaves open; `text` is that of its file, where it is at hand. Raises
    UsageError for options that the plan has decided, another version, and a destination that does not suit.
    """
    path = request.recipe_path
    file = None if path is None else document.read_plan_file(path, text)
    if file is None:
        return None
    saved, form = file.saved, file.saved.recipe
    rules = None if form is None or form.rules is None else dict(form.rules)
    planned = Request(
        **msgspec.structs.asdict(saved.request),
        recipe=None if form is None else parse_recipe(form.text, form.path, form.set, rules=rules),
        sources=tuple([i.path for i in file.inputs if i.name != TARGET]),
        target=next((i.path for i in file.inputs if i.name == TARGET), None),
    )
    pinned = Pinned(
        name=file.path,
        request=planned,
        inputs=file.inputs,
        configs=saved.configs,
        listing=None if saved.target is None else listed_leaves(file.path, saved.target),
        linked=saved.linked,
        digest=saved.digest,
        leaves=lambda: file.document["leaves"],
        hooks=saved.hooks,
        text=file.text,
    )
    return pinned_request(pinned, request)


@dataclass(frozen=True)
class ShownPlan:
    """A saved plan, read without its sources."""

    plan: Plan
    """The plan to look at; it cannot be run, since it holds neither values nor stored bytes."""
    request: document.RequestForm
    """The pinned request, with the budget that the plan was made with."""
    misfits: Mapping[str, str | None]
    """For each source by its name, why it no longer fits the plan, as a clause; None where it fits."""


@memory_errors("show the saved plan")
def show_plan(path: PathLike) -> ShownPlan | None:
    """Read a saved plan for display; None if the file is something else. Writes nothing, and runs no hook.

    Existing sources are opened to see whether they have changed. Raises UsageError for a plan that was
    damaged or changed, or saved by another version.
    """
    forget()
    file = document.read_plan_file(path)
    if file is None:
        return None
    try:
        plan = shown_plan(file.document, file.saved.looks, file.inputs)
    except (SurgeryError, LookupError, TypeError, ValueError) as error:
        raise document.not_saved(path, f"{document.SAVED}.looks", str(error)) from error
    return ShownPlan(plan, file.saved.request, {source.name: _misfit(source) for source in plan.inputs})


def _misfit(before: Input) -> str | None:
    """Reason why a source no longer fits; None if it fits."""
    try:
        sources = {before.name: opening.open_source(before.path, before.format, before.step, before.item)}
        now = with_states(describe_inputs(sources), sources)[0]
    except SurgeryError as error:
        return f"cannot be opened: {error.problems[0].message}"
    changed = changes(before.files, now.files, times=False)
    return f"changed since the plan was made: {changes_text(changed)}" if changed else None


def refuse_arguments(path: PathLike, given: list[str]) -> None:
    """Refuse arguments that a saved plan has decided. Raises UsageError."""
    if given:
        hint = f"Leave out {' and '.join(given)} to see it, or name the recipe to make another plan."
        raise UsageError(f"{shown(str(path))} is a saved plan, which has its sources and options", hint=hint)
