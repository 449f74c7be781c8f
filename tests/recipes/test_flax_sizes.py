"""`@hf-to-flax` plans models at their full size, from the shapes that PyTorch's classes have."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.numpy import load_file

from tests.recipes.running import planned
from tests.support.checkpoints import quiet


def gpt2_xl() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25))


def bert_large() -> Any:
    sizes = {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    }
    return transformers.BertForPreTraining(transformers.BertConfig(**sizes))


def clip_large() -> Any:
    text = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
    config = transformers.CLIPConfig(
        text_config=text,
        vision_config=vision | {"num_attention_heads": 16, "patch_size": 14},
        projection_dim=768,
    )
    return transformers.CLIPModel(config)


def whisper_large_v3() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=51866,
        num_mel_bins=128,
        d_model=1280,
        encoder_layers=32,
        decoder_layers=32,
        encoder_attention_heads=20,
        decoder_attention_heads=20,
        encoder_ffn_dim=5120,
        decoder_ffn_dim=5120,
    )
    return transformers.WhisperForConditionalGeneration(config)


def t5_11b() -> Any:
    config = transformers.T5Config(
        d_model=1024, d_kv=128, d_ff=65536, num_layers=24, num_heads=128, num_decoder_layers=24
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS = [
    (gpt2_xl, 1_557_611_200, "transformer/h/47/mlp/c_fc/kernel", "float32[6400,1600]"),
    (bert_large, 336_226_108, "bert/encoder/layer/23/output/dense/kernel", "float32[4096,1024]"),
    (clip_large, 427_616_513, "vision_model/embeddings/patch_embedding/kernel", "float32[14,14,3,1024]"),
    (whisper_large_v3, 1_543_490_560, "model/encoder/conv1/kernel", "float32[3,128,1280]"),
    (t5_11b, 11_307_321_344, "encoder/block/0/layer/1/DenseReluDense/wi/kernel", "float32[1024,65536]"),
]


def check(leaves: Mapping[str, str], config: Any, elements: int, key: str, told: str) -> None:
    plan = planned("hf-to-flax", leaves, config=config.to_dict())
    found = {step.leaf.key.text: step.leaf for step in plan.steps}
    assert str(found[key].spec) == told
    assert sum(leaf.spec.size for leaf in found.values()) == elements


@pytest.mark.slow
@pytest.mark.parametrize(("build", "elements", "key", "told"), MODELS)
def test_plans(build: Callable[[], Any], elements: int, key: str, told: str) -> None:
    """The counts are those that the models are known to have; tied weights count once."""
    with torch.device("meta"):
        model = build()
    leaves = {
        name: f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(map(str, tensor.shape))}]"
        for name, tensor in model.state_dict().items()
    }
    check(leaves, model.config, elements, key, told)


@pytest.mark.slow
def test_plans_vit_huge(tmp_path: Path) -> None:
    """The names in files are not those in memory: a narrow model has them, with the sizes of a wide one."""
    sizes = {"num_hidden_layers": 32, "patch_size": 14}
    narrow = transformers.ViTConfig(hidden_size=11, num_attention_heads=1, intermediate_size=13, **sizes)
    with quiet():
        transformers.ViTModel(narrow).save_pretrained(tmp_path)
    wide = {11: 1280, 13: 5120}
    leaves = {
        name: f"float32[{','.join(str(wide.get(size, size)) for size in array.shape)}]"
        for name, array in load_file(tmp_path / "model.safetensors").items()
    }
    key = "embeddings/patch_embeddings/projection/kernel"
    check(leaves, narrow, 632_404_480, key, "float32[14,14,3,1280]")
