"""A conversion records what it did, and the conversion back reads it; plans show where params come from."""

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.history import history_entry
from ckpt_surgery.core.version import VERSION
from ckpt_surgery.inputs.preparing import NO_HISTORY
from tests.support.checkpoints import save_pytree
from tests.support.command_line import run
from tests.support.documents import plan_json
from tests.support.recipes import write_recipe

ARRAYS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, ml_dtypes.bfloat16)}
MODEL = {"model_type": "tiny", "heads": 2, "nested": {"layers": 3}}
FORWARD = """version: 1
params:
  heads: {default: 1, config: heads}
  rope: half
rules:
  - match: w
    when: require(get(config['model_type'], 'tiny') == 'tiny', 'this is no tiny model')
    value: reshape(x, (3, heads, -1))
"""
BACK = """version: 1
params:
  heads: {default: 1, config: heads}
  rope: {default: half, config: ckpt_surgery/recipes/forward.yaml/params/rope}
rules: [{match: w, value: 'reshape(x, (3, -1))'}]
"""
RECIPES = {"forward": FORWARD, "back": BACK, "other": "version: 1\nparams: {n: 3}\n", "same": "version: 1\n"}
Recipe = Callable[[str], Path]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model in the layout of Hugging Face."""
    directory = tmp_path / "model"
    directory.mkdir()
    save_file(ARRAYS, directory / "model.safetensors", {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(MODEL))
    return directory


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return lambda name: write_recipe(tmp_path, RECIPES[name], f"{name}.yaml")


def metadata_of(path: Path) -> Any:
    return ckpt_surgery.inspect(path).metadata


def entry(name: str, **params: Any) -> dict[str, Any]:
    return {f"{name}.yaml": {"sha256": hashlib.sha256(RECIPES[name].encode()).hexdigest(), "params": params}}


def test_orbax_finds_it_among_its_custom_metadata(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    applying.apply(recipe("forward"), model, dst=tmp_path / "jax", set=["rope=interleaved"])
    record = {"recipes": entry("forward", heads=2, rope="interleaved"), "config": MODEL}
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.metadata(tmp_path / "jax").custom_metadata
    assert found == {"format": "pt", "ckpt_surgery": record}


def test_the_way_back_reads_it(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    """Every format with a place for it keeps sizes from the config and layouts from the recipe before."""
    for number, name in enumerate(["jax", "jax.safetensors", "jax.npz", "jax.zarr"]):
        applying.apply(recipe("forward"), model, dst=tmp_path / name, set=["rope=interleaved"])
        plan = applying.plan(recipe("back"), tmp_path / name)
        heads, rope = ((v.value, v.entry, v.note) for v in plan.params)
        assert heads == (2, "heads", "the recorded config"), number
        assert rope[::2] == ("interleaved", "the record of the conversion"), number
        assert rope[1] == "ckpt_surgery/recipes/forward.yaml/params/rope"
        assert plan.warnings == ()


def test_a_chain_of_conversions_does_not_nest(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    applying.apply(recipe("forward"), model, dst=tmp_path / "a", set=["rope=interleaved"])
    applying.apply(recipe("other"), tmp_path / "a", dst=tmp_path / "b")
    applying.apply(recipe("back"), tmp_path / "b", dst=tmp_path / "elsewhere" / "c.safetensors")
    record = history_entry(metadata_of(tmp_path / "elsewhere" / "c.safetensors"))
    before = entry("forward", heads=2, rope="interleaved") | entry("other", n=3)
    assert record == {"recipes": before | entry("back", heads=2, rope="interleaved"), "config": MODEL}
    applying.apply(recipe("forward"), tmp_path / "elsewhere" / "c.safetensors", dst=tmp_path / "d")
    after = metadata_of(tmp_path / "d")["ckpt_surgery"]
    assert list(after["recipes"]) == ["other.yaml", "back.yaml", "forward.yaml"]
    assert after["recipes"]["forward.yaml"]["params"] == {"heads": 2, "rope": "half"}
    assert after["config"] == MODEL


def test_a_config_that_lies_beside_the_source_is_the_newer_one(
    model: Path, recipe: Recipe, tmp_path: Path
) -> None:
    applying.apply(recipe("forward"), model, dst=tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text('{"heads": 4}')
    plan = applying.plan(recipe("back"), tmp_path / "out", format="orbax")
    assert plan.params[0].value == 4
    assert plan.params[1].note == "the record of the conversion"
    assert plan.metadata["ckpt_surgery"]["config"] == {"heads": 4}


def test_the_users_own_metadata_is_a_config_too(recipe: Recipe, tmp_path: Path) -> None:
    save_pytree(tmp_path / "ckpt", ARRAYS, metadata={"heads": 2, "model_type": "tiny"})
    plan = applying.plan(recipe("forward"), tmp_path / "ckpt")
    assert (plan.params[0].value, plan.params[0].note) == (2, "the custom metadata")
    assert plan.metadata == {
        "heads": 2,
        "model_type": "tiny",
        "ckpt_surgery": {"recipes": entry("forward", heads=2, rope="half")},
    }


def test_without_a_recipe_the_config_goes_along(model: Path, tmp_path: Path) -> None:
    applying.convert(model, tmp_path / "out")
    assert metadata_of(tmp_path / "out") == {"format": "pt", "ckpt_surgery": {"config": MODEL}}
    (model / "config.json").unlink()
    applying.convert(model, tmp_path / "plain")
    assert metadata_of(tmp_path / "plain") == {"format": "pt"}


def test_what_is_too_large_for_npz_is_left_out(model: Path, recipe: Recipe, tmp_path: Path) -> None:
    (model / "config.json").write_text(json.dumps({"labels": "x" * 100_000}))
    result = applying.apply(recipe("same"), model, dst=tmp_path / "out.npz")
    assert result.plan.warnings == ("npz has no room for recipe, params and config: they are not recorded",)
    assert metadata_of(tmp_path / "out.npz") == {"format": "pt"}


def test_a_damaged_config_matters_only_where_it_is_asked_for(
    model: Path, recipe: Recipe, tmp_path: Path
) -> None:
    (model / "config.json").write_text('{"heads": ')
    result = applying.apply(recipe("same"), model, dst=tmp_path / "out")
    (warning,) = result.plan.warnings
    assert warning.startswith(f"the config is not recorded: {model}/config.json: not valid JSON")
    assert metadata_of(tmp_path / "out")["ckpt_surgery"] == {"recipes": entry("same")}
    with pytest.raises(SourceError, match=r"config\.json: not valid JSON"):
        applying.plan(recipe("forward"), model)


@pytest.mark.parametrize("damaged", ["text", "[1]", '{"recipes": 3, "config": [1]}', "[" * 100_000])
def test_a_record_that_is_none(damaged: str, recipe: Recipe, tmp_path: Path) -> None:
    save_file(ARRAYS, tmp_path / "x.safetensors", {"ckpt_surgery": damaged})
    plan = applying.plan(recipe("same"), tmp_path / "x.safetensors")
    assert plan.metadata == {"ckpt_surgery": {"recipes": entry("same")}}
    assert plan.warnings == (NO_HISTORY,)


def test_set_wins_and_the_plan_says_where_values_come_from(model: Path, recipe: Recipe) -> None:
    plan = applying.plan(recipe("forward"), model)
    heads = {"value": 2, "origin": "config", "entry": "heads", "note": "config.json"}
    assert plan_json(plan)["params"]["heads"] == heads
    plan = applying.plan(recipe("forward"), model, set=["heads=4"])
    (w,) = [step for step in plan.steps if step.leaf.key.text == "w"]
    assert w.leaf.spec is not None
    assert w.leaf.spec.shape == (3, 4, 1)


def test_without_a_config_the_plan_warns(model: Path, recipe: Recipe) -> None:
    (model / "config.json").unlink()
    save_file(ARRAYS, model / "model.safetensors")
    plan = applying.plan(recipe("forward"), model)
    assert plan.warnings == (f"by default heads=1 (there is no config.json beside {model})",)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({"a": np.ones(6, np.float32)}, "old.safetensors")
    Path("rename.yaml").write_text("version: 1\nparams: {to: b}\nrules: [{match: a, to: '${to}'}]\n")
    Path("half.yaml").write_text("version: 1\nrules: [{match: '.*', value: x / 2}]\n")
    return tmp_path


@pytest.mark.parametrize("name", ["new", "new.safetensors", "new.npz", "new.zarr"])
def test_a_checkpoint_knows_how_it_was_made(here: Path, name: str) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst=name, set={"to": "c"})
    history = ckpt_surgery.inspect(name).history
    assert history is not None
    assert [(one.name, dict(one.params)) for one in history.recipes] == [("rename.yaml", {"to": "c"})]
    assert [(one.path, one.format) for one in history.sources] == [("old.safetensors", "safetensors")]
    assert history.version == VERSION
    assert history.written is not None
    assert abs((history.written - datetime.now(UTC)).total_seconds()) < 600


def test_several_conversions_are_told_in_their_order(here: Path) -> None:
    save_file({"a": np.ones(6, np.float32)}, "old.safetensors", metadata={"epoch": "3"})
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    ckpt_surgery.apply("half.yaml", "one", dst="two")
    history = ckpt_surgery.inspect("two").history
    assert history is not None
    assert [one.name for one in history.recipes] == ["rename.yaml", "half.yaml"]
    assert [one.path for one in history.sources] == ["one"]
    text = run("inspect", "two").stdout
    assert "made from one (orbax) by half.yaml" in text
    assert "before that by rename.yaml with to=b" in text
    assert 'metadata {"epoch": "3"}' in text
    assert "sha256" not in text
    os.utime("one/ckpt_surgery.json", (1_000_000_000, 1_000_000_000))
    document = json.loads(run("inspect", "one", "--json").stdout)
    assert document["history"]["written"] == "2001-09-09T01:46:40+00:00"
    assert document["history"]["sources"][0]["path"] == "old.safetensors"
    assert "2001-09-09 01:46 UTC" in run("inspect", "one").stdout
    assert document["metadata"]["ckpt_surgery"]["recipes"]


def test_what_others_wrote_has_no_history(here: Path) -> None:
    assert ckpt_surgery.inspect("old.safetensors").history is None
    assert ckpt_surgery.inspect({"a": np.ones(3)}).history is None
    assert "history" not in run("inspect", "old.safetensors").stdout
    assert "history" not in json.loads(run("inspect", "old.safetensors", "--json").stdout)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"recipe": 3, "sources": {"a": 1}, "version": []}',
        '{"sources": [1, {"path": 3, "step": "x"}], "recipe": {"path": null}, "params": []}',
    ],
)
def test_a_record_that_is_malformed_does_not_get_in_the_way(here: Path, text: str) -> None:
    ckpt_surgery.apply("rename.yaml", "old.safetensors", dst="one")
    Path("one/ckpt_surgery.json").write_text(text)
    assert run("inspect", "one").exit_code == 0
    assert run("inspect", "one", "--json").exit_code == 0


def test_names_cannot_move_the_cursor(here: Path) -> None:
    save_file({"a": np.ones(6, np.float32)}, "o\x1b[31m.safetensors")
    ckpt_surgery.apply("rename.yaml", "o\x1b[31m.safetensors", dst="one")
    text = run("inspect", "one").stdout
    assert "\x1b" not in text
    assert r"o\x1b[31m.safetensors" in text
