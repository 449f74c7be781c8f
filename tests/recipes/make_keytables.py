"""Makes tests/data/keytables/published/: the names, shapes and dtypes in the files of published models.

    .venv/bin/python -m tests.recipes.make_keytables NAME CONFIG.json    (a published model's config.json)
    .venv/bin/python -m tests.recipes.make_keytables NAME...             (made again from their own configs)

No weights are needed. A model of the published sizes is made on the meta device by the library that the files
are for (Hugging Face transformers 5.23), and its names and shapes are turned into those in files by the
conversion that the library itself saves with. What the library does not save is added by rule: scales of
float8 weights, blocks and scales of MXFP4, the layer for predicting several tokens of DeepSeek-V3, and
buffers and names of older versions of the library.
"""

import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from tests.recipes.keytables import FOLDER, keytable

Table = dict[str, tuple[str, list[int]]]
"""Dtype and shape of each name."""
CLASSES = {
    "bert": "BertForPreTraining",
    "clip": "CLIPModel",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2Model",  # the files are of the model without its head, which is tied
    "llama4": "Llama4ForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTModel",
    "whisper": "WhisperForConditionalGeneration",
}
"""Class of the model that the files of a type hold; other types are causal language models."""
OLD_NAMES = {
    "bert": {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
    "gemma3": {"vision_tower.": "vision_tower.vision_model."},
}
"""Ends or parts of names that the published files have in an older form."""


def main() -> None:
    """Make the table of a config, or those of these names again."""
    name, *rest = sys.argv[1:]
    anew = [one for one in rest if one.endswith(".json")]
    configs = {name: json.loads(Path(anew[0]).read_text())} if anew else {}
    for each in [name] if anew else [name, *rest]:
        config, table = made(configs.get(each) or keytable(each).config)
        text = json.dumps({"config": config, "tensors": table}, separators=(",", ":"), sort_keys=True)
        data = lzma.compress(text.encode(), preset=9)
        (FOLDER / f"{each}.json.xz").write_bytes(data)
        print(f"{each}: {len(table)} tensors, {len(data)} bytes")


def made(published: Mapping[str, Any]) -> tuple[dict[str, Any], Table]:
    """The config and the table of a published model, of what its config.json says."""
    kind, dtype = published["model_type"], published["torch_dtype"]
    quantized = published.get("quantization_config", {}).get("quant_method", "")
    apart = ("torch_dtype", "quantization_config", "transformers_version")
    said = {key: value for key, value in published.items() if key not in apart}
    config = transformers.CONFIG_MAPPING[kind].from_dict(said)
    with torch.device("meta"):
        model = _class_of(config, said)(config)
    tied = set(model.all_tied_weights_keys)
    kept = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    table: Table = {}
    for name, tensor in revert_weight_conversion(model, kept).items():
        for new, old in OLD_NAMES.get(kind, {}).items():
            name = name.replace(new, old)
        table[name] = (dtype, list(tensor.shape))
    table |= _buffers(config)
    document = json.loads(config.to_json_string()) | {"torch_dtype": dtype}
    if quantized:
        document["quantization_config"] = {"quant_method": quantized}
    if quantized == "mxfp4":
        table = dict(_with_mxfp4(table))
    if quantized == "fp8":
        document["quantization_config"]["weight_block_size"] = [128, 128]
        table = dict(_with_next_tokens(table, config.num_hidden_layers, config.first_k_dense_replace))
        table = dict(_with_scales(table))
    return document, table


def _class_of(config: Any, said: Mapping[str, Any]) -> Any:
    if config.model_type == "vit" and "id2label" in said:
        return transformers.ViTForImageClassification
    name = CLASSES.get(config.model_type)
    return getattr(transformers, name) if name else transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def _buffers(config: Any) -> Table:
    """What the published files hold besides: buffers of older versions of the library."""
    if config.model_type == "gpt2":
        return {f"h.{i}.attn.bias": ("float32", [1, 1, 1024, 1024]) for i in range(config.n_layer)}
    if config.model_type == "clip":
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        lengths = {"text": 77, "vision": patches + 1}
        return {f"{k}_model.embeddings.position_ids": ("int64", [1, n]) for k, n in lengths.items()}
    return {}


def _with_mxfp4(table: Table) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    """Experts in blocks of 32 elements, two to a byte, each with an exponent."""
    for name, (dtype, shape) in table.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = shape
            yield f"{name}_blocks", ("uint8", [experts, outputs, inputs // 32, 16])
            yield f"{name}_scales", ("uint8", [experts, outputs, inputs // 32])
        else:
            yield name, (dtype, shape)


def _with_next_tokens(table: Table, layers: int, dense: int) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    """One layer more, like the last one, with what joins it to the model."""
    yield from table.items()
    hidden = table["model.norm.weight"][1][0]
    last, more = f"model.layers.{layers - 1}.", f"model.layers.{layers}."
    assert layers - 1 >= dense, "the last layer has experts"
    for name, known in table.items():
        if name.startswith(last):
            yield name.replace(last, more), known
    for name in ("embed_tokens", "shared_head.head"):
        yield f"{more}{name}.weight", table["lm_head.weight"]
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{more}{name}.weight", ("bfloat16", [hidden])
    yield f"{more}eh_proj.weight", ("bfloat16", [hidden, 2 * hidden])


def _with_scales(table: Table) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    """float8 matrices of the layers, and a scale for each of their blocks of 128 x 128."""
    plain = ("mlp.gate.weight", "eh_proj.weight", "embed_tokens.weight", "head.weight")
    for name, (dtype, shape) in table.items():
        if len(shape) == 2 and ".layers." in name and not name.endswith(plain):
            yield name, ("float8_e4m3fn", shape)
            yield f"{name}_scale_inv", ("float32", [-(-n // 128) for n in shape])
        elif name.endswith("e_score_correction_bias"):
            yield name, ("float32", shape)
        else:
            yield name, (dtype, shape)


if __name__ == "__main__":
    main()
