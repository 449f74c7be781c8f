"""The config.json of a result: from the record or a given file, and true to the weights."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from tokenizers import Tokenizer, models

import ckpt_surgery
from ckpt_surgery.core.errors import UsageError
from tests.support.checkpoints import quiet
from tests.support.command_line import run
from tests.support.slow import slow
from tests.support.trees import nested

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as transformers writes it. Read-only."""
    path = tmp_path_factory.mktemp("pretrained") / "hf"
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(path)
    return path


@pytest.fixture
def hf(pretrained: Path, tmp_path: Path) -> Path:
    """A copy of that model."""
    return shutil.copytree(pretrained, tmp_path / "hf")


def loaded(directory: Path) -> Mapping[str, torch.Tensor]:
    """The weights as transformers loads them: with none that it made itself."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found: Mapping[str, torch.Tensor] = model.state_dict()
    return found


def config(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "config.json").read_text())
    return found


@pytest.mark.parametrize("to", ["jax", "maxtext", "tunix"])
def test_there_and_back_gives_what_transformers_loads(hf: Path, tmp_path: Path, to: str) -> None:
    before, said = loaded(hf), config(hf)
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<unk>": 2}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(hf)
    ckpt_surgery.convert(hf, tmp_path / "first", to=to)
    shutil.rmtree(hf)
    with quiet():
        assert ocp.PyTreeCheckpointer().restore(tmp_path / "first")
    ckpt_surgery.convert(tmp_path / "first", tmp_path / "jax")  # through a copy
    ckpt_surgery.convert(tmp_path / "first", tmp_path / "jax", overwrite=True)
    assert ckpt_surgery.verify(tmp_path / "jax").notices == ()
    done = ckpt_surgery.convert(tmp_path / "jax", tmp_path / "out", to="hf", shard_size="2KB")
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    assert {one.name for one in done.companions} >= {"config.json", "tokenizer.json"}
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")("b").input_ids == [1]
    after = loaded(tmp_path / "out")
    assert config(tmp_path / "out") == said
    for key, value in before.items():
        torch.testing.assert_close(after[key], value, rtol=1e-6, atol=1e-7)
    ckpt_surgery.convert(tmp_path / "jax", tmp_path / "bare", to="hf", copy_config=False)
    assert not (tmp_path / "bare" / "config.json").exists()


def test_a_saved_plan_and_the_command_line_write_it_too(hf: Path, tmp_path: Path) -> None:
    assert run("convert", hf, tmp_path / "jax", "--to", "jax").exit_code == 0
    plan = ["plan", "@jax-to-hf-llama3", tmp_path / "jax", tmp_path / "out", "--out", tmp_path / "p.json"]
    assert run(*plan).exit_code == 0
    assert run("apply", tmp_path / "p.json", tmp_path / "out").exit_code == 0
    assert config(tmp_path / "out") == config(hf)


@pytest.mark.parametrize(
    ("rules", "entries"),
    [
        ([{"match": r".*(embed_tokens|lm_head)\.weight", "value": "x[:7]"}], {"vocab_size": 7}),
        ([{"match": r"model\.layers\.2\..*", "drop": True}], {"num_hidden_layers": 2}),
        ([{"match": ".*", "value": "cast(x, 'bfloat16')"}], {"dtype": "bfloat16"}),
        (
            [
                {"match": r".*\.(gate|up)_proj\.weight", "value": "x[:10]"},
                {"match": r".*\.down_proj\.weight", "value": "x[:, :10]"},
            ],
            {"intermediate_size": 10},
        ),
    ],
)
def test_numbers_that_the_weights_prove_are_corrected_and_told(
    hf: Path, tmp_path: Path, rules: list[dict[str, Any]], entries: dict[str, Any]
) -> None:
    recipe = {"version": 1, "rules": rules}
    plan = ckpt_surgery.plan(recipe, hf, format="safetensors")
    told = [warning for warning in plan.warnings if "config.json" in warning]
    assert [name for name in entries if f"`{name}`" not in "".join(told)] == []
    assert len(told) == len(entries)
    ckpt_surgery.apply(recipe, hf, dst=tmp_path / "out", format="safetensors")
    assert config(tmp_path / "out") == config(hf) | entries
    loaded(tmp_path / "out")


def test_weights_that_are_not_quantized_any_more(hf: Path, tmp_path: Path) -> None:
    done = ckpt_surgery.convert(hf, tmp_path / "same", format="safetensors")
    assert (tmp_path / "same" / "config.json").read_bytes() == (hf / "config.json").read_bytes()
    assert not any("config.json" in warning for warning in done.plan.warnings)
    said = config(hf)
    (hf / "config.json").write_text(json.dumps(said | {"quantization_config": {"quant_method": "mxfp4"}}))
    done = ckpt_surgery.convert(hf, tmp_path / "out", format="safetensors")
    assert any("`quantization_config`" in warning for warning in done.plan.warnings)
    assert config(tmp_path / "out") == said


def test_layers_of_a_decoder_that_has_an_entry_of_its_own(tmp_path: Path) -> None:
    """As BART's, whose `num_hidden_layers` is another name of `encoder_layers`."""
    sizes = {"vocab_size": 11, "d_model": 8, "encoder_layers": 2, "decoder_layers": 3}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "is_encoder_decoder": False}
    model = transformers.BartForCausalLM(transformers.BartConfig(**sizes, **heads))
    model.save_pretrained(tmp_path / "hf")
    older = {**config(tmp_path / "hf"), "num_hidden_layers": 2}  # as transformers before version 5 writes it
    (tmp_path / "hf" / "config.json").write_text(json.dumps(older))
    assert ckpt_surgery.plan(None, tmp_path / "hf", format="safetensors").warnings == ()
    shorter = {"version": 1, "rules": [{"match": r".*layers\.2\..*", "drop": True}]}
    ckpt_surgery.apply(shorter, tmp_path / "hf", dst=tmp_path / "out", format="safetensors")
    found = config(tmp_path / "out")
    assert (found["num_hidden_layers"], found["decoder_layers"]) == (2, 2)


