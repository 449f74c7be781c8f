"""Saved plans, opened again: their sources and hooks have to be what they were when the plan was made."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ckpt_surgery.core.errors import PlanError, UsageError
from ckpt_surgery.core.protocols import LinkMode, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import destination
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.planner.document import SavedPlan, destination_options, read_plan_file
from ckpt_surgery.planner.document_reading import restored
from ckpt_surgery.planner.options import DestinationOptions, PathLike, Prepared


@dataclass(frozen=True)
class SavedRequest:
    """A saved plan, and what was said anew: where to write, with how much, and what may run."""

    path: str
    """Path of the plan."""
    saved: SavedPlan
    destination: DestinationOptions
    memory: int
    workers: int
    allow_hooks: bool

    @property
    def inputs(self) -> list[str]:
        """Paths of the sources, and of the target where it is a checkpoint."""
        return [form.path for form in self.saved.inputs]


def saved_request(
    path: PathLike,
    given: Sequence[object],
    dst: PathLike | None,
    memory: int | None,
    workers: int | None,
    allow_hooks: bool,
    link_mode: LinkMode | str | None,
) -> SavedRequest | None:
    """What is to be done with a saved plan; None where the file is something else (a recipe, most likely).

    Raises UsageError where anything else is `given`, where the file is no plan of this version of the tool,
    and where it was not made for such a destination.
    """
    saved = read_plan_file(path)
    if saved is None:
        return None
    if any(value not in (None, (), []) for value in given):
        raise UsageError(
            f"{shown(os.fspath(path))} is a saved plan: it knows its sources and options",
            hint="Give nothing but the destination.",
        )
    planned = destination_options(saved)
    options = replace(
        planned,
        path=planned.path if dst is None else os.fspath(dst),
        link_mode=planned.link_mode if link_mode is None else LinkMode(link_mode),
    )
    text = os.fspath(path)
    if planned.link_mode is LinkMode.COPY and options.link_mode is not LinkMode.COPY:
        raise UsageError(
            f"{shown(text)} was made to copy: it does not know what could be linked",
            hint=f'Make the plan again with `link_mode="{options.link_mode}"`.',
        )
    named = formats.promised(options.name)
    if options.name != planned.name and named not in (None, options.format):
        raise UsageError(
            f"{shown(text)} was made for {options.format}, and {shown(options.name)} is named for {named}",
            hint="Choose another name, or make the plan again with this destination.",
        )
    return SavedRequest(text, saved, options, memory or saved.memory, workers or saved.workers, allow_hooks)


def opened_again(request: SavedRequest) -> Prepared:
    """The plan over its sources. Reads metadata only, and no recipe.

    Raises PlanError where a source or the hooks are not what they were, or hooks are not allowed, UsageError
    where the plan's file says what cannot be.
    """
    sources = _sources(request.saved)
    hooks = _hooks(request)
    plan = restored(
        request.path,
        request.saved,
        {name: source.leaves() for name, source in sources.items()},
        destination(request.destination, next(iter(sources.values())).metadata, request.inputs),
        hooks,
        request.memory,
        request.workers,
    )
    return Prepared(plan, sources, request.destination, request.memory, request.workers, hooks)


def _sources(saved: SavedPlan) -> Mapping[str, Source]:
    sources: dict[str, Source] = {
        form.name: formats.open_source(form.path, form.format, form.step, form.item) for form in saved.inputs
    }
    changed = [form.name for form in saved.inputs if sources[form.name].fingerprint() != form.fingerprint]
    if changed:
        raise PlanError(
            f"{', '.join(map(shown, changed))} changed since the plan was made", hint="Make the plan again."
        )
    return sources


def _hooks(request: SavedRequest) -> HookFile | None:
    hooks = request.saved.recipe.hooks
    if hooks is None:
        return None
    if not request.allow_hooks:
        raise PlanError(
            f"{shown(request.path)} has hooks: Python code, in {shown(hooks.file)}",
            hint="Read that file; then allow it to run: `allow_hooks=True`.",
        )
    return HookFile(Path(hooks.file), hooks.sha256)
