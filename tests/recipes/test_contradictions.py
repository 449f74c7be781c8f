"""Configs that contradict the weights: rows are neither cut nor padded for them, and no head is dropped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.core.errors import DataError, PlanError
from tests.recipes.leaves import Arrays
from tests.recipes.trained import back, save_model
from tests.support.comparing import assert_same

KINDS = (
    *("llama", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text"),
    *("gpt_oss", "deepseek_v3", "llama4_text"),
)
HEADLESS = ("gemma2", "gemma3_text")
"""Models whose embeddings are always tied."""


def edit_config(model: Path, **entries: Any) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | entries))


def exact(kind: str) -> dict[str, Any]:
    """Params with which a conversion rounds nothing."""
    return {"norm_plus_one": False} if kind.startswith("gemma") else {}


def embedding(arrays: Arrays) -> np.ndarray:
    return next(array for key, array in arrays.items() if key.endswith("embed_tokens.weight"))


@pytest.mark.slow("converts models of each family")
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_the_config_does_not_have(hf: Path, tmp_path: Path, kind: str) -> None:
    arrays, jax = save_model(hf, kind), tmp_path / "jax"
    rows = len(embedding(arrays))
    for said in (rows - 5, rows + 5):
        edit_config(hf, vocab_size=said)
        with pytest.raises(PlanError, match=f"--set vocab_size={rows} "):
            ckpt_surgery.convert(hf, jax, to="jax")
    edit_config(hf, vocab_size=rows - 5)
    ckpt_surgery.convert(hf, jax, to="jax", set={"vocab_size": rows, **exact(kind)})
    with pytest.raises(PlanError, match=f"--set vocab_size={rows} keeps"):
        back(jax)
    assert_same(back(jax, set={"vocab_size": rows}), arrays)
    edit_config(hf, vocab_size=rows)
    ckpt_surgery.convert(hf, jax, to="jax", overwrite=True, set=exact(kind))
    (jax / "config.json").write_text((hf / "config.json").read_text())
    edit_config(jax, vocab_size=rows - 5)
    with pytest.raises(PlanError, match=f"--set vocab_size_padded={rows} cuts"):
        back(jax)
    cut = back(jax, set={"vocab_size_padded": rows})
    assert np.array_equal(embedding(cut), embedding(arrays)[: rows - 5])


@pytest.mark.slow("converts models of each family")
@pytest.mark.parametrize("kind", KINDS)
def test_padding_that_a_conversion_added_goes_with_the_next(hf: Path, tmp_path: Path, kind: str) -> None:
    arrays, jax = save_model(hf, kind), tmp_path / "jax"
    rows = len(embedding(arrays))
    ckpt_surgery.convert(hf, jax, to="jax", set={"vocab_size_padded": rows + 7, **exact(kind)})
    assert_same(back(jax), arrays)
    edit_config(hf, vocab_size=rows - 5)
    said = {"vocab_size_padded": rows + 7, "vocab_size": rows, **exact(kind)}
    ckpt_surgery.convert(hf, jax, to="jax", set=said, overwrite=True)
    with pytest.raises(PlanError, match="vocab_size"):
        back(jax)
    assert_same(back(jax, set={"vocab_size": rows}), arrays)


@pytest.mark.slow("converts models of each family")
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_should_be_the_embedding(hf: Path, tmp_path: Path, kind: str) -> None:
    arrays = dict(save_model(hf, kind))
    arrays["lm_head.weight"] = embedding(arrays).copy()
    edit_config(hf, tie_word_embeddings=True)
    save_file(arrays, hf / "model.safetensors", {"format": "pt"})
    jax = tmp_path / "jax"
    padded = {"vocab_size_padded": len(embedding(arrays)) + 3, **exact(kind)}
    ckpt_surgery.convert(hf, jax, to="jax", set=padded)
    assert_same(back(jax), {key: array for key, array in arrays.items() if key != "lm_head.weight"})
    arrays["lm_head.weight"][-1, -1] += 1
    save_file(arrays, hf / "model.safetensors", {"format": "pt"})
    with pytest.raises(DataError, match="not the embedding"):
        ckpt_surgery.convert(hf, tmp_path / "other", to="jax")
    assert not (tmp_path / "other").exists()
    arrays["lm_head.weight"] = arrays["lm_head.weight"][:-1].copy()
    save_file(arrays, hf / "model.safetensors", {"format": "pt"})
    with pytest.raises(PlanError, match="not the embedding"):
        ckpt_surgery.convert(hf, tmp_path / "other", to="jax")


@pytest.mark.slow("converts models of each family")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in HEADLESS])
def test_logits_of_a_model_whose_config_ties_them(hf: Path, tmp_path: Path, kind: str) -> None:
    save_model(hf, kind)
    edit_config(hf, tie_word_embeddings=False)
    arrays = load_file(hf / "model.safetensors")
    arrays.setdefault("lm_head.weight", embedding(arrays) + 1)
    save_file(arrays, hf / "model.safetensors", {"format": "pt"})
    jax = tmp_path / "jax"
    ckpt_surgery.convert(hf, jax, to="jax")
    assert_same(back(jax), arrays)
    edit_config(hf, tie_word_embeddings=True)
    (jax / "config.json").write_text((hf / "config.json").read_text())
    with pytest.raises(PlanError, match="there is a logits kernel"):
        back(jax)


@pytest.mark.parametrize("config", [{"mlp_only_layers": [1]}, {"decoder_sparse_step": 2}, {}])
@pytest.mark.parametrize("to", ["jax", "maxtext", "tunix"])
def test_layers_without_experts_are_the_reason(
    hf: Path, tmp_path: Path, to: str, config: dict[str, Any]
) -> None:
    arrays = dict(save_model(hf, "qwen3_moe"))
    width = next(array for key, array in arrays.items() if key.endswith("experts.0.gate_proj.weight"))
    for key in [key for key in arrays if key.startswith("model.layers.1.mlp.")]:
        del arrays[key]
    for name, array in {"gate": width, "up": width, "down": width.T.copy()}.items():
        arrays[f"model.layers.1.mlp.{name}_proj.weight"] = array
    save_file(arrays, hf / "model.safetensors", {"format": "pt"})
    edit_config(hf, **config)
    with pytest.raises(PlanError, match="mlp_only_layers") as caught:
        ckpt_surgery.convert(hf, tmp_path / "jax", to=to)
    assert len(caught.value.problems) == 1


def test_defaults_are_told_once_and_only_where_they_are_used(hf: Path, tmp_path: Path) -> None:
    save_model(hf, "llama")
    arrays = tmp_path / "run" / "tree.npz"
    arrays.parent.mkdir()
    ckpt_surgery.convert(hf, arrays, to="maxtext")
    with np.load(arrays) as file:
        bare = {key: file[key] for key in file.files if key.startswith("params/")}
    np.savez(arrays, **bare)
    (arrays.parent / "config.json").write_text((hf / "config.json").read_text())
    recipe = {"layout": "maxtext"}
    plan = ckpt_surgery.plan("@jax-to-hf-llama3", arrays, set=recipe)
    [told] = [warning for warning in plan.warnings if "by default" in warning]
    assert "layer_axis" not in told
    assert "fold_query_scale" not in told
    assert "ckpt_surgery/" not in told
    assert told.count("@hf-llama3-to-jax") == 1
    everything = {**recipe, "scan": True, "rope": "half"}
    assert not any(
        "by default" in text
        for text in ckpt_surgery.plan("@jax-to-hf-llama3", arrays, set=everything).warnings
    )
