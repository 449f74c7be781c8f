"""Whole runs on real checkpoints: what stock Orbax wrote goes in, what comes out stock Orbax restores."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import (
    DataError,
    DestinationError,
    SurgeryError,
    UsageError,
)
from ckpt_surgery.core.history import own_metadata as own
from ckpt_surgery.planner.plan import Fate
from tests.support import checkpoints
from tests.support.checkpoints import (
    LAYOUTS,
    WITH_STRINGS,
    expected_of,
    restored_by_all,
    restored_leaves,
)
from tests.support.comparing import assert_same
from tests.support.directories import names, state_of
from tests.support.documents import plan_json
from tests.support.generations import lock_of, write_lock
from tests.support.reading import read
from tests.support.slow import slow

Checkpoint = Callable[[str], Path]
Recipe = Callable[[str], Path]

RENAME = """version: 1
rules:
  - match: '(?P<all>.*)'
    to: 'model/${all}'
"""


@pytest.mark.parametrize(
    "layout",
    [slow(one) if one == "processes" else one for one in LAYOUTS],
)
def test_everything_is_carried_along_under_new_names(
    layout: str, checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    """Empty nodes, strings, scalars, PRNG keys, shardings and custom metadata, from every layout."""
    source = checkpoint(layout)
    result = ckpt_surgery.apply(recipe(RENAME), source, dst=tmp_path / "out")
    wanted = {f"model/{text}": value for text, value in expected_of(layout).items()}
    assert_same(read(tmp_path / "out"), wanted)
    if layout != "processes":  # its devices are of two hosts: stock Orbax restores that with a target only
        assert_same(restored_by_all(tmp_path / "out", layout in WITH_STRINGS), wanted)
    before, after = ckpt_surgery.inspect(source), ckpt_surgery.inspect(tmp_path / "out")
    carried = {f"model/{one.key}": (one.kind, one.sharding, one.prng_impl) for one in before.leaves}
    assert {one.key.text: (one.kind, one.sharding, one.prng_impl) for one in after.leaves} == carried
    assert own(after.metadata) == own(before.metadata)
    assert {step.fate for step in result.plan.steps} == {Fate.RENAMED}
    assert names(tmp_path) == ["out", "recipe.yaml"]


# --- steps and items ------------------------------------


def test_a_destination_that_is_a_checkpoint_manager_directory(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The directory is made, then a second step is put beside the first."""
    import orbax.checkpoint as ocp

    for step, source in ((3, "standard"), (7, "ocdbt-zarr3")):
        drop_strings = "version: 1\nrules: [{match: 'name|a/b/s', drop: true, optional: true}]"
        ckpt_surgery.apply(drop_strings, checkpoint(source), dst=tmp_path / "run", dst_step=step)
    with checkpoints.quiet(), ocp.CheckpointManager(tmp_path / "run") as manager:
        assert sorted(manager.all_steps()) == [3, 7]
        assert_same(restored_leaves(manager.restore(7)), checkpoints.expected())
        third = manager.restore(3, args=ocp.args.StandardRestore())
        assert_same(restored_leaves(third), checkpoints.expected())
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply("version: 1\n", checkpoint("standard"), dst=tmp_path / "run", dst_step=7)


def test_two_steps_of_one_directory_are_two_sources(checkpoint: Checkpoint, tmp_path: Path) -> None:
    text = "version: 1\nsources: [a, b]\nrules: [{match: big, value: \"x + b['big']\"}]\n"
    source = checkpoint("steps")
    plan = ckpt_surgery.plan(text, source / "3", source)  # the latest
    assert (plan.inputs[1].step, plan.inputs[1].item) == (10, "default")
    assert ckpt_surgery.plan(None, source, step=3).inputs[0].step == 3
    listed = plan_json(plan)["sources"]["b"]
    assert (listed["format"], listed["step"], listed["item"]) == ("orbax", 10, "default")
    assert plan.warnings == ()
    told = f"the sources `a`, `b` are the same checkpoint, {source}"
    for one, two in ((source, source), (source, source / "10"), (source / "10", source / "10" / "default")):
        assert [w.startswith(told) for w in ckpt_surgery.plan(text, one, two).warnings] == [True]
    shutil.copytree(source / "10", tmp_path / "copy", copy_function=shutil.copy2)
    assert ckpt_surgery.plan(text, source / "10", tmp_path / "copy").warnings == ()


