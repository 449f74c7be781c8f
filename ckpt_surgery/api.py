"""What the command line does, for Python: plan, apply, inspect, diff, lint, schema.

Each function takes what the command of the same name takes, under the same names and with the same
defaults. Errors are `SurgeryError`s, whose `exit_code` is the command's.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ckpt_surgery import commit, compare, formats, report
from ckpt_surgery.arrays import Leaf, LinkMode, Sink, Source
from ckpt_surgery.engines.local import default_workers
from ckpt_surgery.errors import PlanError, Problem, RecipeError, SourceError, UsageError
from ckpt_surgery.execute import Progress as Progress
from ckpt_surgery.execute import run
from ckpt_surgery.fitting import TARGET, Target
from ckpt_surgery.hooks import HookFile
from ckpt_surgery.listings import is_listing, read_listing
from ckpt_surgery.packaged import PREFIX
from ckpt_surgery.planner import Input, Plan, make_plan
from ckpt_surgery.recipe import LoadedRecipe, OutputPolicy, TargetPolicy, load_recipe
from ckpt_surgery.recipe import schema as schema
from ckpt_surgery.transfers import Destination

PathLike = str | os.PathLike[str]
DEFAULT_MEMORY = 2 << 30
SAVED = "request"
"""The member of a saved plan's JSON from which it can be made again."""


@dataclass(frozen=True)
class Request:
    """What a plan is asked for: the arguments of `plan` and `apply` that decide what comes out."""

    recipe: str
    """Path of the recipe."""
    sources: tuple[str, ...]
    target: str | None = None
    set: tuple[str, ...] = ()
    """`NAME=VALUE` overrides of the recipe's params."""
    step: int | None = None
    item: str | None = None
    format: str | None = None
    """Of the destination; None: the recipe's `output.format`, else `orbax`."""
    dst: str | None = None
    dst_step: int | None = None
    dst_item: str | None = None
    memory: int | None = None
    """Budget in bytes; None: the smaller of 2 GiB and a quarter of what is available."""
    workers: int | None = None
    link_mode: LinkMode = LinkMode.AUTO
    """How stored bytes that need no change come into the destination."""
    allow_hooks: bool = False
    """Whether the recipe's hooks, Python code, may run. A saved plan cannot say so."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A plan together with what it was made from and what it will be carried out with."""

    request: Request
    loaded: LoadedRecipe
    sources: Mapping[str, Source]
    """By name; the target under its own name where it is a checkpoint."""
    plan: Plan
    memory: int
    workers: int


