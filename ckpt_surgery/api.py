"""What the command line does, for Python: plan, apply, convert, inspect, diff, lint, schema.

Each function takes what the command of the same name takes, under the same names and with the same
defaults. Errors are `SurgeryError`s, whose `exit_code` is the command's.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ckpt_surgery.checking import format_findings
from ckpt_surgery.checking import lint as lint
from ckpt_surgery.core.arguments import Assignments, Size, assignments_of, bytes_of
from ckpt_surgery.core.errors import PlanError, SourceError, UsageError
from ckpt_surgery.core.protocols import LinkMode, Source
from ckpt_surgery.destinations import destination, is_file, open_sink, published_unit
from ckpt_surgery.engine import signals
from ckpt_surgery.engine.resources import default_memory, default_workers
from ckpt_surgery.engine.staging import checks, local
from ckpt_surgery.engine.worker import Progress as Progress
from ckpt_surgery.engine.worker import run
from ckpt_surgery.formats import registry as formats
from ckpt_surgery.inspecting import Inspection as Inspection
from ckpt_surgery.inspecting import diff as diff
from ckpt_surgery.inspecting import inspect as inspect
from ckpt_surgery.language.hooks import HookFile
from ckpt_surgery.language.loading import LoadedRecipe, OutputPolicy, TargetPolicy, load_recipe, parse_recipe
from ckpt_surgery.language.loading import schema as schema
from ckpt_surgery.planner.listings import is_listing, read_listing
from ckpt_surgery.planner.options import DestinationOptions, PathLike, Prepared, Request
from ckpt_surgery.planner.plan import Input, Plan
from ckpt_surgery.planner.planning import make_plan
from ckpt_surgery.planner.target import TARGET, Target
from ckpt_surgery.provenance import configs_of, noted
from ckpt_surgery.remarks import filled_chunks
from ckpt_surgery.storage import failures

NO_RECIPE = "(none)"
"""What plans call the empty recipe, for there is no file of it."""
MOST_NAMES = 5
"""So many names of custom metadata are told."""


@dataclass(frozen=True)
class Result:
    """What `apply` did."""

    plan: Plan
    seconds: float
    destination: str
    notices: tuple[str, ...] = ()
    """What was found and put in order on the way."""


def plan(
    recipe: PathLike | None,
    *sources: PathLike,
    target: PathLike | None = None,
    set: Assignments = (),
    step: int | None = None,
    item: str | None = None,
    src_format: str | None = None,
    format: str | None = None,
    dst: PathLike | None = None,
    dst_step: int | None = None,
    dst_item: str | None = None,
    shard_size: Size | None = None,
    memory: Size | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    overwrite: bool = False,
    link_mode: LinkMode | str | None = None,
    out: PathLike | None = None,
) -> Plan:
    """Decide what `apply` would do, from metadata alone; `out` saves the plan as a JSON file.

    With `dst` all is refused that `apply` would refuse there, with `overwrite` or without; nothing is made.

    `recipe` is a file, or with `@name` one that comes with the package, or None, which keeps every leaf.
    Its hooks, Python code of the recipe's author, run only with `allow_hooks`. `set` maps params to values,
    or lists texts `NAME=VALUE`; `memory` and `shard_size` are numbers of bytes, or texts such as `2GiB`.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found.
    """
    request = Request(
        recipe=None if recipe is None else os.fspath(recipe),
        sources=tuple(os.fspath(source) for source in sources),
        target=None if target is None else os.fspath(target),
        set=assignments_of(set),
        step=step,
        item=item,
        src_format=src_format,
        format=format,
        dst=None if dst is None else os.fspath(dst),
        dst_step=dst_step,
        dst_item=dst_item,
        shard_size=bytes_of("shard_size", shard_size),
        memory=bytes_of("memory", memory),
        workers=workers,
        allow_hooks=allow_hooks,
        link_mode=LinkMode(link_mode or LinkMode.AUTO),
    )
    if out is not None:
        named = [*_inputs_of(request), request.recipe, request.dst]
        checks.check_document(Path(out), [Path(path) for path in named if path is not None])
    prepare = functools.partial(_prepare, request)
    if request.dst is None:
        prepared = prepare()
    else:
        where = published_unit(request.dst, request.dst_step)
        prepared = _prepared_for(where, _inputs_of(request), prepare, overwrite)
    if out is not None:
        document = _document(prepared)
        with failures.storage_errors(Path(out)):
            Path(out).write_bytes(document)
    return prepared.plan


def apply(
    recipe: PathLike | None,
    *sources: PathLike,
    dst: PathLike | None = None,
    target: PathLike | None = None,
    set: Assignments = (),
    step: int | None = None,
    item: str | None = None,
    src_format: str | None = None,
    format: str | None = None,
    dst_step: int | None = None,
    dst_item: str | None = None,
    shard_size: Size | None = None,
    overwrite: bool = False,
    link_mode: LinkMode | str | None = None,
    memory: Size | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Result:
    """Run a recipe, or a plan that was saved with `plan(out=…)`, and publish the result at `dst`.

    Where the name of `dst` says so (`out.safetensors`), the result is one file. `on_plan` is called once,
    before any data is read. Raises SurgeryError; then nothing is published.
    """
    params = assignments_of(set)
    if recipe is not None and Path(recipe).suffix == ".json":
        from ckpt_surgery import saved_plans  # imports what only saved plans need

        chosen = (step, item, src_format, format, dst_step, dst_item, shard_size)
        given, budget = (sources, target, params, *chosen), bytes_of("memory", memory)
        saved = saved_plans.saved_request(recipe, given, dst, budget, workers, allow_hooks, link_mode)
        if saved is not None:
            where, inputs = (saved.destination.path, saved.destination.step), saved.inputs
            prepare = functools.partial(saved_plans.opened_again, saved)
            return _applied(*where, inputs, prepare, overwrite, progress, on_plan)
    request = Request(
        recipe=None if recipe is None else os.fspath(recipe),
        sources=tuple(os.fspath(source) for source in sources),
        target=None if target is None else os.fspath(target),
        set=params,
        step=step,
        item=item,
        src_format=src_format,
        format=format,
        dst=None if dst is None else os.fspath(dst),
        dst_step=dst_step,
        dst_item=dst_item,
        shard_size=bytes_of("shard_size", shard_size),
        memory=bytes_of("memory", memory),
        workers=workers,
        allow_hooks=allow_hooks,
        link_mode=LinkMode(link_mode or LinkMode.AUTO),
    )
    where, inputs = (request.dst, request.dst_step), _inputs_of(request)
    return _applied(*where, inputs, functools.partial(_prepare, request), overwrite, progress, on_plan)


def convert(
    src: PathLike,
    dst: PathLike,
    *,
    step: int | None = None,
    item: str | None = None,
    src_format: str | None = None,
    format: str | None = None,
    dst_step: int | None = None,
    dst_item: str | None = None,
    shard_size: Size | None = None,
    overwrite: bool = False,
    link_mode: LinkMode | str | None = None,
    memory: Size | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Result:
    """Write a checkpoint in another format, all of its leaves as they are: `apply` without a recipe."""
    return apply(
        None,
        src,
        dst=dst,
        step=step,
        item=item,
        src_format=src_format,
        format=format,
        dst_step=dst_step,
        dst_item=dst_item,
        shard_size=shard_size,
        overwrite=overwrite,
        link_mode=link_mode,
        memory=memory,
        workers=workers,
        progress=progress,
        on_plan=on_plan,
    )


def _applied(
    dst: str | None,
    dst_step: int | None,
    inputs: Sequence[str],
    prepare: Callable[[], Prepared],
    overwrite: bool,
    progress: Callable[[Progress], None] | None,
    on_plan: Callable[[Plan], None] | None,
) -> Result:
    """Plan, or open a saved plan; check; carry out."""
    started = time.monotonic()
    if dst is None:
        raise UsageError("there is no destination", hint="Name the directory or file to write.")
    with signals.interruptible():
        where = published_unit(dst, dst_step)
        prepared = _prepared_for(where, inputs, prepare, overwrite)
        if on_plan is not None:
            on_plan(prepared.plan)
        notices = _carry_out(prepared, where, where != Path(dst), overwrite, progress)
    return Result(prepared.plan, time.monotonic() - started, dst, notices)


# --- from a request to a plan -------------------------------------------------------------------------


def _inputs_of(request: Request) -> list[str]:
    return [*request.sources, *([] if request.target is None else [request.target])]


def _prepared_for(
    where: Path, inputs: Sequence[str], prepare: Callable[[], Prepared], overwrite: bool
) -> Prepared:
    """The plan, once it is sure that its result can be published at `where`. Creates nothing.

    Raises UsageError, DestinationError or StorageError where it cannot be.
    """
    checks.check_paths([Path(path) for path in inputs], where, overwrite)
    prepared = prepare()
    if overwrite:
        checks.check_files((file for s in prepared.sources.values() for file in s.files()), where)
    costs = prepared.plan.costs
    checks.check_space(where, costs.bytes_copied + costs.bytes_computed)
    return prepared


def _prepare(request: Request) -> Prepared:
    loaded = _loaded(request)
    if request.dst is not None and request.format is None:
        formats.check_name(request.dst)
    if request.allow_hooks:
        loaded = _with_hooks(loaded)
    names = loaded.recipe.source_names(len(request.sources))
    sources: dict[str, Source] = {
        name: formats.open_source(path, request.src_format, request.step, request.item)
        for name, path in zip(names, request.sources, strict=True)
    }
    loaded = replace(loaded, configs=configs_of(sources))
    listings = {name: source.leaves() for name, source in sources.items()}
    target = None if request.target is None else _target(request.target, loaded, sources)
    memory = request.memory or default_memory()
    workers = request.workers or default_workers()
    first, options = sources[names[0]], _destination_options(request, loaded)
    metadata, notes = noted(first, None if request.recipe is None else loaded, options.format)
    made = make_plan(
        loaded,
        listings,
        target,
        _inputs(sources),
        metadata,
        destination(options, metadata, request.sources),
        memory,
        workers,
    )
    told = (*notes, *_repeated_sources(sources, made.inputs), *_destination_warnings(options, first))
    warnings = (*made.warnings, *told, *filled_chunks(made))
    hooks = loaded.hooks if isinstance(loaded.hooks, HookFile) else None
    return Prepared(replace(made, warnings=warnings), sources, options, memory, workers, hooks)


def _loaded(request: Request) -> LoadedRecipe:
    if request.recipe is not None:
        return load_recipe(request.recipe, request.set, format_findings)
    return parse_recipe("version: 1\n", NO_RECIPE, request.set)


def _repeated_sources(sources: Mapping[str, Source], inputs: Sequence[Input]) -> Iterator[str]:
    """That a checkpoint is read twice, under two names: a slip more often than not."""
    alike: dict[str, list[str]] = {}
    for source in inputs:
        if source.name != TARGET:
            alike.setdefault(source.fingerprint, []).append(source.name)
    for names in alike.values():
        # Copies are alike as well; what tells them apart are the files, which take time to list.
        files = {name: _files_of(sources[name]) for name in names} if len(names) > 1 else {}
        same = [name for name, found in files.items() if found == files[names[0]]]
        if len(same) > 1:
            listed = ", ".join(f"`{name}`" for name in same)
            yield f"the sources {listed} are the same checkpoint, {sources[names[0]].path}"


def _files_of(source: Source) -> frozenset[str]:
    return frozenset(map(os.path.realpath, source.files()))


def _destination_warnings(options: DestinationOptions, first: Source) -> Iterator[str]:
    """What a destination loses without a rule that says so, and what its name promises in vain."""
    format = options.format
    if first.metadata and not formats.holds_metadata(format):
        names = ", ".join(f"`{name}`" for name in sorted(map(str, first.metadata))[:MOST_NAMES])
        more = ", …" if len(first.metadata) > MOST_NAMES else ""
        yield f"the custom metadata ({names}{more}) is left out: {format} checkpoints have no place for it"
    named = formats.promised(options.name)
    if named not in (None, format):
        yield f"{options.path} will be {format}, though its name says {named}"


def _with_hooks(loaded: LoadedRecipe) -> LoadedRecipe:
    """The recipe with its hooks loaded, if it has any. Runs their file."""
    if loaded.recipe.hooks is None:
        return loaded
    try:
        return replace(loaded, hooks=HookFile(loaded.directory / loaded.recipe.hooks))
    except PlanError as error:
        place = loaded.place(("hooks",))
        raise PlanError(*(replace(p, place=place) for p in error.problems)) from error


def _target(path: str, loaded: LoadedRecipe, sources: dict[str, Source]) -> Target:
    """The target's structure; a checkpoint joins the sources, so that its values can be read."""
    policy = loaded.recipe.target or TargetPolicy()
    if is_listing(path):
        return Target(read_listing(path), False, policy)
    sources[TARGET] = formats.open_source(path)
    return Target(sources[TARGET].leaves(), True, policy)


