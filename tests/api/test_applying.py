"""Whole runs on real checkpoints: what stock Orbax wrote goes in, what comes out stock Orbax restores."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file

import ckpt_surgery
from ckpt_surgery.core.errors import (
    DataError,
    DestinationError,
    PlanError,
    RecipeError,
    SourceError,
    SurgeryError,
    UsageError,
)
from ckpt_surgery.core.history import own_metadata as own
from ckpt_surgery.formats import known as formats
from ckpt_surgery.formats import opening
from ckpt_surgery.planner.plan import Fate
from tests.support import checkpoints
from tests.support.checkpoints import (
    CUSTOM,
    LAYOUTS,
    WITH_STRINGS,
    expected_of,
    random,
    restored_by_all,
    restored_leaves,
)
from tests.support.comparing import assert_same
from tests.support.directories import copy_of, names, state_of
from tests.support.documents import plan_json
from tests.support.generations import lock_of, write_lock
from tests.support.models import ARRAYS
from tests.support.reading import read, values

Checkpoint = Callable[[str], Path]
Recipe = Callable[[str], Path]

RENAME = """version: 1
rules:
  - match: '(?P<all>.*)'
    to: 'model/${all}'
"""


@pytest.mark.parametrize(
    "layout", [pytest.param(one, marks=pytest.mark.slow if one == "processes" else ()) for one in LAYOUTS]
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


def test_saved_over_eight_devices_renamed_and_restored_on_four(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    ckpt_surgery.apply(
        "version: 1\nunmatched: drop\nrules: [{match: params/w, to: q/k}]",
        checkpoint("standard"),
        dst=tmp_path / "out",
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    target = {"q": {"k": jax.ShapeDtypeStruct((32, 64), np.float32, sharding=sharding)}}
    with checkpoints.quiet():
        found = ocp.StandardCheckpointer().restore(tmp_path / "out", target)["q"]["k"]
    assert len(found.sharding.device_set) == 4
    assert found.sharding == sharding
    assert np.asarray(found).tobytes() == random((32, 64)).tobytes()


def test_values_are_computed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    text = """
        version: 1
        unmatched: drop
        rules:
          - {match: params/w, to: half, value: "cast(x.T, 'bfloat16')"}
          - {match: replicated, to: {left: "x[:, :8]", right: "x[:, 8:] * 2"}}
          - {match: count, value: x + 1}
    """
    result = ckpt_surgery.apply(text, checkpoint("ocdbt-zarr2"), dst=tmp_path / "out", memory=1 << 20)
    replicated = random((6, 16), 1)
    wanted = {
        "half": random((32, 64)).T.astype(ml_dtypes.bfloat16),
        "left": replicated[:, :8],
        "right": replicated[:, 8:] * 2,
        "count": np.array(4),
    }
    assert_same(restored_by_all(tmp_path / "out", with_strings=False), wanted)
    assert all(step.fate is Fate.TRANSFORMED for step in result.plan.steps)


# --- steps and items ------------------------------------


def test_steps_of_a_source(checkpoint: Checkpoint, tmp_path: Path) -> None:
    ckpt_surgery.apply("version: 1\n", checkpoint("steps"), dst=tmp_path / "latest")
    ckpt_surgery.apply("version: 1\n", checkpoint("steps"), dst=tmp_path / "third", step=3)
    assert read(tmp_path / "latest")["count"] == 3
    assert read(tmp_path / "third")["count"] == 0


def test_a_destination_that_is_a_checkpoint_manager_directory(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The directory is made, then a second step is put beside the first."""
    for step, source in ((3, "standard"), (7, "ocdbt-zarr3")):
        drop_strings = "version: 1\nrules: [{match: 'name|a/b/s', drop: true, optional: true}]"
        ckpt_surgery.apply(drop_strings, checkpoint(source), dst=tmp_path / "run", dst_step=step)
    with checkpoints.quiet(), ocp.CheckpointManager(tmp_path / "run") as manager:
        assert sorted(manager.all_steps()) == [3, 7]
        assert_same(restored_leaves(manager.restore(7)), checkpoints.expected())
        assert_same(
            restored_leaves(manager.restore(3, args=ocp.args.StandardRestore())), checkpoints.expected()
        )
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply("version: 1\n", checkpoint("standard"), dst=tmp_path / "run", dst_step=7)