@dataclass(frozen=True)
class Result:
    """What `apply` did."""

    plan: Plan
    seconds: float
    destination: str
    verified: str
    """How the result was verified before it was published: `none`."""
    notices: tuple[str, ...] = ()
    """What was found and put in order on the way."""


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found."""

    path: str
    format: str
    step: int | None
    item: str | None
    metadata: Mapping[str, Any]
    leaves: tuple[Leaf, ...]


def plan(
    recipe: PathLike,
    *sources: PathLike,
    target: PathLike | None = None,
    set: Sequence[str] = (),
    step: int | None = None,
    item: str | None = None,
    format: str | None = None,
    dst: PathLike | None = None,
    dst_step: int | None = None,
    dst_item: str | None = None,
    memory: int | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    link_mode: LinkMode | str | None = None,
    out: PathLike | None = None,
) -> Plan:
    """Decide what `apply` would do, from metadata alone; `out` saves the plan as a JSON file.

    `recipe` is a file, or with `@name` one that comes with the package. Its hooks, Python code of the
    recipe's author, run only with `allow_hooks`.

    Raises RecipeError, PlanError, SourceError or UsageError, with every problem that was found.
    """
    request = Request(
        recipe=os.fspath(recipe),
        sources=tuple(os.fspath(source) for source in sources),
        target=None if target is None else os.fspath(target),
        set=tuple(set),
        step=step,
        item=item,
        format=format,
        dst=None if dst is None else os.fspath(dst),
        dst_step=dst_step,
        dst_item=dst_item,
        memory=memory,
        workers=workers,
        allow_hooks=allow_hooks,
        link_mode=LinkMode(link_mode or LinkMode.AUTO),
    )
    prepared = _prepare(request)
    if out is not None:
        with commit.storage_errors(Path(out)):
            Path(out).write_text(report.json_text(_saved(prepared)), encoding="utf-8")
    return prepared.plan


def apply(
    recipe: PathLike,
    *sources: PathLike,
    dst: PathLike | None = None,
    target: PathLike | None = None,
    set: Sequence[str] = (),
    step: int | None = None,
    item: str | None = None,
    format: str | None = None,
    dst_step: int | None = None,
    dst_item: str | None = None,
    overwrite: bool = False,
    link_mode: LinkMode | str | None = None,
    memory: int | None = None,
    workers: int | None = None,
    allow_hooks: bool = False,
    progress: Callable[[Progress], None] | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Result:
    """Run a recipe, or a plan that was saved with `plan(out=…)`, and publish the result at `dst`.

    `on_plan` is called once, before any data is read. Raises SurgeryError; then nothing is published.
    """
    started = time.monotonic()
    saved = _load_saved(recipe)
    if saved is None:
        request = Request(
            recipe=os.fspath(recipe),
            sources=tuple(os.fspath(source) for source in sources),
            target=None if target is None else os.fspath(target),
            set=tuple(set),
            step=step,
            item=item,
            format=format,
            dst=None if dst is None else os.fspath(dst),
            dst_step=dst_step,
            dst_item=dst_item,
            memory=memory,
            workers=workers,
            allow_hooks=allow_hooks,
            link_mode=LinkMode(link_mode or LinkMode.AUTO),
        )
    else:
        given = (sources, target, set, step, item, format, dst_step, dst_item)
        request = _replayed(saved, Path(recipe), given, dst, memory, workers, allow_hooks, link_mode)
    if request.dst is None:
        raise UsageError("there is no destination", hint="Name it after the sources.")
    with commit.interruptible():
        where = _unit(request)
        commit.check_paths([Path(p) for p in _inputs_of(request)], where, overwrite)
        prepared = _prepare(request)
        if saved is not None:
            _check_same(saved, prepared)
        if on_plan is not None:
            on_plan(prepared.plan)
        notices = _carry_out(prepared, where, overwrite, progress)
    return Result(prepared.plan, time.monotonic() - started, str(request.dst), "none", notices)


def inspect(
    path: PathLike, *, step: int | None = None, item: str | None = None, format: str | None = None
) -> Inspection:
    """What is in a checkpoint, without reading an array. Raises SourceError or UsageError."""
    source = formats.open_source(os.fspath(path), format, step, item)
    leaves = tuple(source.leaves().values())
    return Inspection(source.path, source.format, source.step, source.item, source.metadata, leaves)


def diff(
    a: PathLike,
    b: PathLike,
    *,
    step: int | None = None,
    item: str | None = None,
    values: bool = False,
    memory: int | None = None,
) -> report.Difference:
    """How two checkpoints differ in keys, shapes and dtypes; with `values`, in numbers too."""
    one, other = (formats.open_source(os.fspath(p), None, step, item) for p in (a, b))
    difference = report.diff_trees(one.leaves(), other.leaves())
    if values:
        numbers = compare.value_differences(one, other, memory or default_memory())
        difference = replace(difference, values=tuple(numbers))
    return difference


def lint(recipes: Sequence[PathLike]) -> list[tuple[str, tuple[Problem, ...]]]:
    """All problems of each recipe, without a checkpoint."""
    found: list[tuple[str, tuple[Problem, ...]]] = []
    for path in (os.fspath(recipe) for recipe in recipes):
        try:
            load_recipe(path)
            found.append((path, ()))
        except RecipeError as error:
            found.append((path, error.problems))
    return found


def default_memory() -> int:
    """Bytes: the smaller of 2 GiB and a quarter of what is available."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min(DEFAULT_MEMORY, available // 4)


# --- from a request to a plan -------------------------------------------------------------------------


def _inputs_of(request: Request) -> list[str]:
    return [*request.sources, *([] if request.target is None else [request.target])]


def _prepare(request: Request) -> _Prepared:
    loaded = load_recipe(request.recipe, request.set)
    if request.allow_hooks:
        loaded = _with_hooks(loaded)
    names = loaded.recipe.source_names(len(request.sources))
    sources: dict[str, Source] = {
        name: formats.open_source(path, None, request.step, request.item)
        for name, path in zip(names, request.sources, strict=True)
    }
    listings = {name: source.leaves() for name, source in sources.items()}
    target = None if request.target is None else _target(request.target, loaded, sources)
    memory = request.memory or default_memory()
    workers = request.workers or default_workers()
    first = sources[names[0]]
    made = make_plan(
        loaded,
        listings,
        target,
        _inputs(sources),
        first.metadata,
        _destination(request, loaded, sources),
        memory,
        workers,
    )
    return _Prepared(request, loaded, sources, made, memory, workers)


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
        Input(name, source.path, source.format, len(source.leaves()), source.fingerprint())
        for name, source in sources.items()
    ]


def _destination(request: Request, loaded: LoadedRecipe, sources: Mapping[str, Source]) -> Destination:
    """What the plan has to know of where the result goes; beside the first source, if nobody says."""
    sink = _sink_for(request, loaded, next(iter(sources.values())))
    places = [Path(request.dst).absolute().parent] if request.dst else []
    places += [Path(path).absolute() for path in request.sources]
    device = next((os.stat(place).st_dev for place in places if place.exists()), None)
    return Destination(
        sink.refusals,
        sink.adopts,
        lambda source, file: sources[source].data_file(file),
        device
        if request.link_mode is not LinkMode.COPY and formats.can_link(_format(request, loaded))
        else None,
    )


def _sink_for(
    request: Request, loaded: LoadedRecipe, first: Source, directory: Path = Path(), step_only: bool = False
) -> Sink:
    """`step_only`: the directory is to become one step of a CheckpointManager directory that exists."""
    output = loaded.recipe.output or OutputPolicy()
    options = formats.SinkOptions(
        metadata=first.metadata,
        step=None if step_only else request.dst_step,
        item=request.dst_item or "default" if step_only else request.dst_item,
        link_mode=request.link_mode,
        zarr=output.zarr,
    )
    return formats.open_sink(_format(request, loaded), directory, options)


