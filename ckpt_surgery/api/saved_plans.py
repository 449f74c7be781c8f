"""Show saved plans: what they will do, and whether their sources still fit."""

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SurgeryError, UsageError
from ckpt_surgery.core.file_states import changes, changes_text
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs.opening import describe_inputs, with_states
from ckpt_surgery.planner.document import SAVED, RequestForm, not_saved, read_plan_file
from ckpt_surgery.planner.document_reading import shown_plan
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.storage.views import forget


@dataclass(frozen=True)
class ShownPlan:
    """A saved plan, read without its sources."""

    plan: Plan
    """The plan to look at; it cannot be run, since it holds neither values nor stored bytes."""
    request: RequestForm
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
    file = read_plan_file(path)
    if file is None:
        return None
    try:
        plan = shown_plan(file.document, file.saved.looks, file.inputs)
    except (SurgeryError, LookupError, TypeError, ValueError) as error:
        raise not_saved(path, f"{SAVED}.looks", str(error)) from error
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
        raise UsageError(
            f"{shown(str(path))} is a saved plan, which has its sources and options",
            hint=f"Leave out {' and '.join(given)} to see it, or name the recipe to make another plan.",
        )