def _inputs(sources: Mapping[str, Source]) -> list[Input]:
    return [
        Input(
            name,
            source.path,
            source.format,
            len(source.leaves()),
            source.fingerprint(),
            source.step,
            source.item,
        )
        for name, source in sources.items()
    ]


def _destination_options(request: Request, loaded: LoadedRecipe) -> DestinationOptions:
    """The format: what the command line says, else the recipe, else the destination's name, else Orbax."""
    output = loaded.recipe.output or OutputPolicy()
    options = DestinationOptions(
        path=request.dst,
        format=request.format or output.format or "",
        step=request.dst_step,
        item=request.dst_item,
        zarr=output.zarr,
        structure_file=output.structure_file,
        shard_size=request.shard_size,
        link_mode=request.link_mode,
    )
    return replace(options, format=options.format or formats.format_for(options.name) or "orbax")


def _document(prepared: Prepared) -> bytes:
    """What `plan --out` saves."""
    from ckpt_surgery.planner.document import plan_file, saved_plan  # imports what only saved plans need

    plan = prepared.plan
    saved = saved_plan(plan, prepared.destination, prepared.memory, prepared.workers, prepared.hooks)
    return plan_file(plan, saved)


# --- carrying a plan out ----------------------------------------------------------------------------------


def _carry_out(
    prepared: Prepared,
    where: Path,
    step_only: bool,
    overwrite: bool,
    progress: Callable[[Progress], None] | None,
) -> tuple[str, ...]:
    """`step_only`: what is published is one step of a directory that exists."""
    plan = prepared.plan
    with local.staged(where, is_file(prepared.destination)) as staging:
        sink = open_sink(prepared.destination, plan.metadata, staging.directory, step_only)
        run(plan, prepared.sources, sink, prepared.memory, prepared.workers, progress)
        _check_unchanged(prepared)
        local.publish(staging, overwrite)
        return staging.notices


def _check_unchanged(prepared: Prepared) -> None:
    for before in prepared.plan.inputs:
        if prepared.sources[before.name].fingerprint() != before.fingerprint:
            raise SourceError(
                f"{before.path} changed while it was read",
                hint="Nothing was published; run again once it is at rest.",
            )
