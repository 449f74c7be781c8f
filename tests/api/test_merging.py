"""Merges by a configuration: where models lie, what comes along, what is linked, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Interrupted, PlanError, RecipeError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.planner.plan import Transfer
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.libraries import load_npz
from tests.support.merging import Arrays, arrays, bfloat16, float32, loaded, save_config, save_model

Config = dict[str, Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of models."""
    for name in ("base", "math", "code"):
        save_model(tmp_path / name, arrays("models", name), dtype="float32")
    return tmp_path


def linear(*names: str, **fields: Any) -> Config:
    return {
        "merge_method": "linear",
        "models": [{"model": name, "parameters": {"weight": 1}} for name in names],
        **fields,
    }


def passthrough(*slices: tuple[str, int, int], **fields: Any) -> Config:
    listed = [{"sources": [{"model": m, "layer_range": [first, stop]}]} for m, first, stop in slices]
    return {"merge_method": "passthrough", "slices": listed, **fields}


def problems(config: Path, error: type[Exception] = PlanError) -> list[str]:
    """Line, column and message of each problem of a merge."""
    with pytest.raises(error) as caught:
        ckpt_surgery.plan_merge(config)
    assert isinstance(caught.value, ckpt_surgery.SurgeryError)
    assert caught.value.exit_code == 2
    return [f"{p.place.line}:{p.place.column} {p.message}" for p in caught.value.problems if p.place]


# --- what comes along -------------------------------------------------------------------------------------


def test_config_and_tokenizer_are_the_bases(directory: Path) -> None:
    config = save_config(
        directory / "merge.yaml", linear("math", "code", "base", base_model="base", out_dtype="bfloat16")
    )
    done = ckpt_surgery.merge(config, directory / "out")
    described = json.loads((directory / "out/config.json").read_text())
    assert described == {"model_type": "llama", "num_hidden_layers": 3, "dtype": "bfloat16"}
    assert json.loads((directory / "out/tokenizer.json").read_text()) == {"of": "base"}
    assert [one.name for one in done.companions] == ["config.json", "tokenizer.json"]
    assert ckpt_surgery.verify(directory / "out").flaws == ()
    assert {str(x.dtype) for x in loaded(directory / "out").values()} == {"bfloat16"}


def test_layers_are_counted_anew(directory: Path) -> None:
    config = save_config(
        directory / "merge.yaml", passthrough(("math", 0, 2), ("code", 0, 3), ("math", 1, 3))
    )
    ckpt_surgery.merge(config, directory / "out")
    assert json.loads((directory / "out/config.json").read_text())["num_hidden_layers"] == 7
    found, math, code = loaded(directory / "out"), arrays("models", "math"), arrays("models", "code")
    name = "model.layers.{}.mlp.up_proj.weight"
    layers = [math, math, code, code, code, math, math]
    for i, (model, layer) in enumerate(zip(layers, (0, 1, 0, 1, 2, 1, 2), strict=True)):
        np.testing.assert_array_equal(found[name.format(i)], model[name.format(layer)])
    np.testing.assert_array_equal(found["lm_head.weight"], math["lm_head.weight"])


# --- how it is carried out --------------------------------------------------------------------------------


def test_layers_that_stay_are_not_computed(directory: Path) -> None:
    config = save_config(directory / "merge.yaml", passthrough(("math", 0, 2), ("code", 1, 3)))
    plan = ckpt_surgery.plan_merge(config, directory / "out")
    assert plan.costs.bytes_computed == 0
    linked = ckpt_surgery.plan_merge(config, directory / "out", format="orbax", link_mode="hardlink")
    assert {step.transfer for step in linked.steps} == {Transfer.LINK}


def test_a_model_that_counts_for_nothing_is_not_read(directory: Path) -> None:
    config = save_config(directory / "merge.yaml", weighted([0, 1]))
    steps = {step.leaf.key.text: step for step in ckpt_surgery.plan_merge(config).steps}
    assert steps["model.layers.0.mlp.up_proj.weight"].transfer is not Transfer.COMPUTE
    assert steps["model.layers.1.mlp.up_proj.weight"].transfer is Transfer.COMPUTE


def test_values_are_rounded_once(directory: Path) -> None:
    models = {name: bfloat16(arrays("models", name)) for name in ("math", "code")}
    for name, tensors in models.items():
        save_model(directory / f"{name}-16", tensors)
    entries = [{"model": f"{name}-16", "parameters": {"weight": w}} for name, w in (("math", 1), ("code", 2))]
    config = save_config(directory / "merge.yaml", {"merge_method": "linear", "models": entries})
    ckpt_surgery.merge(config, directory / "out")
    a, b = (float32(models[name]) for name in ("math", "code"))
    wanted = bfloat16({key: (a[key] + np.float32(2) * b[key]) / np.float32(3) for key in a})
    for key, value in loaded(directory / "out").items():
        np.testing.assert_array_equal(value, wanted[key], err_msg=key)


def test_the_recipe_of_a_merge_does_the_same(directory: Path) -> None:
    config = save_config(directory / "merge.yaml", linear("math", "code", parameters={"density": 0.5}))
    plan = ckpt_surgery.merge(config, directory / "one", copy_config=False).plan
    assert plan.warnings[0] == "the parameter `density` has no meaning for the method `linear`"
    assert not (directory / "one/config.json").exists()
    recipe = ckpt_surgery.merge_recipe(config).to_yaml()
    ckpt_surgery.apply(recipe, directory / "math", directory / "code", dst=directory / "two.npz")
    assert_same(load_npz(directory / "two.npz"), loaded(directory / "one"))


