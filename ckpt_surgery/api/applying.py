"""`plan`, `apply` and `convert`; `apply_shard` and `commit`, by which several machines carry a plan out."""

import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Unpack, cast

from ckpt_surgery.core import arguments
from ckpt_surgery.core.arguments import Assignments, CheckpointLike, Function, PathLike, RecipeLike, one_of
from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.progress import ProgressLike
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.engine.parts import head_of, missing, part_of
from ckpt_surgery.engine.staging.objects import roll_forward
from ckpt_surgery.engine.tasks import shares
from ckpt_surgery.inputs import output_files
from ckpt_surgery.inputs.matching import recipe_of_selection
from ckpt_surgery.inputs.opening import with_recipe, with_samples
from ckpt_surgery.inputs.options import PlanOptions, SourceOptions
from ckpt_surgery.inputs.pinned import APPLY, document_of, remember_request, request_of_plan, saved_request
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, checked_path, is_plan_file, requested
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.report.results import ShardResult
from ckpt_surgery.report.verification import MODES, Verify
from ckpt_surgery.runs import run, shards
from ckpt_surgery.runs.destination import place_of
from ckpt_surgery.runs.run import ApplyArguments, ConvertArguments, Result, RunOptions
from ckpt_surgery.runs.sidecars import find_sidecars
from ckpt_surgery.system import signals
from ckpt_surgery.system.progress_bars import reported

interruptible = signals.interruptible
"""Context in which SIGINT, SIGTERM and SIGHUP raise Interrupted: for programs that report what was done."""

LOCAL = "local"
ENGINES = (LOCAL, "dask")
"""Values of `engine`."""