def test_what_was_chosen_is_in_the_plan(checkpoint: Checkpoint) -> None:
    """The latest step and its only item, where nobody says."""
    text, source = "version: 1\n", checkpoint("steps")
    for given, step in (({}, 10), ({"step": 3}, 3)):
        plan = ckpt_surgery.plan(text, source, **given)
        assert [(one.step, one.item) for one in plan.inputs] == [(step, "default")]
        listed = plan_json(plan)["sources"]["source"]
        assert (listed["format"], listed["step"], listed["item"]) == ("orbax", step, "default")
    (plain,) = ckpt_surgery.plan(text, checkpoint("standard")).inputs
    assert (plain.step, plain.item) == (None, None)


def test_two_steps_of_one_directory_are_two_sources(checkpoint: Checkpoint, tmp_path: Path) -> None:
    text = "version: 1\nsources: [a, b]\nrules: [{match: big, value: \"x + b['big']\"}]\n"
    source = checkpoint("steps")
    plan = ckpt_surgery.plan(text, source / "3", source / "10")
    assert plan.warnings == ()
    told = f"the sources `a`, `b` are the same checkpoint, {source}"
    for one, two in ((source, source), (source, source / "10"), (source / "10", source / "10" / "default")):
        assert [w.startswith(told) for w in ckpt_surgery.plan(text, one, two).warnings] == [True]
    shutil.copytree(source / "10", tmp_path / "copy", copy_function=shutil.copy2)
    assert ckpt_surgery.plan(text, source / "10", tmp_path / "copy").warnings == ()


@pytest.mark.parametrize("given", [{"step": 10}, {"step": 3}, {"item": "default", "step": 10}])
def test_a_step_of_what_has_none_is_told(given: dict[str, Any], checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError, match=r"10 has no steps to choose from"):
        ckpt_surgery.plan(None, checkpoint("steps") / "10", **given)
    with pytest.raises(UsageError, match=r"default has no items to choose from"):
        ckpt_surgery.plan(None, checkpoint("steps") / "10" / "default", item="default")


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


# --- the target ------------------------------------


def test_a_target_gives_structure_and_defaults(checkpoint: Checkpoint, tmp_path: Path) -> None:
    tree = {"params": {"w": np.zeros((32, 64), ml_dtypes.bfloat16), "new": np.arange(3)}}
    checkpoints.save_standard(tmp_path / "target", tree)
    result = ckpt_surgery.apply(
        "version: 1\ntarget: {dtype: target, missing: fallback}\n",
        checkpoint("standard"),
        dst=tmp_path / "out",
        target=tmp_path / "target",
    )
    wanted = {"params/w": random((32, 64)).astype(ml_dtypes.bfloat16), "params/new": np.arange(3)}
    assert_same(restored_by_all(tmp_path / "out", with_strings=False), wanted)
    fates = {s.leaf.key.text: s.fate for s in result.plan.steps}
    assert fates == {"params/w": Fate.TRANSFORMED, "params/new": Fate.DEFAULTED}
    assert {d.why for d in result.plan.dropped} == {"not in target"}


