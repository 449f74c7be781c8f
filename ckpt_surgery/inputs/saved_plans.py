"""Saved plans: write them, read their requests, and show them without their sources."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import FunctionError, SurgeryError, UsageError
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.text import shown
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs.opening import describe_inputs, with_states
from ckpt_surgery.inputs.pinned import decided_options, links_of, pinned_request
from ckpt_surgery.inputs.request import Pinned, Request
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.planner import document
from ckpt_surgery.planner.document import (
    looks_of,
    shown_plan,
)
from ckpt_surgery.planner.identity import plan_digest
from ckpt_surgery.planner.listings import listed_leaves, listing_json
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.planner.target import TARGET
from ckpt_surgery.storage.views import forget


def document_of(prepared: Prepared, request: Request) -> bytes:
    """Write the text of a saved plan. `request` is the plan's, with its recipe loaded.

    Raises UsageError where something in it cannot be written.
    """
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

    `request` names the plan, and says what it leaves open; `text` is that of its file, where it is at hand.
    Raises UsageError where the request has options that the plan decided already, where the file is a plan of
    another version of the tool, and where the plan was not made for such a destination.
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
    """Read a saved plan for display; None if the file is something else.

    Existing sources are opened to see whether they have changed since the plan was made. Nothing is written,
    no array is read but samples of files, and no hook is loaded. Raises UsageError for a plan that was
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
