"""A run: from a request to a published result, in this process or on a cluster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ckpt_surgery.companions import Changes, Wanted, companions_of
from ckpt_surgery.completing import Ending, room_for, verify_and_publish
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.core.protocols import Companion
from ckpt_surgery.core.text import shown
from ckpt_surgery.destinations import open_sink, place_of
from ckpt_surgery.engine import signals, worker
from ckpt_surgery.engine.staging.life import staged
from ckpt_surgery.engine.staging.stages import Publication, stage_for
from ckpt_surgery.existing_items import check_after, check_before
from ckpt_surgery.planner.options import Prepared
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.preparing import check_values, prepare, sampled, with_recipe
from ckpt_surgery.prepublication import verify_mode
from ckpt_surgery.report.verification import Verify
from ckpt_surgery.requests import ConvertOptions, PlanOptions, Request, is_plan_file
from ckpt_surgery.results import Result, ended
from ckpt_surgery.saved_plans import saved_request

LOCAL = "local"
ENGINES = (LOCAL, "dask")
"""What carries out a plan."""


class RunArguments(TypedDict, total=False):
    """How a plan is carried out: what `apply` describes, and `convert` and `merge` take too."""

    overwrite: bool
    resume: bool
    verify: Verify | str
    copy_config: bool | None
    engine: str
    scheduler: str | None
    progress: Callable[[Progress], None] | None
    on_plan: Callable[[Plan], None] | None


class ApplyArguments(RunArguments, PlanOptions, total=False):
    """Arguments of `apply` that are given by name."""


class ConvertArguments(RunArguments, ConvertOptions, total=False):
    """Arguments of `convert` and `merge` that are given by name."""


@dataclass(frozen=True)
class RunOptions:
    """How a plan is carried out, in one form: `RunArguments`, with their defaults."""

    overwrite: bool = False
    resume: bool = False
    verify: Verify = Verify.FAST
    copy_config: bool | None = None
    engine: str = "local"
    scheduler: str | None = None
    progress: Callable[[Progress], None] | None = None
    on_plan: Callable[[Plan], None] | None = None


def run_options(given: RunArguments) -> RunOptions:
    """The options of a run among these arguments. Raises UsageError for a mode that is none."""
    chosen: dict[str, Any] = {
        name: value for name, value in given.items() if name in RunArguments.__annotations__
    }
    return RunOptions(**{**chosen, "verify": verify_mode(chosen.get("verify", Verify.FAST))})


def run_request(request: Request, options: RunOptions, changes: Changes | None = None) -> Result:
    """What `apply` does with the request and the options that its arguments are.

    `changes`: entries of the config that the result describes differently.
    """
    wanted = Wanted(options.copy_config, changes or {})
    request = (saved_request(request) if is_plan_file(request.recipe) else None) or request
    if on_cluster(options.engine, options.scheduler):
        return _on_cluster(request, options, wanted)
    started = time.monotonic()
    with signals.interruptible():
        prepared = sampled(plan_for_destination(request, options.overwrite))
        check_values(prepared.plan, prepared.sources)
        companions = companions_of(prepared, wanted)
        if options.on_plan is not None:
            options.on_plan(prepared.plan)
        result, notices = _run_here(prepared, place_of(request), options, companions)
    return ended(result, started, str(request.dst), notices)


def plan_for_destination(request: Request, overwrite: bool) -> Prepared:
    """The plan of a request whose result can be published at its destination."""
    where = place_of(request)
    replaces = check_before(where, request.inputs, request.beside, overwrite)
    return check_after(where, replaces, prepare(request), overwrite)


def on_cluster(engine: str, scheduler: str | None) -> bool:
    """Whether a plan is to be carried out on a cluster. Raises UsageError."""
    if engine not in ENGINES:
        raise UsageError(f"`engine`: {shown(repr(engine))} is not one of: {', '.join(ENGINES)}")
    if engine == LOCAL and scheduler is not None:
        raise UsageError("`scheduler` is for the engine `dask`", hint='Say so: `engine="dask"`.')
    return engine != LOCAL


def _on_cluster(request: Request, options: RunOptions, wanted: Wanted) -> Result:
    from ckpt_surgery import clusters  # imports what only clusters need

    if request.has_trees:
        raise UsageError(
            "a source or the target is in memory, which no worker has",
            hint="Save the tree as a checkpoint, or leave out `engine`.",
        )
    return clusters.run_on_cluster(with_recipe(request), options, wanted)


@memory_errors("write the checkpoint")
def _run_here(
    prepared: Prepared, where: Publication, options: RunOptions, companions: Sequence[Companion]
) -> tuple[Result, tuple[str, ...]]:
    """Returns the result, and the notices of its stage."""
    plan, memory, workers = prepared.plan, prepared.memory, prepared.workers
    with staged(stage_for(prepared, where), options.resume) as stage:
        sink = open_sink(prepared, where, stage.work, room_for(prepared))
        journal = stage.journal(worker.HERE)
        written = worker.run(plan, prepared.sources, sink, memory, workers, options.progress, journal=journal)
        ending = Ending(where, options.verify, companions, options.progress)
        result = verify_and_publish(prepared, sink, stage, written, ending)
    return result, stage.notices