def test_a_listing_as_the_target(checkpoint: Checkpoint, tmp_path: Path) -> None:
    listed = {"leaves": [{"key": "params/w", "shape": [32, 64], "dtype": "float32", "kind": "array"}]}
    (tmp_path / "target.json").write_text(json.dumps(listed))
    plan = ckpt_surgery.plan("version: 1\n", checkpoint("standard"), target=tmp_path / "target.json")
    assert [s.leaf.key.text for s in plan.steps] == ["params/w"]
    listed["leaves"][0] |= {"shape": [64, 32], "dtype": "bfloat16"}
    (tmp_path / "target.json").write_text(json.dumps(listed))
    like_the_target = """
        version: 1
        rules:
          - match: .*
            when: has(target[key]) and kind(target[key]) == 'array' and target[key].ndim == x.ndim
            value: cast(reshape(x, target[key].shape), target[key].dtype)
    """
    plan = ckpt_surgery.plan(like_the_target, checkpoint("standard"), target=tmp_path / "target.json")
    (step,) = plan.steps
    assert str(step.leaf.spec) == "bfloat16[64,32]"
    assert step.sources == (("source", "params/w"),)
    with pytest.raises(PlanError, match=r"`params/w` has shape \[32, 64\], the target has \[64, 32\]"):
        ckpt_surgery.plan("version: 1\n", checkpoint("standard"), target=tmp_path / "target.json")


# --- nothing is lost ------------------------------------


