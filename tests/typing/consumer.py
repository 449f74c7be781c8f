"""A program that uses every public name, which mypy and pyright check as strictly as they can. It never runs.

What both have to refuse has a comment for each of them; a comment that is not needed is an error too.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import ckpt_surgery
from ckpt_surgery import (
    Checkpoint,
    DataError,
    DestinationError,
    Explanation,
    FunctionError,
    Inferred,
    Interrupted,
    Inverse,
    KeyNotFound,
    LazyArray,
    LogicalAxes,
    MigratedRecipe,
    MissingLibraryError,
    OriginalMissingError,
    OutOfMemoryError,
    PackagedRecipe,
    Plan,
    PlanError,
    Progress,
    RecipeError,
    Result,
    SourceError,
    SourcesChanged,
    Statistics,
    StorageError,
    SurgeryError,
    Transform,
    TransformError,
    Unread,
    UsageError,
    VerificationError,
    WorkersLost,
    apply,
    apply_shard,
    apply_transformations,
    commit,
    convert,
    diff,
    errors,
    explain,
    from_function,
    from_orbax_transforms,
    from_t5x_assignment_map,
    from_t5x_translator,
    infer,
    inspect,
    invert,
    lint,
    load_and_transform,
    merge,
    merge_recipe,
    opaque,
    open,
    plan,
    plan_merge,
    plan_restore,
    read_recipe,
    recipe,
    recipes,
    restore,
    schema,
    t5x,
    verify,
)

RECIPE = {"version": 1, "rules": [{"match": "a/(.*)", "to": r"b/\1"}]}
OLD, NEW = Path("old"), Path("new")


def every_kind_of_recipe(target: object) -> None:
    """A path, a name, a text, a document, one that was read, one that was made, or None."""
    read = read_recipe("recipe.yaml", set={"heads": 8})
    made = from_orbax_transforms({"a": {"b": None}}, default_to_original=True)
    assert_type(made, MigratedRecipe)
    assert_type(from_t5x_assignment_map([("a/(.*)", r"b/\1")]), MigratedRecipe)
    assert_type(merge_recipe("merge.yaml", seed=1), MigratedRecipe)
    assert_type(made.to_yaml(), str)
    assert_type(plan(OLD / "recipe.yaml", OLD), Plan)
    assert_type(plan("@linen-to-nnx", "old", target=target), Plan)
    assert_type(plan(RECIPE, OLD, {"a": 1}, set=["heads=8"]), Plan)
    assert_type(plan(read, OLD), Plan)
    assert_type(plan(made, OLD), Plan)
    assert_type(plan(None, OLD, step=3, item="params"), Plan)
    assert_type([path for path, _ in lint(["recipe.yaml", OLD])], list[str])
    assert_type(schema(), dict[str, Any])


def plans(made: Plan) -> None:
    assert_type(made.steps[0].leaf.key.text, str)
    assert_type([gone.why for gone in made.dropped], list[str])
    assert_type(made.costs.peak_memory, int)
    assert_type(made.html(), str)
    assert_type(repr(made), str)
    assert_type(plan_merge("merge.yaml", NEW, memory="2GiB"), Plan)


def runs(on_plan: Callable[[Plan], None]) -> None:
    done = apply(
        RECIPE, OLD, dst=NEW, overwrite=True, resume=False, verify="full", memory=1 << 30, on_plan=on_plan
    )
    assert_type(done, Result)
    assert_type(done.plan, Plan)
    assert_type(done.seconds, float)
    assert_type(convert(OLD, NEW, to="maxtext", format="safetensors", shard_size="5GB", workers=4), Result)
    assert_type(merge("merge.yaml", NEW, seed=1, link_mode="copy"), Result)
    assert_type(apply_shard("plan.json", shard="0/4").missing_shards, tuple[int, ...])
    assert_type(commit(NEW), Result | None)


def looks() -> None:
    listed = inspect(OLD, stats=True, sort="size", match=".*kernel")
    assert_type(listed.parameters, int)
    assert_type([leaf.nbytes for leaf in listed.leaves], list[int])
    difference = diff(OLD, NEW, values=True, rtol=1e-5)
    assert_type(difference.different, bool)
    told = explain(RECIPE, OLD, key="b/kernel")
    assert_type(told, Explanation)
    assert_type(told.key, str)
    assert_type(diff(OLD, NEW, uint16="bfloat16").warnings, tuple[str, ...])
    drafted = infer(OLD, NEW, values="ignore", uint16="bfloat16")
    assert_type(drafted, Inferred)
    assert_type(drafted.recipe, str)
    assert_type(drafted.warnings, tuple[str, ...])
    back = invert(RECIPE, OLD, check=False, uint16="bfloat16")
    assert_type(back, Inverse)
    assert_type(back.recipe, str)
    assert_type([flaw.what for flaw in verify(NEW, mode="fast", sample=0.05, uint16="keep").flaws], list[str])


def opened() -> None:
    with open(OLD, step=3, uint16="bfloat16") as checkpoint:
        assert_type(checkpoint, Checkpoint)
        assert_type(list(checkpoint), list[str])
        assert_type(checkpoint.nbytes, int)
        assert_type(checkpoint.statistics(match=".*kernel"), Mapping[str, Statistics | Unread])
        assert_type(checkpoint["params"], Any)
        assert_type(plan(RECIPE, checkpoint), Plan)
    array = LazyArray.of((2, 3), "float32", lambda: [[0.0] * 3] * 2)
    assert_type(array.astype("bfloat16"), LazyArray)
    assert_type(array.shape, tuple[int, ...])


def training(state: Mapping[str, object], mesh: object) -> None:
    """What is restored has the type of the target, which only the caller knows."""
    assert_type(restore(RECIPE, OLD, target=state, donate=True, memory="1GiB"), Any)
    decided = plan_restore(RECIPE, OLD, target=state, shardings=LogicalAxes(mesh, [("embed", None)], {}))
    assert_type(decided, Plan)
    assert_type(restore(decided, workers=2, progress=False), Any)
    assert_type(apply(plan(RECIPE, OLD), dst=NEW, progress=report), Result)


def report(progress: Progress) -> None:
    assert_type(progress.done_bytes, int)


def functions() -> None:
    """A function in place of a recipe, and transforms of Orbax and T5X."""

    @opaque
    def inverse(matrix: Any) -> Any:
        return matrix

    def change(tree: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"w": inverse(tree["w"]), "b": tree["b"] * 2}

    assert_type(from_function(change, OLD), MigratedRecipe)
    assert_type(plan(change, OLD), Plan)
    assert_type(load_and_transform(OLD, change), Any)
    doubled = Transform(original_key="a", value_fn=lambda value: value * 2)
    assert_type(apply_transformations({"a": 1}, {"b": doubled}, {"b": ...}), Any)
    translator = t5x.CheckpointTranslator()
    assert_type(from_t5x_translator(translator, source=OLD), MigratedRecipe)
    assert_type(recipes(), Mapping[str, str])
    described = recipe("@average")
    assert_type(described, PackagedRecipe)
    assert_type(described.help, str)


KINDS: tuple[type[SurgeryError], ...] = (
    *(DataError, DestinationError, FunctionError, Interrupted, KeyNotFound, MissingLibraryError),
    *(OriginalMissingError, OutOfMemoryError, PlanError, RecipeError, SourceError, SourcesChanged),
    *(StorageError, TransformError, UsageError, VerificationError, WorkersLost),
)


def failures() -> Sequence[str]:
    try:
        apply(RECIPE, OLD, dst=NEW)
    except errors.PlanError as error:
        return [str(error.exit_code)]
    except KINDS as error:
        return [problem.message for problem in error.problems]
    return []


def mistakes(made: Plan) -> None:
    """Each of these is refused by both."""
    ckpt_surgery.aply(RECIPE, OLD)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    apply(RECIPE, OLD, dst=NEW, overwite=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    apply(RECIPE, OLD, dst=NEW, workers="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plan(RECIPE, OLD, resume=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    plan(3, OLD)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plan(RECIPE, OLD, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    infer(OLD, NEW, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    convert(OLD, NEW, last=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    open(OLD, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    inspect(OLD, sort="bytes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    explain(RECIPE, OLD)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    made.costs = made.costs  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    made.cost.peak_memory  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