@arguments.takes(PlanOptions, Request)
def plan(
    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | None,
    *sources: CheckpointLike,
    dst: PathLike | None = None,
    overwrite: bool = False,
    out: PathLike | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Decide what `apply` would do, from metadata alone, and create nothing but the file `out`.

    `recipe` is the path of a recipe, `@name` of one that comes with the package, the text of a recipe (of
    more than one line), its document as a mapping, a recipe from `ckpt_surgery.read_recipe`, a function of
    the sources' trees (see `ckpt_surgery.from_function`), or None, which keeps every leaf. `sources` are
    paths of checkpoints, or pytrees, whose keys are those under which Orbax would save them. With `dst`,
    everything is refused that `apply` would refuse there; `overwrite` allows it to exist. `out` is the path
    of a JSON file in which the plan is saved, for `apply`; an existing plan is replaced, any other file only
    with `overwrite`. The Plan that is returned can be given to `apply`; it keeps the trees among its inputs
    alive.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found;
    DestinationError or StorageError where nothing could be published at `dst`.
    """
    return plan_request(requested(recipe, sources, dst, options), overwrite, out)


def plan_request(request: Request, overwrite: bool, out: PathLike | None = None) -> Plan:
    """Plan a request, and save the plan in `out`. `overwrite`, `out`: see `plan`."""
    if out is not None:
        if request.has_trees:
            problem = "the plan cannot be saved: a source or the target is in memory, which no other run has"
            raise UsageError(problem, hint="Save the tree as a checkpoint, or leave out `out`.")
        output_files.check_documents([out], *output_files.named_in(request))
        output_files.check_kept(out, overwrite, output_files.SAVED)
    request = with_recipe(request)
    if request.dst is None:
        prepared = prepare(request)
    else:
        prepared = run.plan_for_destination(request, place_of(request), overwrite)
    if out is not None:
        prepared = with_samples(prepared)
        output_files.write_document(out, document_of(prepared, request))
    return remember_request(prepared, request)


@arguments.takes(ApplyArguments, Request, RunOptions)
def apply(
    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | Plan | None,
    *sources: CheckpointLike,
    dst: PathLike | None = None,
    **options: Unpack[ApplyArguments],
) -> Result:
    """Run a recipe or a plan, and publish the result at `dst`.

    `recipe` is what `plan` takes, or a Plan from `plan`, or the path of one saved with `plan(out=…)`. A plan
    has its recipe, sources and options: only `dst`, `memory`, `workers`, `link_mode`, and the arguments about
    how it is carried out may be given beside it. Its sources must not have changed. The result is one file
    where the name of `dst` says so (`out.safetensors`), else a directory. `overwrite` replaces the
    checkpoint, or the empty directory, that is at `dst`, or the item `dst_item` of a step there, and removes
    no other item; anything else there is refused. `resume` continues an earlier run with the same arguments
    that was ended before it was done; if there is none, it starts afresh. `verify` says what is read back
    before the result is published: `fast`, what was computed or copied, and a few bytes of each linked chunk;
    `full`, all values; `none`, nothing. `copy_config` copies config and tokenizer files beside the source
    into a directory of safetensors; None: if the source has a `config.json`. `engine` is `local`, threads of
    this process, or `dask`, processes of a cluster: of the one with the address `scheduler`, or of this
    machine, `workers` of them. `on_plan` is called once, before any data is read. `progress` is a function
    that is called with a `Progress` after each task, from any thread; or True, which shows a bar on stderr;
    or False, which shows none. None shows one in notebooks and in interactive sessions on a terminal, after
    one second. Errors of `on_plan` and `progress` are passed on unchanged.

    Raises SurgeryError; then nothing is published.
    """
    with reported(options.get("progress")) as report:
        return run_request(requested(recipe, sources, dst, options), run.run_options(options, report))


def run_request(request: Request, options: RunOptions) -> Result:
    """Run a request in this process, or on a cluster. Raises SurgeryError."""
    if isinstance(request.recipe, Plan):
        request = request_of_plan(request, APPLY)
    elif is_plan_file(request.recipe):
        request = saved_request(request) or request
    if one_of("engine", options.engine, ENGINES) == LOCAL:
        if options.scheduler is not None:
            raise UsageError("`scheduler` is for the engine `dask`", hint='Say so: `engine="dask"`.')
        return run.run_here(request, options)
    from ckpt_surgery.runs.engines import dask  # imports what only clusters need

    if request.has_trees:
        hint = "Save the tree as a checkpoint, or leave out `engine`."
        raise UsageError("a source or the target is in memory, which no worker has", hint=hint)
    return dask.run_on_cluster(with_recipe(request), options)


@arguments.takes(ConvertArguments, Request, RunOptions)
def convert(
    src: PathLike,
    dst: PathLike,
    *,
    to: str | None = None,
    set: Assignments = (),
    match: str | None = None,
    under: str | None = None,
    config: PathLike | None = None,
    **options: Unpack[ConvertArguments],
) -> Result:
    """Write a checkpoint in another format, all its leaves as they are: `apply` without a recipe.

    `match` and `under` choose leaves, as those of `inspect` do: `match` is a regular expression for whole
    keys, `under` the first components of keys, such as `params/decoder`. All others are dropped.

    With `to`, the name of a layout such as `maxtext` or `hf`, it is `apply` with the packaged recipe for the
    model and this layout: the model is what `model_type` in the `config.json` beside `src` says, or the
    record of an earlier conversion. `set` gives values to the recipe's other params. `config` is a JSON file
    that describes the model in place of the `config.json` beside `src`.

    Raises SurgeryError; then nothing is published.
    """
    if to is None and set:
        hint = 'Name a layout, as in `to="maxtext"`, or use `apply`.'
        raise UsageError("`set` is for the params of a recipe, and nothing says which recipe", hint=hint)
    which = cast(SourceOptions, {name: options.get(name) for name in SourceOptions.__annotations__})
    recipe: RecipeLike | None = recipe_of_selection(src, match, under, to, **which)
    given: Sequence[str] = ()
    if to is not None:
        from ckpt_surgery.inputs import conversions  # imports what only layouts need

        choice = conversions.choose_conversion(src, to, set, config=config, **which)
        recipe, given = choice.recipe, choice.set
    return apply(recipe, src, dst=dst, set=given, config=config, **options)


MOST_SHARDS = 65536
MOST_NAMED = 20
"""Limit on the shards that a message names."""


@arguments.takes(PlanOptions, Request)
def apply_shard(
    plan: PathLike,
    *,
    shard: str,
    dst: PathLike | None = None,
    overwrite: bool = False,
    verify: Verify | str = Verify.FAST,
    progress: ProgressLike = None,
    **options: Unpack[PlanOptions],
) -> ShardResult:
    """Carry out one part of a saved plan; `commit` publishes the result when all parts are done.

    `plan` is the path of a plan that was saved with `plan(out=…)`. `shard` is `I/N`: the part number I of N,
    from `0/N` on. Any machine that sees the sources and the destination can do any part, in any order, and
    more than once: the first attempt that is finished counts. The parts lie beside `dst` meanwhile.
    `overwrite` lets `commit` replace what is at `dst`. `verify` says what is read back before the part
    counts as done: `fast` or `full`, what was computed; `none`, nothing. `progress`: see `apply`.

    Raises SurgeryError; then the part is not done.
    """
    started = time.monotonic()
    index, count = shard_of(shard)
    request = requested(plan, (), dst, options)
    saved = saved_request(request)
    if saved is None:
        named = shown(str(plan)) if isinstance(plan, str | os.PathLike) else f"a {type(plan).__name__}"
        hint = "Save the plan of the recipe first, once for all shards."
        raise UsageError(f"{named} is not a saved plan, and only a saved plan has shards", hint=hint)
    if request.link_mode is not None:
        hint = "Leave out `link_mode`, or give it to `plan`."
        raise UsageError("shards link as their plan says", hint=hint)
    with signals.interruptible():
        job = shards.join_or_start_job(saved, count, overwrite)
        mine = shares(job.prepared.plan, count)[index]
        already = part_of(job.parts, job.head, index) is not None
        if not already:
            with reported(progress) as report, shards.report_parts(job):
                already = not shards.write_shard(job, index, one_of("verify", verify, MODES), report)
        left = tuple(missing(job.parts, job.head))
    return ShardResult(
        shard=index,
        shards=count,
        destination=str(saved.dst),
        tasks=len(mine),
        bytes=sum(task.nbytes for task in mine),
        already_done=already,
        missing_shards=left,
        seconds=time.monotonic() - started,
    )


def shard_of(text: str) -> tuple[int, int]:
    """Number and count of `I/N`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if index >= count or count > MOST_SHARDS:
        hint = f"Shards are numbered from 0: `0/8` to `7/8`. There can be {MOST_SHARDS:,}."
        raise UsageError(f"`shard`: {shown(repr(text))} is not I/N", hint=hint)
    return index, count


def commit(
    dst: PathLike,
    *,
    verify: Verify | str = Verify.FAST,
    copy_config: bool | None = None,
    memory: arguments.Size | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    progress: ProgressLike = None,
) -> Result | None:
    """Publish the output of a plan's shards at `dst`, in one step; None if that was done before.

    `verify` says what is checked before: `fast`, that everything is there, and what one machine cannot know
    of another's writing; `full` reads all values back; `none`, nothing. `copy_config`: see `apply`. `memory`
    is the budget for this check, in bytes or as a text such as `2GiB`; `workers` the number of threads.
    `allow_hooks` is needed where the plan has hooks. `on_plan` is called before anything is put together;
    `progress`: see `apply`.

    Raises SourceError where shards are not done, which it names, or where a source has changed;
    VerificationError where the output is incomplete or damaged; DestinationError where something else is at
    `dst`, or another process publishes there; UsageError where there is nothing to publish. The parts stay
    then.
    """
    started, url_or_path, mode = time.monotonic(), checked_path(dst), one_of("verify", verify, MODES)
    with signals.interruptible():
        where, parts = shards.parts_to_commit(url_or_path)
        rolled = roll_forward(where.place) if where.is_url else ()
        head = head_of(parts)
        if head is None:
            if rolled or any(True for _ in shards.shards_at(where.place)):
                return None
            hint = "Carry out the shards of a saved plan first."
            raise UsageError(f"{shown(where.place)}: it has no parts to put together", hint=hint)
        if shards.is_committed(where, parts, head):
            parts.clear()
            return None
        shards.check_unwritten(where, head)
        if lacking := [f"{index}/{head.count}" for index in missing(parts, head)]:
            are = "shard is" if len(lacking) == 1 else "shards are"
            what = f"{len(lacking)} of {head.count} {are} not done: {few(lacking, MOST_NAMED)}"
            hint = "Run them; those that are done are kept."
            raise SourceError(f"{shown(parts.place)}: {what}", hint=hint)
        options = {"memory": memory, "workers": workers, "allow_hooks": allow_hooks}
        job = shards.join_job(where, parts, head, options)
        shards.check_head(head, parts, job.prepared, head.count)
        if on_plan is not None:
            on_plan(job.prepared.plan)
        with reported(progress) as report, shards.report_parts(job):
            companions = find_sidecars(job.prepared, copy_config, {})
            return shards.publish_shards(job, mode, companions, str(dst), started, report)