def test_an_existing_destination_is_refused_and_kept(
    checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ckpt_surgery.apply(recipe("version: 1\n"), checkpoint("standard"), dst=out)
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.apply(recipe(RENAME), checkpoint("standard"), dst=out)
    assert_same(read(out), checkpoints.expected())
    ckpt_surgery.apply(recipe(RENAME), checkpoint("standard"), dst=out, overwrite=True)
    assert "model/count" in read(out)
    assert names(tmp_path) == ["out", "recipe.yaml"]


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


def test_a_source_that_changes_while_it_is_read(
    checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    source = copy_of(checkpoint("plain-zarr2"), tmp_path / "source")

    def meddle(plan: object) -> None:
        (source / "big" / "0.0").write_bytes(b"something else")

    with pytest.raises(SurgeryError):
        ckpt_surgery.apply(
            recipe("version: 1\nrules: [{match: big, drop: true}]"),
            source,
            dst=tmp_path / "out",
            on_plan=meddle,
        )
    assert names(tmp_path) == ["recipe.yaml", "source"]


FIVE_MISTAKES = """version: 2
rules:
  - match: 'params/(.*'
    to: '\\1'
  - match: a
    too: b
  - match: b
    value: tranpose(x)
  - match: c
    to: '${nme}'
    drop: yes
"""


def test_five_mistakes_are_told_at_once(checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        ckpt_surgery.apply(recipe(FIVE_MISTAKES), checkpoint("standard"), dst=tmp_path / "out")
    told = str(caught.value)
    places = {p.place.line for p in caught.value.problems if p.place}
    assert {1, 3, 6, 8, 10, 11} <= places
    assert "did you mean `transpose`?" in told
    assert "did you mean `to`?" in told
    assert names(tmp_path) == ["recipe.yaml"]


def half_written(directory: Path, checkpoint: Checkpoint) -> Path:
    half = copy_of(checkpoint("standard"), directory / "half")
    (half / "manifest.ocdbt").unlink()
    return half


SOURCES: dict[str, tuple[Callable[[Path, Checkpoint], Path], type[SurgeryError], str]] = {
    "missing": (lambda directory, _: directory / "nowhere", UsageError, "does not exist"),
    "half-written": (half_written, SourceError, "manifest.ocdbt"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_source_that_cannot_be_read_is_told_and_nothing_is_left(
    case: str, checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    make, kind, says = SOURCES[case]
    path, source = recipe("version: 1\n"), make(tmp_path, checkpoint)
    before = names(tmp_path)
    with pytest.raises(kind) as caught:
        ckpt_surgery.apply(path, source, dst=tmp_path / "out")
    assert says in str(caught.value)
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("- {match: count, to: z}\n- {match: rate, to: z}", "two leaves would be called `z`"),
        ("- {match: parms/w, to: z}", "did you mean `params/w`?"),
        ("- {match: count, to: p.q}\n- {match: rate, to: p/q}", "p.q"),
        ("- {match: 'layers/0', drop: true}", "layers"),
        ("- {match: count, to: params}", "params"),
    ],
    ids=["one key twice", "nothing matches", "a.b and a/b", "a gap in a list", "a leaf as a container"],
)
def test_a_result_that_cannot_be_is_told_and_nothing_is_left(
    rules: str, says: str, checkpoint: Checkpoint, recipe: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.apply(
            recipe(f"version: 1\nrules:\n{rules}"), checkpoint("standard"), dst=tmp_path / "out"
        )
    assert says in str(caught.value)
    assert names(tmp_path) == ["recipe.yaml"]


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


@pytest.mark.parametrize("name", ["source", "target", "recipe", "destination", "out"])
def test_a_path_that_does_not_exist_is_wrong_usage(name: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("version: 1\n")
    gone = tmp_path / "gone" / "x"
    paths = {"recipe": tmp_path / "r.yaml", "source": model}
    options = {"dst": gone} if name == "destination" else {name: gone} if name in ("target", "out") else {}
    paths |= {name: gone} if name in paths else {}
    with pytest.raises(UsageError, match=str(gone.parent)) as caught:
        ckpt_surgery.plan(paths["recipe"], paths["source"], **options)
    assert caught.value.exit_code == 2
    for look in (lambda: ckpt_surgery.inspect(gone), lambda: ckpt_surgery.diff(model, gone)):
        with pytest.raises(UsageError, match="does not exist"):
            look()


def test_the_number_of_sources(checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError, match=r"the recipe takes 1 source \(source\); 2 were given"):
        ckpt_surgery.plan("version: 1\n", checkpoint("standard"), checkpoint("standard"))


# --- other formats, and destinations that are one file -----------------------------------------------

COPY = "version: 1\n"


def test_the_name_of_the_destination_says_its_format(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    for name in ("out.safetensors", "out", "out.safetensors/"):
        ckpt_surgery.apply(recipe(COPY), model, dst=f"{tmp_path}/{name}", overwrite=True)
    assert (tmp_path / "out.safetensors").is_file()
    assert_same(load_file(tmp_path / "out.safetensors"), ARRAYS)
    assert_same(restored_by_all(tmp_path / "out", with_strings=False), ARRAYS)
    assert own(ckpt_surgery.inspect(tmp_path / "out.safetensors").metadata) == {"format": "pt", "run": "a17"}
    assert names(tmp_path) == ["model", "out", "out.safetensors", "recipe.yaml"]


@pytest.mark.parametrize("format", ["orbax", "zarr"])
def test_a_destination_that_tensorstore_takes_for_another(
    format: str, model: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found out by the plan. Where the program runs does not matter."""
    (tmp_path / "a\\b").mkdir()
    before = names(tmp_path)
    monkeypatch.chdir(tmp_path / "a\\b")
    for run in (ckpt_surgery.plan, ckpt_surgery.apply):
        for path in (tmp_path / "x\\y", Path("out"), tmp_path / "a\\b" / "out"):
            with pytest.raises(UsageError, match="has a backslash in it"):
                run(recipe(COPY), model, dst=path, format=format)
    assert names(tmp_path) == sorted([*before, "recipe.yaml"])
    ckpt_surgery.plan(recipe(COPY), model, format=format)
    ckpt_surgery.apply(recipe(COPY), model, dst=tmp_path / "out", format=format)
    assert_same(values(opening.open_source(str(tmp_path / "out"))), ARRAYS)


def test_what_is_said_wins_over_the_name(model: Path, tmp_path: Path) -> None:
    """The command line over the recipe over the name; a name that says something else is a warning."""
    said = "will be orbax, though its name says safetensors"
    one = ckpt_surgery.apply(COPY, model, dst=tmp_path / "a.safetensors", format="orbax")
    two = ckpt_surgery.apply("version: 1\noutput: {format: orbax}\n", model, dst=tmp_path / "b.safetensors")
    for result in (one, two):
        assert [w for w in result.plan.warnings if w.endswith(said)]
        assert ckpt_surgery.inspect(result.destination).format == "orbax"
    three = ckpt_surgery.apply(
        "version: 1\noutput: {format: orbax}\n", model, dst=tmp_path / "c", format="safetensors"
    )
    assert three.plan.warnings == ()
    assert names(tmp_path / "c") == ["model.safetensors"]


@pytest.mark.parametrize(
    "name", ["y.gguf", "y.tar", "y.onnx", "y.ckpt", "y.tar.gz", "y.PKL", "y.pt", "y.bin"]
)
def test_a_name_of_what_is_not_written_is_refused(name: str, model: Path, tmp_path: Path) -> None:
    """Unless the caller says what it is to be; what the recipe says was said of other names."""
    out = tmp_path / name
    text = "version: 1\noutput: {format: zarr}\n"
    for run in (
        lambda: ckpt_surgery.convert(model, out),
        lambda: ckpt_surgery.apply(text, model, dst=out),
        lambda: ckpt_surgery.plan(text, model, dst=out),
    ):
        with pytest.raises(UsageError, match=r"its name says .*, which cannot be written"):
            run()
    assert not out.exists()
    result = ckpt_surgery.convert(model, out, format="orbax")
    assert [warning for warning in result.plan.warnings if "will be orbax, though its name says" in warning]
    assert_same(read(out), ARRAYS)


def test_letters_of_a_name_may_be_capitals(model: Path, tmp_path: Path) -> None:
    for name in ("OUT.SAFETENSORS", "Out.Msgpack"):
        ckpt_surgery.convert(model, tmp_path / name)
        assert (tmp_path / name).is_file()
        assert_same(read(tmp_path / name), ARRAYS)


def test_a_file_is_overwritten_by_a_directory_and_back(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ckpt_surgery.convert(model, out, format="npz")
    before = out.read_bytes()
    with pytest.raises(DestinationError, match="exists already"):
        ckpt_surgery.convert(model, out)
    assert out.read_bytes() == before
    for format in ("orbax", "safetensors"):
        ckpt_surgery.convert(model, out, format=format, overwrite=True)
        assert ckpt_surgery.inspect(out).format == format
    ckpt_surgery.convert(out, tmp_path / "out.safetensors")
    ckpt_surgery.convert(model.parent, tmp_path / "out.safetensors", overwrite=True)
    assert_same(load_file(tmp_path / "out.safetensors"), ARRAYS)
    assert names(tmp_path) == ["model", "out", "out.safetensors"]


def test_convert_keeps_every_leaf(checkpoint: Checkpoint, tmp_path: Path) -> None:
    result = ckpt_surgery.convert(checkpoint("ocdbt-zarr3"), tmp_path / "out")
    assert_same(read(tmp_path / "out"), expected_of("ocdbt-zarr3"))
    assert {step.fate for step in result.plan.steps} == {Fate.KEPT}
    assert result.plan.recipe == "(none)"
    assert ckpt_surgery.inspect(tmp_path / "out").metadata == CUSTOM


def test_what_the_destination_cannot_hold_is_refused_by_key(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as caught:
        ckpt_surgery.convert(checkpoint("ocdbt-zarr3"), tmp_path / "out.safetensors")
    told = str(caught.value)
    for key in ("name", r"a\/b/s", "key"):
        assert f"`{key}`" in told
    assert names(tmp_path) == []


def test_shards(model: Path, tmp_path: Path) -> None:
    ckpt_surgery.convert(model, tmp_path / "out", format="safetensors", shard_size=4800)
    assert names(tmp_path / "out") == [
        "ckpt_surgery.json",
        *("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        "model.safetensors.index.json",
    ]
    assert_same(read(tmp_path / "out"), ARRAYS)
    with pytest.raises(UsageError, match="orbax checkpoints have no shards"):
        ckpt_surgery.plan(COPY, model, shard_size=4800)
    with pytest.raises(UsageError, match=r"x\.safetensors is one file, which cannot have shards"):
        ckpt_surgery.convert(model, tmp_path / "x.safetensors", shard_size=4800)


def test_the_format_of_a_source_can_be_said(model: Path, tmp_path: Path) -> None:
    (model.parent / "_METADATA").write_text("{}")
    for look in (ckpt_surgery.inspect, lambda path: ckpt_surgery.convert(path, tmp_path / "x")):
        with pytest.raises(SourceError, match="several formats: orbax; safetensors"):
            look(model.parent)
    assert ckpt_surgery.inspect(model.parent, format="safetensors").format == "safetensors"
    ckpt_surgery.convert(model.parent, tmp_path / "out", src_format="safetensors")
    assert_same(read(tmp_path / "out"), ARRAYS)
    with pytest.raises(SourceError, match="was to be read as orbax, but looks like safetensors"):
        ckpt_surgery.convert(model, tmp_path / "x", src_format="orbax")


def test_a_file_of_the_source_is_never_replaced(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    """A shard lies beside the index that was named, and not inside of it."""
    sharded = tmp_path / "sharded"
    ckpt_surgery.convert(model, sharded, format="safetensors", shard_size=4800)
    (sharded / "ckpt_surgery.json").unlink()
    before = {name: (sharded / name).read_bytes() for name in names(sharded)}
    for name in before:
        with pytest.raises((UsageError, DestinationError), match=r"the destination is|not replaced"):
            ckpt_surgery.convert(
                sharded / "model.safetensors.index.json",
                sharded / name,
                format="safetensors",
                overwrite=True,
            )
    assert {name: (sharded / name).read_bytes() for name in names(sharded)} == before


def test_metadata_without_a_place_is_a_warning(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = formats.formats()
    forgetful = replace(known["safetensors"], holds_metadata=False)
    monkeypatch.setattr(formats, "formats", lambda: {**known, "safetensors": forgetful})
    plan = ckpt_surgery.plan(None, model, dst=tmp_path / "x.safetensors")
    assert plan.warnings == (
        "the custom metadata (`run`) is left out: safetensors checkpoints have no place for it",
    )
    assert ckpt_surgery.plan(None, model).warnings == ()


def test_an_index_is_no_listing(model: Path, tmp_path: Path) -> None:
    """As a target, an index of shards is a checkpoint."""
    ckpt_surgery.convert(model, tmp_path / "sharded", format="safetensors", shard_size=4800)
    plan = ckpt_surgery.plan(None, model, target=tmp_path / "sharded" / "model.safetensors.index.json")
    assert [i.name for i in plan.inputs] == ["source", "target"]


# --- looking, and the package ------------------------------------


def test_lint_takes_one_path(recipe: Recipe) -> None:
    path = recipe("version: 1\n")
    for one in (path, str(path), [path], iter([str(path)])):
        assert ckpt_surgery.lint(one) == [(str(path), ())]


def test_params_and_sizes_as_python_has_them(model: Path, tmp_path: Path) -> None:
    text = "version: 1\nparams: {n: 1}\nrules: [{match: b, value: 'x * n'}]\n"
    one, two = tmp_path / "one", tmp_path / "two"
    texts = {"memory": "64MiB", "shard_size": "4.8kB", "format": "safetensors"}
    ckpt_surgery.apply(text, model, dst=one, set={"n": 4}, **texts)
    numbers = {"memory": 64 << 20, "shard_size": 4800, "format": "safetensors"}
    ckpt_surgery.apply(text, model, dst=two, set=["n=4"], **numbers)
    assert len(names(one)) > 2
    assert {name: (one / name).read_bytes() for name in names(one)} == {
        name: (two / name).read_bytes() for name in names(two)
    }
    compared = ckpt_surgery.diff(model, one, values=True, memory="64MiB").values
    assert [value.key for value in compared if not value.equal] == ["b"]
    for call in (
        lambda: ckpt_surgery.plan(text, model, memory="much"),
        lambda: ckpt_surgery.apply(text, model, dst=tmp_path / "x", memory="much"),
        lambda: ckpt_surgery.convert(model, tmp_path / "x", memory="much"),
        lambda: ckpt_surgery.diff(model, model, values=True, memory="much"),
    ):
        with pytest.raises(UsageError, match="`memory`: `much` is not a size"):
            call()
    assert not (tmp_path / "x").exists()


def test_lint_takes_several(recipe: Recipe, tmp_path: Path) -> None:
    good = recipe("version: 1\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nrules: [{match: a}, {fil: b}]")
    told = dict(ckpt_surgery.lint([good, bad]))
    assert told[str(good)] == ()
    assert len(told[str(bad)]) >= 1
    missing = tmp_path / "missing.yaml"
    told = dict(ckpt_surgery.lint([bad, missing, "@lora-mrge", good]))
    assert list(told) == [str(bad), str(missing), "@lora-mrge", str(good)]
    assert len(told[str(bad)]) >= 1
    assert [p.message for p in told[str(missing)]] == [f"recipe not found: {missing}"]
    assert "did you mean `@lora-merge`?" in told["@lora-mrge"][0].message


@pytest.mark.parametrize(
    ("format", "says"),
    [
        ("safetensor", "the format `safetensor` is not known; did you mean `safetensors`?"),
        ("torch", "the format `torch` can be read but not written"),
        ("''", "the format `` is not known"),
    ],
)
def test_the_format_is_a_matter_of_the_recipe(
    format: str,
    says: str,
    recipe: Recipe,
    model: Path,
    tmp_path: Path,
) -> None:
    """Told with its place, whoever asks, and whatever the command line says instead."""
    path = recipe(f"version: 1\noutput: {{format: {format}}}\n")
    ((_, problems),) = ckpt_surgery.lint([path])
    (problem,) = problems
    assert problem.message == says
    assert problem.place is not None
    assert (problem.place.path, problem.place.line, problem.place.column) == ("output.format", 2, 18)
    assert problem.hint is not None
    assert "safetensors" in problem.hint
    for run in (
        lambda: ckpt_surgery.plan(path, model),
        lambda: ckpt_surgery.apply(path, model, dst=tmp_path / "out"),
        lambda: ckpt_surgery.apply(path, model, dst=tmp_path / "out", format="orbax"),
    ):
        with pytest.raises(RecipeError) as caught:
            run()
        assert caught.value.problems == problems
    assert not (tmp_path / "out").exists()


def test_the_format_is_told_with_all_other_problems(recipe: Recipe) -> None:
    ((_, problems),) = ckpt_surgery.lint(
        [recipe("version: 1\noutput: {format: safetensor}\nrules: [{mtach: a}]")]
    )
    assert [p.place and p.place.line for p in problems] == [2, 3]
    assert ckpt_surgery.lint([recipe("version: 1\noutput: {format: npz}\n")])[0][1] == ()


def test_hints_name_arguments(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for call, hint in (
        (lambda: ckpt_surgery.convert(model, tmp_path / "out"), "or replace it: `overwrite=True`."),
        (lambda: ckpt_surgery.inspect(model, step=10), "Leave out `step=10`."),
        (lambda: ckpt_surgery.inspect(model, step=10, item="x"), "Leave out `step=10` and `item=x`."),
        (lambda: ckpt_surgery.convert(model, tmp_path / "x.pt"), "`format=NAME`."),
        (
            lambda: ckpt_surgery.convert(model, tmp_path / "x.npz", dst_step=1, dst_item="y"),
            "Leave out `dst_step=1` and `dst_item=y`, or write orbax.",
        ),
    ):
        with pytest.raises(SurgeryError) as caught:
            call()
        assert str(caught.value).endswith(hint)


def test_a_signal_stops_a_run_and_leaves_nothing(tmp_path: Path, recipe: Recipe) -> None:
    """Through the program, as a CI job would: SIGTERM once the plan is made."""
    checkpoints.save_standard(tmp_path / "source", {"w": np.zeros((1000, 1000), np.float32)})
    code = """
        import os, signal, sys
        from ckpt_surgery.api import applying
        from ckpt_surgery.core.errors import Interrupted
        try:
            stop = lambda plan: os.kill(os.getpid(), signal.SIGTERM)
            applying.apply(*sys.argv[1:3], dst=sys.argv[3], on_plan=stop)
        except Interrupted as error:
            sys.exit(128 + error.signal_number)
    """
    arguments = [recipe("version: 1\n"), tmp_path / "source", tmp_path / "out"]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], check=False)
    assert done.returncode == 143
    assert names(tmp_path) == ["recipe.yaml", "source"]