def _format(request: Request, loaded: LoadedRecipe) -> str:
    """Of the destination: what the command line says, else the recipe, else Orbax."""
    return request.format or (loaded.recipe.output or OutputPolicy()).format or "orbax"


# --- saved plans ----------------------------------------------------------------------------------------


def _saved(prepared: _Prepared) -> dict[str, Any]:
    """A plan's JSON together with all that is needed to make it again."""
    made_of = asdict(prepared.request) | {"memory": prepared.memory, "workers": prepared.workers}
    path = prepared.loaded.path
    places = {
        "recipe": path if path.startswith(PREFIX) else os.path.abspath(path),
        "sources": [os.path.abspath(s) for s in prepared.request.sources],
    }
    if prepared.request.target is not None:
        places["target"] = os.path.abspath(prepared.request.target)
    fingerprints = {i.name: i.fingerprint for i in prepared.plan.inputs}
    digest = _digest(prepared.plan)
    return {
        **report.plan_json(prepared.plan),
        SAVED: {**made_of, **places, "fingerprints": fingerprints, "digest": digest},
    }


def _digest(made: Plan) -> str:
    """Equal for plans that do the same, in any notation of the paths."""
    document = report.plan_json(made)
    texts = {k: v for k, v in document["recipe"].items() if k != "path"}
    # How a value comes about depends on where DST is, which may be said anew; what it is does not.
    leaves = [{k: v for k, v in leaf.items() if k != "transfer"} for leaf in document["leaves"]]
    decided = {"recipe": texts, "leaves": leaves, "dropped": document["dropped"]}
    return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def _load_saved(path: PathLike) -> dict[str, Any] | None:
    """The request inside a saved plan; None where the file is something else (a recipe, most likely)."""
    if Path(path).suffix != ".json":
        return None
    try:
        document = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None  # load_recipe says what is wrong with the file
    return document[SAVED] if isinstance(document, dict) and SAVED in document else None


def _replayed(
    saved: Mapping[str, Any],
    path: Path,
    given: Sequence[object],
    dst: PathLike | None,
    memory: int | None,
    workers: int | None,
    allow_hooks: bool,
    link_mode: LinkMode | str | None,
) -> Request:
    """The saved request. Only where to write, and with how much, may be said anew; what may run has to be."""
    if any(given):
        raise UsageError(
            f"{path} is a saved plan: it knows its sources and options",
            hint="Give nothing but the destination.",
        )
    kept = {k: v for k, v in saved.items() if k not in ("fingerprints", "digest", "allow_hooks")}
    try:
        request = TypeAdapter(Request).validate_python(kept)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: not a plan that `plan --out` saved: {where}: {first['msg']}") from None
    return replace(
        request,
        dst=request.dst if dst is None else os.fspath(dst),
        memory=memory or request.memory,
        workers=workers or request.workers,
        allow_hooks=allow_hooks,
        link_mode=request.link_mode if link_mode is None else LinkMode(link_mode),
    )


def _check_same(saved: Mapping[str, Any], prepared: _Prepared) -> None:
    now = {i.name: i.fingerprint for i in prepared.plan.inputs}
    changed = [name for name, before in saved["fingerprints"].items() if now.get(name) != before]
    if changed:
        raise PlanError(f"{', '.join(changed)} changed since the plan was made", hint="Make the plan again.")
    if _digest(prepared.plan) != saved["digest"]:
        raise PlanError(
            "the recipe changed, or its hooks did, since the plan was made", hint="Make the plan again."
        )


# --- carrying a plan out ----------------------------------------------------------------------------------


def _unit(request: Request) -> Path:
    """What one rename publishes: DST, or with --dst-step the step's directory where DST is there already."""
    assert request.dst is not None
    dst = Path(request.dst)
    return dst / str(request.dst_step) if request.dst_step is not None and dst.is_dir() else dst


def _carry_out(
    prepared: _Prepared, where: Path, overwrite: bool, progress: Callable[[Progress], None] | None
) -> tuple[str, ...]:
    costs = prepared.plan.costs
    commit.check_space(where, costs.bytes_copied + costs.bytes_computed)
    first = next(iter(prepared.sources.values()))
    with commit.staged(where) as staging:
        inside = where != Path(prepared.request.dst or "")
        sink = _sink_for(prepared.request, prepared.loaded, first, staging.directory, inside)
        run(prepared.plan, prepared.sources, sink, prepared.memory, prepared.workers, progress)
        _check_unchanged(prepared)
        commit.publish(staging, overwrite)
        return staging.notices


def _check_unchanged(prepared: _Prepared) -> None:
    for before in prepared.plan.inputs:
        if prepared.sources[before.name].fingerprint() != before.fingerprint:
            raise SourceError(
                f"{before.path} changed while it was read",
                hint="Nothing was published; run again once it is at rest.",
            )
