"""The functions that make and carry out plans: `plan`, `apply` and `convert`, as the commands do."""

from collections.abc import Sequence
from typing import Unpack, cast

from ckpt_surgery.core import arguments
from ckpt_surgery.core.arguments import Assignments, CheckpointLike, Function, PathLike, RecipeLike, takes
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.inputs import output_files
from ckpt_surgery.inputs.matching import recipe_of_selection
from ckpt_surgery.inputs.opening import with_recipe, with_samples
from ckpt_surgery.inputs.options import PlanOptions, SourceOptions
from ckpt_surgery.inputs.pinned import APPLY, document_of, remember_request, request_of_plan, saved_request
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import Request, is_plan_file, requested
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.plan import Plan
from ckpt_surgery.runs import run
from ckpt_surgery.runs.destination import place_of
from ckpt_surgery.runs.run import ApplyArguments, ConvertArguments, Result, RunOptions
from ckpt_surgery.system import signals
from ckpt_surgery.system.progress_bars import reported

interruptible = signals.interruptible
"""Context in which SIGINT, SIGTERM and SIGHUP raise Interrupted: for programs that report what was done."""

LOCAL = "local"
ENGINES = (LOCAL, "dask")
"""Values of `engine`."""


@takes(PlanOptions, Request)
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


@takes(ApplyArguments, Request, RunOptions)
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
    if arguments.one_of("engine", options.engine, ENGINES) == LOCAL:
        if options.scheduler is not None:
            raise UsageError("`scheduler` is for the engine `dask`", hint='Say so: `engine="dask"`.')
        return run.run_here(request, options)
    from ckpt_surgery.runs.engines import dask  # imports what only clusters need

    if request.has_trees:
        hint = "Save the tree as a checkpoint, or leave out `engine`."
        raise UsageError("a source or the target is in memory, which no worker has", hint=hint)
    return dask.run_on_cluster(with_recipe(request), options)


@takes(ConvertArguments, Request, RunOptions)
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
