"""A program that uses every public name, which mypy and pyright check as strictly as they can. It never runs.

What both have to refuse has a comment for each of them; a comment that is not needed is an error too.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_type

import ckpt_surgery as cs

RECIPE = {"version": 1, "rules": [{"match": "a/(.*)", "to": r"b/\1"}]}
OLD, NEW = Path("old"), Path("new")


def every_kind_of_recipe(target: object) -> None:
    """A path, a name, a text, a document, one that was read, one that was made, or None."""
    read = cs.read_recipe("recipe.yaml", set={"heads": 8})
    made = cs.from_orbax_transforms({"a": {"b": None}}, default_to_original=True)
    assert_type(made, cs.MigratedRecipe)
    assert_type(cs.from_t5x_assignment_map([("a/(.*)", r"b/\1")]), cs.MigratedRecipe)
    assert_type(cs.merge_recipe("merge.yaml", seed=1), cs.MigratedRecipe)
    assert_type(made.to_yaml(), str)
    assert_type(cs.plan(OLD / "recipe.yaml", OLD), cs.Plan)
    assert_type(cs.plan("@linen-to-nnx", "old", target=target), cs.Plan)
    assert_type(cs.plan(RECIPE, OLD, {"a": 1}, set=["heads=8"]), cs.Plan)
    assert_type(cs.plan(read, OLD), cs.Plan)
    assert_type(cs.plan(made, OLD), cs.Plan)
    assert_type(cs.plan(None, OLD, step=3, item="params"), cs.Plan)
    assert_type([path for path, _ in cs.lint(["recipe.yaml", OLD])], list[str])
    assert_type(cs.schema(), dict[str, Any])


def plans(made: cs.Plan) -> None:
    assert_type(made.steps[0].leaf.key.text, str)
    assert_type([gone.why for gone in made.dropped], list[str])
    assert_type(made.costs.peak_memory, int)
    assert_type(made.html(), str)
    assert_type(repr(made), str)
    assert_type(cs.plan_merge("merge.yaml", NEW, memory="2GiB"), cs.Plan)


def runs(on_plan: Callable[[cs.Plan], None]) -> None:
    done = cs.apply(
        RECIPE, OLD, dst=NEW, overwrite=True, resume=False, verify="full", memory=1 << 30, on_plan=on_plan
    )
    assert_type(done, cs.Result)
    assert_type(done.plan, cs.Plan)
    assert_type(done.seconds, float)
    assert_type(
        cs.convert(OLD, NEW, to="maxtext", format="safetensors", shard_size="5GB", workers=4), cs.Result
    )
    assert_type(cs.merge("merge.yaml", NEW, seed=1, link_mode="copy"), cs.Result)
    assert_type(cs.apply_shard("plan.json", shard="0/4").missing_shards, tuple[int, ...])
    assert_type(cs.commit(NEW), cs.Result | None)


def looks() -> None:
    listed = cs.inspect(OLD, stats=True, sort="size", match=".*kernel")
    assert_type(listed.parameters, int)
    assert_type([leaf.nbytes for leaf in listed.leaves], list[int])
    difference = cs.diff(OLD, NEW, values=True, rtol=1e-5)
    assert_type(difference.different, bool)
    told = cs.explain(RECIPE, OLD, key="b/kernel")
    assert_type(told, cs.Explanation)
    assert_type(told.key, str)
    assert_type(cs.diff(OLD, NEW, uint16="bfloat16").warnings, tuple[str, ...])
    drafted = cs.infer(OLD, NEW, values="ignore", uint16="bfloat16")
    assert_type(drafted, cs.Inferred)
    assert_type(drafted.recipe, str)
    assert_type(drafted.warnings, tuple[str, ...])
    back = cs.invert(RECIPE, OLD, check=False, uint16="bfloat16")
    assert_type(back, cs.Inverse)
    assert_type(back.recipe, str)
    assert_type(
        [flaw.what for flaw in cs.verify(NEW, mode="fast", sample=0.05, uint16="keep").flaws], list[str]
    )


def opened() -> None:
    with cs.open(OLD, step=3, uint16="bfloat16") as checkpoint:
        assert_type(checkpoint, cs.Checkpoint)
        assert_type(list(checkpoint), list[str])
        assert_type(checkpoint.nbytes, int)
        assert_type(checkpoint.statistics(match=".*kernel"), Mapping[str, cs.Statistics | cs.Unread])
        assert_type(checkpoint["params"], Any)
        assert_type(cs.plan(RECIPE, checkpoint), cs.Plan)
    array = cs.LazyArray.of((2, 3), "float32", lambda: [[0.0] * 3] * 2)
    assert_type(array.astype("bfloat16"), cs.LazyArray)
    assert_type(array.shape, tuple[int, ...])


def training(state: Mapping[str, object], mesh: object) -> None:
    """What is restored has the type of the target, which only the caller knows."""
    assert_type(cs.restore(RECIPE, OLD, target=state, donate=True, memory="1GiB"), Any)
    decided = cs.plan_restore(
        RECIPE, OLD, target=state, shardings=cs.LogicalAxes(mesh, [("embed", None)], {})
    )
    assert_type(decided, cs.Plan)
    assert_type(cs.restore(decided, workers=2, progress=False), Any)
    assert_type(cs.apply(cs.plan(RECIPE, OLD), dst=NEW, progress=report), cs.Result)


def report(progress: cs.Progress) -> None:
    assert_type(progress.done_bytes, int)


def functions() -> None:
    """A function in place of a recipe, and transforms of Orbax and T5X."""

    @cs.opaque
    def inverse(matrix: Any) -> Any:
        return matrix

    def change(tree: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"w": inverse(tree["w"]), "b": tree["b"] * 2}

    assert_type(cs.from_function(change, OLD), cs.MigratedRecipe)
    assert_type(cs.plan(change, OLD), cs.Plan)
    assert_type(cs.load_and_transform(OLD, change), Any)
    doubled = cs.Transform(original_key="a", value_fn=lambda value: value * 2)
    assert_type(cs.apply_transformations({"a": 1}, {"b": doubled}, {"b": ...}), Any)
    translator = cs.t5x.CheckpointTranslator()
    assert_type(cs.from_t5x_translator(translator, source=OLD), cs.MigratedRecipe)
    assert_type(cs.recipes(), Mapping[str, str])
    described = cs.recipe("@average")
    assert_type(described, cs.PackagedRecipe)
    assert_type(described.help, str)


KINDS: tuple[type[cs.SurgeryError], ...] = (
    *(
        cs.DataError,
        cs.DestinationError,
        cs.FunctionError,
        cs.Interrupted,
        cs.KeyNotFound,
        cs.MissingLibraryError,
    ),
    *(
        cs.OriginalMissingError,
        cs.OutOfMemoryError,
        cs.PlanError,
        cs.RecipeError,
        cs.SourceError,
        cs.SourcesChanged,
    ),
    *(cs.StorageError, cs.TransformError, cs.UsageError, cs.VerificationError, cs.WorkersLost),
)


def failures() -> Sequence[str]:
    try:
        cs.apply(RECIPE, OLD, dst=NEW)
    except cs.errors.PlanError as error:
        return [str(error.exit_code)]
    except KINDS as error:
        return [problem.message for problem in error.problems]
    return []


def mistakes(made: cs.Plan) -> None:
    """Each of these is refused by both."""
    cs.aply(RECIPE, OLD)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    cs.apply(RECIPE, OLD, dst=NEW, overwite=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    cs.apply(RECIPE, OLD, dst=NEW, workers="4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.plan(RECIPE, OLD, resume=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    cs.plan(3, OLD)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.plan(RECIPE, OLD, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.infer(OLD, NEW, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.convert(OLD, NEW, last=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    cs.open(OLD, uint16="float16")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.inspect(OLD, sort="bytes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    cs.explain(RECIPE, OLD)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    made.costs = made.costs  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    made.cost.peak_memory  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
