"""Saved plans, opened again: sources and hooks must be what they were when the plan was made."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ckpt_surgery.core.errors import PlanError, Problem, UsageError
from ckpt_surgery.core.file_states import FileState, changes, changes_text
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.protocols import LinkMode
from ckpt_surgery.core.text import bytes_text, shown
from ckpt_surgery.destinations import destination
from ckpt_surgery.dropped_items import dropped_items
from ckpt_surgery.formats import destination_names
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.document import destination_options, read_plan_file
from ckpt_surgery.planner.document_forms import SavedPlan
from ckpt_surgery.planner.document_reading import restored
from ckpt_surgery.planner.options import DestinationOptions, Prepared
from ckpt_surgery.planner.plan import Input
from ckpt_surgery.preparing import described, with_states
from ckpt_surgery.requests import Request

SAID_ANEW = frozenset({"recipe", "dst", "memory", "workers", "allow_hooks", "link_mode"})
"""The parts of a request that a saved plan leaves open."""


class SourcesChanged(PlanError):
    """A source is not what it was when the plan was made."""


@dataclass(frozen=True)
class SavedRequest:
    """A saved plan, and what the caller decides: destination, memory, threads, and whether hooks run."""

    path: str
    """Path of the plan."""
    saved: SavedPlan
    destination: DestinationOptions
    memory: int
    """Budget in bytes."""
    workers: int
    allow_hooks: bool

    @property
    def inputs(self) -> list[str]:
        """Paths of the sources and, where the target is a checkpoint, of the target."""
        return [form.path for form in self.saved.inputs]

    @property
    def beside(self) -> list[str]:
        """Paths of the other files that are read: the plan, and its hooks."""
        hooks = self.saved.recipe.hooks
        return [self.path, *([] if hooks is None else [hooks.file])]


def saved_request(request: Request) -> SavedRequest | None:
    """What to do with the saved plan that a request names; None where the file is something else.

    Raises UsageError where the request has options that the plan decided already, where the file is a plan of
    another version of the tool, and where the plan was not made for such a destination.
    """
    path = request.recipe_path
    saved = None if path is None else read_plan_file(path)
    if path is None or saved is None:
        return None
    given = [f.name for f in fields(Request) if getattr(request, f.name) != f.default]
    decided = [name for name in given if name not in SAID_ANEW]
    if decided:
        named = ("the sources" if name == "sources" else f"`{name}=…`" for name in decided)
        raise UsageError(
            f"{shown(path)} is a saved plan, which has its sources and options",
            hint=f"Leave out {' and '.join(named)}, or make the plan again.",
        )
    planned = destination_options(saved)
    options = replace(
        planned,
        path=planned.path if request.dst is None else request.dst,
        link_mode=request.link_mode or planned.link_mode,
    )
    if planned.link_mode is LinkMode.COPY and options.link_mode is not LinkMode.COPY:
        raise UsageError(
            f"{shown(path)} was made to copy everything, so it does not say what can be linked",
            hint=f'Make the plan again with `link_mode="{options.link_mode}"`.',
        )
    promised = destination_names.promised(options.name)
    if options.name != planned.name and promised not in (None, options.format):
        raise UsageError(
            f"{shown(path)} was made for {options.format}, but the name {shown(options.name)} "
            f"says {promised}",
            hint="Choose another name, or make the plan again with this destination.",
        )
    memory, workers = request.memory or saved.memory, request.workers or saved.workers
    return SavedRequest(path, saved, options, memory, workers, request.allow_hooks)


@memory_errors("open the saved plan")
def opened_again(request: SavedRequest) -> Prepared:
    """The plan over its sources, which are opened again. Reads metadata only, and no recipe.

    Raises PlanError where a source or the hooks have changed, or hooks are not allowed, UsageError where the
    plan's file contradicts itself or the sources, or copies what is to be linked.
    """
    sources = {
        form.name: formats.open_source(form.path, form.format, form.step, form.item)
        for form in request.saved.inputs
    }
    inputs = with_states(described(sources), sources)
    _check_unchanged(request.saved, inputs)
    hooks = _hooks(request)
    plan = restored(
        request.path,
        request.saved,
        {name: source.leaves() for name, source in sources.items()},
        destination(request.destination, next(iter(sources.values())).metadata, list(sources.values())),
        hooks,
        request.memory,
        request.workers,
    )
    if request.destination.link_mode is LinkMode.HARDLINK and plan.costs.bytes_linkable:
        size = bytes_text(plan.costs.bytes_linkable)
        raise UsageError(
            f"{shown(request.path)} was made to copy {size} that could be linked",
            hint='Make the plan again with `link_mode="hardlink"`.',
        )
    items, chosen = dropped_items(sources, request.destination), request.destination.chosen
    plan = replace(plan, inputs=inputs, dropped_items=items, destination=chosen)
    return Prepared(plan, sources, request.destination, request.memory, request.workers, hooks)


def _check_unchanged(saved: SavedPlan, inputs: Sequence[Input]) -> None:
    """Raise SourcesChanged where files have other sizes or samples than when the plan was made.

    Times do not count, nor where the files lie.
    """
    problems = []
    for form, now in zip(saved.inputs, inputs, strict=True):
        before = {n: FileState(f.size, version=f.version, sample=f.sample) for n, f in form.files.items()}
        found = changes(before, now.files, times=False)
        if found:
            what = f"{shown(form.name)} changed since the plan was made: {changes_text(found)}"
            problems.append(Problem(what, hint="Make the plan again."))
    if problems:
        raise SourcesChanged(*problems)


def _hooks(request: SavedRequest) -> HookFile | None:
    hooks = request.saved.recipe.hooks
    if hooks is None:
        return None
    if not request.allow_hooks:
        raise PlanError(
            f"{shown(request.path)} has hooks: Python code, in {shown(hooks.file)}",
            hint="Read that file; then allow it to run: `allow_hooks=True`.",
            code=Code.HOOKS,
        )
    return HookFile(Path(hooks.file), hooks.sha256)
