"""`restore`: a recipe's result as arrays in the memory of the devices, nothing written."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ckpt_surgery.core.arguments import CheckpointLike, Function, RecipeLike, takes
from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.core.errors import Code, PlanError, Problem, SurgeryError, UsageError
from ckpt_surgery.core.folding import Notice, merged
from ckpt_surgery.core.keys import nested
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.libraries import report_missing
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import ProgressLike, Report
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats import opening
from ckpt_surgery.inputs import pinned
from ckpt_surgery.inputs.checkpoints import kept_open
from ckpt_surgery.inputs.opening import check_unchanged, check_values, in_memory, with_recipe, with_samples
from ckpt_surgery.inputs.options import RestoreOptions
from ckpt_surgery.inputs.preparing import open_inputs, plan_inputs
from ckpt_surgery.inputs.request import InMemory, OpenCheckpoint, Request, requested
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.packaged import PREFIX
from ckpt_surgery.language.written import is_text
from ckpt_surgery.live import carrying_out
from ckpt_surgery.live.carrying_out import Restoration
from ckpt_surgery.live.encoder import LiveEncoder, dtype_flaw, settled
from ckpt_surgery.live.processes import agree, plan_digests
from ckpt_surgery.live.results import is_narrowed
from ckpt_surgery.live.shardings import resolved_shardings
from ckpt_surgery.live.source import TreeSource
from ckpt_surgery.live.tree import LiveTree, live_tree
from ckpt_surgery.live.wanted import type_of
from ckpt_surgery.migration.functions.tracing import with_flat_dicts
from ckpt_surgery.migration.recipes import MigratedRecipe
from ckpt_surgery.planner.outputs import arrays_in_memory
from ckpt_surgery.planner.plan import Plan, with_origin
from ckpt_surgery.planner.target import TARGET, Target
from ckpt_surgery.report.results import OverflowedLeaf
from ckpt_surgery.runs.run import overflow_notices
from ckpt_surgery.system.progress_bars import reported


@takes(RestoreOptions, Request)
def plan_restore(
    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | None,
    *sources: CheckpointLike,
    target: Any = None,
    shardings: Any = None,
    flat: bool = False,
    **options: Unpack[RestoreOptions],
) -> Plan:
    """Decide what `restore` would do, from metadata alone; `restore(plan)` carries it out.

    The arguments are those of `restore`. The plan has its casts to the target's dtypes, and everything is
    refused that `restore` would refuse before it reads data. It keeps the recipe, and the trees among its
    sources and as its target, alive.

    Raises RecipeError, PlanError, SourceError or UsageError (MissingLibraryError without jax), with every
    problem that was found.
    """
    recipe = with_flat_dicts(recipe, flat)
    request = with_recipe(_requested(recipe, sources, target, shardings, options))
    restoration = _prepare(request)
    check_values(restoration.plan, restoration.sources)
    decided = pinned.request_of_inputs(request, restoration)
    decided = replace(decided, memory=restoration.memory, workers=restoration.workers)
    return with_origin(restoration.plan, pinned.PlanOrigin(decided, pinned.RESTORE))


@takes(RestoreOptions, Request)
def restore(
    recipe: RecipeLike | Function | LoadedRecipe | MigratedRecipe | Plan | None,
    *sources: CheckpointLike,
    target: Any = None,
    shardings: Any = None,
    flat: bool = False,
    donate: bool = False,
    lazy: bool = False,
    on_plan: Callable[[Plan], None] | None = None,
    progress: ProgressLike = None,
    **options: Unpack[RestoreOptions],
) -> Any:
    """Carry out a recipe into arrays in memory; the result has the structure of `target`.

    `recipe` and `sources` are what `apply` takes; nothing is written. In place of the recipe there may be a
    Plan from `plan_restore`. It has its sources, target and shardings, which must not have changed; only
    `memory`, `workers`, `donate`, `on_plan` and `progress` may be given beside it.

    `target` is any JAX pytree: of arrays, of `jax.ShapeDtypeStruct`s (`jax.eval_shape` gives them), or of
    both. Its leaves say shape, dtype and sharding, and those that are arrays are also the values to fall
    back on. Where the recipe does not say `target: {dtype: …}`, values are cast to the target's dtypes;
    casts that would lose fractions are refused. Leaves may leave shape and dtype to the source, and then have
    no value: `np.array([])` asks for NumPy, an empty array of another dtype for that dtype, and the types
    `np.ndarray`, `jax.Array`, `int`, `float`, `bool` and `str` for that kind. Metadata of Orbax stands for
    what it describes, an `nnx.Module` for its state. `...` gets a value where a rule claims its key, and
    stays otherwise. Without a target the result consists of nested dicts and lists, with arrays on the
    default device; those of 64 bits are NumPy's unless `jax_enable_x64` is on.

    With `flat`, a function as the recipe gets and returns flat dicts, `{"a/b": leaf}`, in place of trees.

    `shardings` wins over the shardings of the target's leaves: a sharding, or a prefix of the target's tree
    as in `jax.jit`, or rules: a pair of a mesh and pairs of a regular expression over keys and a
    `PartitionSpec`, of which the first that matches wins; or `LogicalAxes`, by the names that parameters give
    their axes. A leaf without a sharding becomes an uncommitted array on the default device.

    `donate` deletes each array of `target` once its replacement exists. Where the target has arrays,
    everything is read and computed once before that, and thrown away: bad values and files are refused while
    all arrays exist. A later error names the arrays that were deleted by then. With `lazy` the arrays of the
    result are `LazyArray`s, which the plan computes when their elements are asked for, each region by itself;
    numbers, texts and empty nodes are made at once. `on_plan` is called once, before any data is read;
    without it, the plan's warnings are logged, by the logger `ckpt_surgery`. `progress` is
    that of `apply`. With several processes (`jax.distributed`) all have to call it, with equal
    arguments; each reads what its own devices need. If one raises, all do.

    Raises RecipeError, PlanError, SourceError or UsageError (MissingLibraryError without jax) before any data
    is read, SourceError or DataError later. Either the whole result is returned, or an error is raised.
    """
    on_devices = {"shardings": shardings is not None, "donate": donate}
    if lazy and (name := next((name for name, is_given in on_devices.items() if is_given), None)):
        hint = f"Leave out `{name}`; `jax.device_put(array.get(), …)` places an array."
        raise UsageError(f"`{name}` and `lazy` do not go together: nothing is put on devices", hint=hint)

    def prepare() -> Restoration:
        request = _requested(with_flat_dicts(recipe, flat), sources, target, shardings, options)
        restoration = with_samples(_prepare(request))
        if on_plan is None:
            _log(restoration.plan.warnings)
        else:
            on_plan(restoration.plan)
        return restoration

    with report_missing("jax", NEEDS_JAX):
        import jax  # noqa: F401

    with reported(progress) as report:
        restoration = agree(prepare, lambda planned: plan_digests(planned.plan, planned.shardings))
        if lazy:
            return agree(lambda: _make(restoration, False, None, lazy=True))
        if not donate or restoration.target is None:
            return agree(lambda: _make(restoration, False, report))
        agree(lambda: _check(restoration, report))
        with carrying_out.naming_deletions(restoration.target):
            return agree(lambda: _make(restoration, True, report))


NEEDS_JAX = "`restore` needs jax"


def _requested(recipe: Any, sources: tuple[Any, ...], target: Any, shardings: Any, options: Any) -> Request:
    """The request of `restore`. Raises UsageError."""
    with report_missing("jax", NEEDS_JAX):
        import jax  # noqa: F401

    _check_recipe_is_first(recipe)
    if isinstance(target, OpenCheckpoint):
        target = target._as_source()
        target = target.tree if isinstance(target, InMemory) else target
    if isinstance(target, str | os.PathLike):
        problem = f"the target is the path {shown(os.fspath(target))}, and `restore` needs a tree in memory"
        hint = "Give the tree whose structure the result has, such as `jax.eval_shape(init, …)`."
        raise UsageError(problem, hint=hint)
    tree = None if target is None else InMemory(target)
    request = replace(requested(recipe, sources, None, options), target=tree, shardings=shardings)
    return pinned.request_of_plan(request, pinned.RESTORE) if isinstance(recipe, Plan) else request


def _log(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        logging.getLogger("ckpt_surgery").warning("restore: %s", sentence)


def _check_recipe_is_first(recipe: Any) -> None:
    """Raise UsageError if a checkpoint is given in the place of the recipe."""
    if not isinstance(recipe, str | os.PathLike):
        return
    if is_text(os.fspath(recipe)) or os.fspath(recipe).startswith(PREFIX):
        return
    try:
        opening.detect_format(os.fspath(recipe))
    except SurgeryError:
        return
    path = shown(repr(os.fspath(recipe)))
    hint = f"Without a recipe: `restore(None, {path})`. With a function: `restore(function, {path})`."
    raise UsageError(f"{path} is a checkpoint, and the first argument of `restore` is the recipe", hint=hint)


@memory_errors("make the plan")
def _prepare(request: Request) -> Restoration:
    inputs = open_inputs(with_recipe(request))
    tree, places = None, dict[str, Any]()
    if inputs.target is not None:
        source = inputs.sources[TARGET]
        assert isinstance(source, TreeSource)
        tree = source.tree
        inputs = replace(inputs, target=_with_own_dtypes(inputs.target, tree))
    plan = plan_inputs(inputs, arrays_in_memory(LiveEncoder(tree), staged=True), {})
    if request.pinned is not None:
        pinned.check_same_plan(plan, inputs.memory, request.pinned)
    if tree is not None:
        tree = settled(tree, plan, inputs.sources)
        places = dict(resolved_shardings(tree, request.shardings))
    elif request.shardings is not None:
        places = _planned_shardings(plan, request.shardings)
    function = inputs.loaded.function
    rebuilt = function.rebuilt if function is not None and tree is None else None
    limits = inputs.memory, inputs.workers
    return Restoration(plan, inputs.sources, tree, places, *limits, rebuilt, inputs.hooks)


def _planned_shardings(plan: Plan, shardings: Any) -> dict[str, Any]:
    """Sharding of each array of a plan without a target. Raises PlanError if JAX would narrow one."""
    import jax

    narrowed = {step.leaf.key.text: step.leaf for step in plan.steps if is_narrowed(step.leaf)}
    specs = [step.leaf.spec if step.leaf.kind is LeafKind.ARRAY else None for step in plan.steps]
    # The tree that the plan makes, with shapes and dtypes in place of arrays.
    described = [None if spec is None else jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in specs]  # type: ignore[no-untyped-call]
    tree = live_tree(nested(zip((step.leaf.key for step in plan.steps), described, strict=True)))
    places = dict(resolved_shardings(tree, shardings, on_host=narrowed))
    refused = [
        Notice("", text, dtype_flaw(leaf.spec.dtype) or "")
        for text, leaf in narrowed.items()
        if leaf.spec is not None and places.get(text) is not None
    ]
    if refused:
        raise PlanError(*(Problem(notice.sentence) for notice in merged(refused)), code=Code.UNSUITED)
    return places


def _with_own_dtypes(target: Target, tree: LiveTree) -> Target:
    """Make the target's own dtypes the default; with another policy, Python's numbers get those of JAX."""
    import jax

    def dtype_of_number(leaf: Leaf, dtype: DType) -> DType:
        value = tree.values[leaf.key.text]
        of_jax = isinstance(value, jax.ShapeDtypeStruct) or issubclass(type_of(value), jax.Array)
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype)) if of_jax else dtype

    is_set = "dtype" in target.policy.model_fields_set
    policy = target.policy if is_set else target.policy.model_copy(update={"dtype": "target"})
    return replace(target, policy=policy, dtype_of_number=dtype_of_number)


_AGAIN = "Nothing was returned; restore again when nothing writes to it."


@memory_errors("make the arrays")
def _check(restoration: Restoration, progress: Report | None) -> None:
    """Compute everything once before arrays of the target are deleted. Raises SurgeryError."""
    if restoration.target is not None and carrying_out.existing_arrays(restoration.target):
        carrying_out.check_first(restoration, progress)
        check_unchanged(restoration.plan, restoration.sources, _AGAIN)


@memory_errors("make the arrays")
def _make(restoration: Restoration, donate: bool, progress: Report | None, lazy: bool = False) -> Any:
    """Make the result, with arrays that are computed when they are read if `lazy`. Raises SurgeryError."""

    def overflowed(key: str, count: int) -> None:
        _log(overflow_notices([OverflowedLeaf(key, count)]))

    if lazy:
        opened = {n: s if in_memory(s) else kept_open(s) for n, s in restoration.sources.items()}
        restoration = replace(restoration, sources=opened)
    values, counts = carrying_out.make_arrays(restoration, donate, progress, overflowed if lazy else None)
    _log(overflow_notices(OverflowedLeaf(key, count) for key, count in sorted(counts.items())))
    check_unchanged(restoration.plan, restoration.sources, _AGAIN)
    return _in_containers(restoration, values)


def _in_containers(restoration: Restoration, values: Mapping[str, Any]) -> Any:
    """Values by key in the structure of the target, or in nested dicts and lists."""
    if restoration.target is not None:
        return restoration.target.rebuilt(values)
    if restoration.rebuilt is not None:
        return restoration.rebuilt(values)
    plan = restoration.plan
    first = restoration.sources[plan.inputs[0].name]
    tuple_dicts = first.tree.tuple_dicts if isinstance(first, TreeSource) else frozenset()
    return nested(((step.leaf.key, values[step.leaf.key.text]) for step in plan.steps), tuple_dicts)
