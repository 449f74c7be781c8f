"""Makes tests/data/keytables/published/: the names, shapes and dtypes in the files of published models.

    .venv/bin/python -m tests.recipes.make_keytables [NAME...]

No weights are needed. A model of the published sizes is made on the meta device by the library that the files
are for (Hugging Face transformers 5.23), and its names and shapes are turned into those in files by the
conversion that the library itself saves with. What the library does not save is added by rule: scales of
float8 weights, blocks and scales of MXFP4, and the layer for predicting several tokens of DeepSeek-V3.
The sizes are those of the published config.json files.
"""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from tests.recipes.published_sizes import PUBLISHED, Published

FOLDER = Path(__file__).parents[1] / "data" / "keytables" / "published"

Table = dict[str, tuple[str, list[int]]]
"""Dtype and shape of each name."""


def main() -> None:
    """Make the tables of these names, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PUBLISHED:
        config, table = made(PUBLISHED[name])
        text = json.dumps({"config": config, "tensors": table}, separators=(",", ":"), sort_keys=True)
        data = lzma.compress(text.encode(), preset=9)
        (FOLDER / f"{name}.json.xz").write_bytes(data)
        print(f"{name}: {len(table)} tensors, {len(data)} bytes")


def made(one: Published) -> tuple[dict[str, Any], Table]:
    """The config and the table of a published model."""
    config = getattr(transformers, f"{one.config}Config")(**one.sizes)
    with torch.device("meta"):
        model = getattr(transformers, one.model)(config)
    tied = set(model.all_tied_weights_keys)
    kept = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    tensors = revert_weight_conversion(model, kept)
    table = {one.renamed(name): (one.dtype, list(tensor.shape)) for name, tensor in tensors.items()}
    table |= {name: (dtype, list(shape)) for name, (dtype, shape) in one.more.items()}
    document = json.loads(config.to_json_string()) | {"torch_dtype": one.dtype}
    if one.quantized:
        document["quantization_config"] = {"quant_method": one.quantized}
    if one.quantized == "mxfp4":
        table = dict(_with_mxfp4(table))
    if one.quantized == "fp8":
        document["quantization_config"]["weight_block_size"] = [128, 128]
        table = dict(_with_next_tokens(table, config.num_hidden_layers, config.first_k_dense_replace))
        table = dict(_with_scales(table))
    return document, table


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