def test_what_the_weights_only_contradict_is_told(hf: Path, tmp_path: Path) -> None:
    gap = {"version": 1, "rules": [{"match": r"model\.layers\.1\..*", "drop": True}]}
    [told] = ckpt_surgery.plan(gap, hf, format="safetensors").warnings
    assert "`num_hidden_layers`" in told
    said = config(hf) | {"tie_word_embeddings": True}
    (hf / "config.json").write_text(json.dumps(said))
    done = ckpt_surgery.convert(hf, tmp_path / "out", format="safetensors")
    assert any("`tie_word_embeddings`" in warning for warning in done.plan.warnings)
    assert "lm_head.weight" in load_file(tmp_path / "out" / "model.safetensors")


@pytest.mark.parametrize(
    ("place", "given"),
    [
        *(("beside", "item"), ("item", "item")),
        # Each takes two conversions, and the same walk upwards finds them.
        *map(slow, (("run", "run"), ("step", "item"), ("beside", "run"), ("run", "step"))),
    ],
)
def test_a_config_beside_a_run_or_in_it(hf: Path, tmp_path: Path, place: str, given: str) -> None:
    ckpt_surgery.convert(hf, tmp_path / "tree.npz", to="jax")
    with np.load(tmp_path / "tree.npz") as file:
        tree = nested({key: file[key] for key in file.files if key.startswith("params/")})
    root = tmp_path / "runs" / "run"
    with quiet(), ocp.CheckpointManager(root) as manager:
        manager.save(10, args=ocp.args.Composite(items=ocp.args.StandardSave(tree)))
    places = {"beside": root.parent, "run": root, "step": root / "10", "item": root / "10" / "items"}
    shutil.copy(hf / "config.json", places[place])
    ckpt_surgery.convert(places[given], tmp_path / "out", to="hf", set={"scan": True})
    assert config(tmp_path / "out") == config(hf)
    loaded(tmp_path / "out")


def test_a_config_that_is_given(hf: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "llama.json"
    elsewhere.parent.mkdir()
    shutil.move(hf / "config.json", elsewhere)
    said = json.loads(elsewhere.read_text())
    with pytest.raises(UsageError, match=r"config="):
        ckpt_surgery.convert(hf, tmp_path / "jax", to="jax")
    done = run("convert", hf, tmp_path / "jax", "--to", "jax", "--config", elsewhere)
    assert done.exit_code == 0, done.stderr
    ckpt_surgery.convert(tmp_path / "jax", tmp_path / "out", to="hf")
    assert config(tmp_path / "out") == said
    (hf / "config.json").write_text("{}")  # what is given wins
    plan = ckpt_surgery.plan("@hf-llama3-to-jax", hf, config=elsewhere)
    assert next(one.note for one in plan.params if one.name == "num_layers") == "llama.json"
    ckpt_surgery.convert(hf, tmp_path / "copy", format="safetensors", config=elsewhere)
    assert config(tmp_path / "copy") == said