def test_integers_are_those_of_the_first_model(directory: Path) -> None:
    for name, number in (("one", 1), ("two", 2)):
        tensors: Arrays = {"ids": np.arange(3) + number, "w": np.full(2, number, np.float32)}
        save_model(directory / name, tensors)
    config = save_config(directory / "merge.yaml", linear("one", "two"))
    ckpt_surgery.merge(config, directory / "out")
    found = loaded(directory / "out")
    assert (found["ids"].tolist(), found["w"].tolist()) == ([1, 2, 3], [1.5, 1.5])


# --- random masks -----------------------------------------------------------------------------------------


def dare(density: float, *models: str) -> Config:
    entries = [{"model": m, "parameters": {"weight": 1, "density": density}} for m in models]
    return {"merge_method": "dare_linear", "base_model": "base", "models": entries}


def test_masks_depend_on_the_seed_and_not_on_which_tensors_share_a_formula(directory: Path) -> None:
    config = dare(0.5, "math")
    saved = save_config(directory / "one.yaml", config)
    for name, seed in (("one", 0), ("other", 1)):
        ckpt_surgery.merge(saved, directory / name, seed=seed, verify="none")
    one, other = (loaded(directory / name) for name in ("one", "other"))
    assert not np.array_equal(one["lm_head.weight"], other["lm_head.weight"])
    config["models"][0]["parameters"]["weight"] = [{"filter": "q_proj", "value": 2}, {"value": 1}]
    ckpt_surgery.merge(save_config(directory / "two.yaml", config), directory / "two", verify="none")
    two = loaded(directory / "two")
    changed = [key for key in one if not np.array_equal(one[key], two[key])]
    assert changed == [key for key in one if "q_proj" in key]


def test_a_merge_that_was_interrupted_goes_on(directory: Path) -> None:
    config, out = save_config(directory / "one.yaml", dare(0.5, "math", "code")), directory / "out"

    def stop(progress: Progress) -> None:
        if progress.done_bytes == progress.total_bytes:
            raise Interrupted(15, "stopped")

    with pytest.raises(Interrupted):
        ckpt_surgery.merge(config, out, workers=1, progress=stop)
    assert not out.exists()
    ckpt_surgery.merge(config, directory / "whole", workers=3)
    ckpt_surgery.merge(config, out, resume=True)
    assert_same(loaded(out), loaded(directory / "whole"))
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in out.iterdir()}


# --- what is refused --------------------------------------------------------------------------------------


def test_models_are_looked_up_here_and_beside_the_configuration(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "configs").mkdir()
    config = save_config(directory / "configs/merge.yaml", linear("math", "code"))
    messages = problems(config, RecipeError)
    told = ["not a model: `math`", "not a model: `code`"]
    assert [message.partition(" ")[2] for message in messages] == told
    monkeypatch.chdir(directory)
    assert [source.path for source in ckpt_surgery.plan_merge(config).inputs] == ["math", "code"]


def weighted(weight: Any) -> Config:
    config = linear("math", "code")
    config["models"][1]["parameters"]["weight"] = weight
    return config


def della(density: float, epsilon: float) -> Config:
    entry = {"model": "math", "parameters": {"weight": 1, "density": density, "epsilon": epsilon}}
    return {"merge_method": "della_linear", "base_model": "base", "models": [entry]}


LACKING = [{"filter": "mlp", "value": 1}, {"filter": "attn", "value": 2}]
REFUSED: list[tuple[Config, type[Exception], str]] = [
    (linear("math+adapter", "code"), RecipeError, "`math+adapter` is a model with an adapter"),
    (passthrough(("code", 1, 4)), PlanError, "layer 3 does not exist: `code` has layers 0 to 2"),
    (linear("math", "small"), PlanError, "has the shape [20, 16] in `small`, and [24, 16] in `math`"),
    (linear("math", "less"), PlanError, "`less` lacks `model.norm.weight`, which another model of the"),
    (weighted(LACKING), PlanError, "the parameter `weight` is missing for `lm_head.weight`"),
    (weighted(-1), PlanError, "the weights add up to 0"),
    *(
        (della(*given), PlanError, f"`density` {given[0]} with `epsilon` {given[1]}: the probabilities go")
        for given in ((0.5, 0.5), (0.9, 0.15), (0.1, 0.15))
    ),
]


@pytest.mark.parametrize(("config", "error", "says"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_merged_is_refused(
    config: Config, error: type[Exception], says: str, directory: Path
) -> None:
    tensors = arrays("models", "math")
    save_model(directory / "small", tensors | {"lm_head.weight": tensors["lm_head.weight"][:20]})
    del tensors["model.norm.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)  # counts for nothing
    save_model(directory / "less", tensors)
    (message,) = problems(save_config(directory / "merge.yaml", config), error)
    assert says in message


def test_the_configuration_and_the_models_are_not_overwritten(directory: Path) -> None:
    config = save_config(directory / "base/merge.yaml", linear("../math", "../code"))
    with pytest.raises(ckpt_surgery.SurgeryError):
        ckpt_surgery.merge(config, directory / "base", overwrite=True)
    assert config.exists()
    before = (directory / "math/config.json").read_bytes()
    assert run("merge", config, directory / "out", "--json", directory / "math/config.json").exit_code == 2
    assert (directory / "math/config.json").read_bytes() == before
