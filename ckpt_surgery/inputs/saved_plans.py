"""Saved plans: a request with all that it depends on, which has to plan to the same digest again."""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from ckpt_surgery.core import urls
from ckpt_surgery.core.errors import FunctionError, PlanError, Problem, SourcesChanged, UsageError
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.formats import destination_names
from ckpt_surgery.inputs.request import Request
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.planner.cutting import budget_for, room_of
from ckpt_surgery.planner.document import (
    MOST_BYTES,
    MOST_STEP,
    MOST_WORKERS,
    PlanFile,
    RecipeForm,
    RequestForm,
    SavedPlan,
    plan_file,
    read_plan_file,
)
from ckpt_surgery.planner.document_reading import looks_of
from ckpt_surgery.planner.identity import plan_digest
from ckpt_surgery.planner.listings import listing_json
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.planner.plan_json import step_json
from ckpt_surgery.planner.planning import peak_of
from ckpt_surgery.planner.target import TARGET

SAID_ANEW = frozenset({"recipe", "dst", "memory", "workers", "allow_hooks", "link_mode"})
"""The parts of a request that a saved plan leaves open."""
AGAIN = "Make the plan again."


# --- saving -----------------------------------------------------------------------------------------------


def document_of(prepared: Prepared, request: Request) -> bytes:
    """Write the text of a saved plan. `request` is the plan's, with its recipe loaded.

    Raises UsageError where something in it cannot be written.
    """
    plan, options = prepared.plan, prepared.destination
    for name, value, most in (
        ("workers", prepared.workers, MOST_WORKERS),
        ("memory", prepared.memory, MOST_BYTES),
        ("dst_step", options.step or 0, MOST_STEP),
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
    try:
        digest = plan_digest(prepared)
    except FunctionError as error:
        raise UsageError(*error.problems) from error
    return plan_file(
        plan,
        SavedPlan(
            version=VERSION,
            request=_request_form(prepared, request),
            recipe=None if loaded is None else _recipe_form(loaded),
            hooks=None if hooks is None else (os.path.abspath(hooks.file), hooks.sha256),
            inputs=tuple([one.name for one in plan.inputs]),
            configs=prepared.configs,
            target=None if prepared.listing is None else listing_json(prepared.listing),
            linked="".join(["1" if step.takes_files else "0" for step in plan.steps]),
            digest=digest,
            looks=looks_of(plan),
        ),
    )


def _request_form(prepared: Prepared, request: Request) -> RequestForm:
    """Pin the request: what it left open is as it was decided."""
    options = prepared.destination
    given = {name: getattr(request, name) for name in RequestForm.__struct_fields__}
    decided = {
        "format": options.format,
        "dst": options.path and urls.absolute(options.path),
        "dst_step": options.step,
        "dst_item": options.item,
        "link_mode": options.link_mode,
        "memory": prepared.memory,
        "workers": prepared.workers,
    }
    return RequestForm(**{**given, **decided})


def _recipe_form(loaded: LoadedRecipe) -> RecipeForm:
    rules = loaded.document.rules
    made_of = None if rules is None else tuple(rules.items())
    return RecipeForm(loaded.path, loaded.document.text, loaded.set_texts, made_of)


# --- opening ----------------------------------------------------------------------------------------------


def saved_request(request: Request, text: bytes | None = None) -> Request | None:
    """Read the request of a saved plan, with everything pinned; None where the file is something else.

    `request` names the plan, and says what it leaves open; `text` is that of its file, where it is at hand.
    Raises UsageError where the request has options that the plan decided already, where the file is a plan of
    another version of the tool, and where the plan was not made for such a destination.
    """
    path = request.recipe_path
    file = None if path is None else read_plan_file(path, text)
    if file is None:
        return None
    given = {f.name: getattr(request, f.name) for f in fields(Request)}
    given = {f.name: given[f.name] for f in fields(Request) if given[f.name] != f.default}
    decided = [name for name in given if name not in SAID_ANEW]
    if decided:
        named = ("the sources" if name == "sources" else f"`{name}=…`" for name in decided)
        raise UsageError(
            f"{shown(file.path)} is a saved plan, which has its sources and options",
            hint=f"Leave out {' and '.join(named)}, or make the plan again.",
        )
    recipe, planned = file.saved.recipe, file.saved.request
    link_mode = request.link_mode or planned.link_mode
    if planned.link_mode is LinkMode.COPY and link_mode is not LinkMode.COPY:
        raise UsageError(
            f"{shown(file.path)} was made to copy everything, so it does not say what can be linked",
            hint=f'Make the plan again with `link_mode="{link_mode}"`.',
        )
    _check_name(file.path, planned, request.dst)
    pinned = {
        **msgspec.structs.asdict(planned),
        "dst": planned.dst and urls.near(planned.dst),
        **given,
        "recipe": None if recipe is None else _loaded(recipe),
        "sources": tuple([i.path for i in file.inputs if i.name != TARGET]),
        "target": next((i.path for i in file.inputs if i.name == TARGET), None),
    }
    return Request(**pinned, pinned=file)


def _check_name(path: str, planned: RequestForm, dst: str | None) -> None:
    """Refuse a name that says another format than the planned one. Raises UsageError."""
    name, before = (os.path.basename(urls.absolute(one or "checkpoint")) for one in (dst, planned.dst))
    promised = destination_names.promised(name)
    if dst is not None and name != before and promised not in (None, planned.format):
        raise UsageError(
            f"{shown(path)} was made for {planned.format}, but the name {shown(name)} says {promised}",
            hint="Choose another name, or make the plan again with this destination.",
        )


def _loaded(form: RecipeForm) -> LoadedRecipe:
    rules = None if form.rules is None else dict(form.rules)
    return parse_recipe(form.text, form.path, form.set, rules=rules)


# --- planning again ---------------------------------------------------------------------------------------


def check_same_files(pinned: PlanFile, inputs: Sequence[Input]) -> None:
    """Raise SourcesChanged where files have other sizes or samples than when the plan was made.

    `inputs`: the same now, with the states of their files. Times do not count, nor where the files lie.
    """
    before = {one.name: one.files for one in pinned.inputs}
    problems = []
    for now in inputs:
        found = changes(before.get(now.name, {}), now.files, times=False)
        if found:
            what = f"{shown(now.name)} changed since the plan was made: {changes_text(found)}"
            problems.append(Problem(what, hint=AGAIN))
    if problems:
        raise SourcesChanged(*problems)


def load_hooks(pinned: PlanFile, allowed: bool) -> HookFile | None:
    """Run the file of hooks, if there is one. Raises PlanError where it has changed, or is not allowed."""
    if pinned.saved.hooks is None:
        return None
    file, sha256 = pinned.saved.hooks
    if not allowed:
        raise PlanError(
            f"{shown(pinned.path)} has hooks: Python code, in {shown(file)}",
            hint="Read that file; then allow it to run: `allow_hooks=True`.",
            code=Code.HOOKS,
        )
    return HookFile(Path(file), sha256)


def as_saved(prepared: Prepared, pinned: PlanFile) -> Prepared:
    """Check that a plan that was made again is the one that was saved.

    Raises PlanError where it is another one, or where one of its tasks needs more than the budget, UsageError
    where it copies what is to be linked.
    """
    plan, memory = prepared.plan, prepared.memory
    if plan_digest(prepared) != pinned.saved.digest:
        raise PlanError(
            f"{shown(pinned.path)}: planned again, it came out differently: {_difference(plan, pinned)}",
            hint=AGAIN,
        )
    _check_memory(plan, memory)
    if prepared.destination.link_mode is LinkMode.HARDLINK and plan.costs.bytes_linkable:
        size = bytes_text(plan.costs.bytes_linkable)
        raise UsageError(
            f"{shown(pinned.path)} was made to copy {size} that could be linked",
            hint='Make the plan again with `link_mode="hardlink"`.',
        )
    if memory == pinned.saved.request.memory:
        return prepared
    costs = replace(plan.costs, peak_memory=peak_of(plan.steps, memory, prepared.workers))
    return replace(prepared, plan=replace(plan, costs=costs))


def _difference(plan: Plan, pinned: PlanFile) -> str:
    """Name the first leaves that differ from those of the saved plan."""
    before = {one["key"]: one for one in pinned.document["leaves"]}
    now = {one["key"]: one for one in map(step_json, plan.steps)}
    about = ("components", "fate", "sources", "shape", "dtype")
    differing = [
        key
        for key in dict.fromkeys([*before, *now])
        if key not in before or key not in now or any(before[key].get(n) != now[key][n] for n in about)
    ]
    return few_keys(differing) if differing else "values, chunks or metadata differ"


def _check_memory(plan: Plan, memory: int) -> None:
    cut = [(step.cut.working_set, step.leaf) for step in plan.steps if step.cut is not None]
    needed, leaf = max(cut, key=lambda one: one[0], default=(0, None))
    if leaf is not None and needed > room_of(memory):
        raise PlanError(
            f"`{shown(leaf.key.printed)}`: one of its tasks needs {bytes_text(needed)}; the budget of "
            f"{bytes_text(memory)} leaves {bytes_text(room_of(memory))} for computing",
            hint=f'Give it more: `memory="{budget_for(needed)}"`; or make the plan again with this budget, '
            "which cuts finer.",
            code=Code.BUDGET,
        )