def test_a_step_goes_into_a_directory_of_steps_only(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Neither into a checkpoint nor into another step, nor is its number given twice."""
    source = checkpoint("standard")
    ckpt_surgery.convert(source, tmp_path / "one")
    ckpt_surgery.convert(source, tmp_path / "run", dst_step=1)
    before = sorted(tmp_path.rglob("*"))
    for name, step, says in (
        ("one", 2, "one is a checkpoint itself"),
        ("run/1", 2, "run/1 is a checkpoint itself"),
        ("run/2", 2, "run/2 names the step 2 already"),
        ("new/2", 2, "new/2 names the step 2 already"),
        ("run/2", 3, f"run/2 would be a step of {tmp_path}/run itself"),
    ):
        (tmp_path / "new").mkdir(exist_ok=True)
        for run in (ckpt_surgery.plan, ckpt_surgery.apply):
            with pytest.raises(UsageError, match=f"{says}(.|\n)*leave out"):
                run(None, source, dst=tmp_path / name, dst_step=step)
        (tmp_path / "new").rmdir()
    assert sorted(tmp_path.rglob("*")) == before
    ckpt_surgery.convert(source, tmp_path / "seed_2", dst_step=2)
    ckpt_surgery.convert(source, tmp_path / "run", dst_step=2)
    assert sorted(os.listdir(tmp_path / "run")) == ["1", "2"]


# --- nothing is lost ------------------------------------


@pytest.mark.parametrize("name", ["out", "out.safetensors"])
def test_a_failure_while_overwriting_keeps_the_old_one(
    name: str, model: Path, recipe: Recipe, tmp_path: Path
) -> None:
    ckpt_surgery.convert(model, tmp_path / name)
    bad = recipe("version: 1\nrules: [{match: a/kernel, value: \"cast(x * 1e6, 'float16')\"}]")
    before = state_of(tmp_path)
    with pytest.raises(DataError, match=r"recipe.yaml:2:34  rules\[0\].value(.|\n)*`a/kernel`: cast to"):
        ckpt_surgery.apply(bad, model, dst=tmp_path / name, overwrite=True)
    assert state_of(tmp_path) == before
    assert names(tmp_path) == sorted(["model", name, "recipe.yaml"])


def test_plan_refuses_the_destinations_that_apply_refuses(
    model: Path, recipe: Recipe, tmp_path: Path
) -> None:
    """With the same words, and without a trace."""
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    write_lock(tmp_path / "locked")
    path, sharded = recipe("version: 1\n"), tmp_path / "sharded"
    ckpt_surgery.convert(model, sharded, format="safetensors", shard_size=4800)
    index, shard = sharded / "model.safetensors.index.json", sharded / "model-00001-of-00002.safetensors"
    before = {file: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")}
    for source, target, dst, options, code in (
        (model, None, tmp_path / "there", {}, 4),
        (model, None, tmp_path / "link", {"overwrite": True}, 4),
        (model, None, tmp_path / "locked", {}, 4),
        (model, None, tmp_path / "no" / "out", {}, 2),
        (model.parent, None, model.parent, {"overwrite": True}, 2),
        (model.parent, None, model.parent / "out", {}, 2),
        (model, model.parent, tmp_path / "model", {"overwrite": True}, 4),
        (index, None, shard, {"overwrite": True, "format": "safetensors"}, 4),
        (model, None, path, {"overwrite": True, "format": "safetensors"}, 4),
        (model, None, tmp_path / "out.pt", {}, 2),
        (model, None, tmp_path / "out", {"dst_item": "a/b"}, 2),
    ):
        raised = []
        for run in (ckpt_surgery.plan, ckpt_surgery.apply):
            with pytest.raises(SurgeryError) as caught:
                run(path, source, target=target, dst=dst, **options)
            raised.append((str(caught.value), caught.value.exit_code))
        assert raised[0] == raised[1]
        assert raised[0][1] == code
    ckpt_surgery.plan(path, model, dst=tmp_path / "there", overwrite=True)
    assert {file: file.lstat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_a_dead_runs_lock_does_not_stop_a_plan(model: Path, tmp_path: Path) -> None:
    write_lock(tmp_path / "out", started="1")
    ckpt_surgery.plan(None, model, dst=tmp_path / "out")
    assert lock_of(tmp_path / "out").exists()


# --- looking, and the package ------------------------------------


def test_params_and_sizes_as_python_has_them(model: Path, tmp_path: Path) -> None:
    text = "version: 1\nparams: {n: 1}\nrules: [{match: b, value: 'x * n'}]\n"
    one, two = tmp_path / "one", tmp_path / "two"
    texts = {"memory": "64MiB", "shard_size": "4.8kB", "set": {"n": 4}}
    numbers = {"memory": 64 << 20, "shard_size": 4800, "set": ["n=4"]}
    for dst, options in ((one, texts), (two, numbers)):
        ckpt_surgery.apply(text, model, dst=dst, format="safetensors", **options)
    first, second = ([file.read_bytes() for file in sorted(path.iterdir())] for path in (one, two))
    assert len(first) > 2
    assert first == second
    compared = ckpt_surgery.diff(model, one, values=True, memory="64MiB").values
    assert [value.key for value in compared if not value.equal] == ["b"]
