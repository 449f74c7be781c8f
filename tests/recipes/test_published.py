"""Every size of every published model, in every layout: planned there and back on the names of its files.

The files are sparse: names, dtypes and shapes are those that were published, and all numbers are zeros.
"""

import json
import os
import re
from pathlib import Path

import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.inputs.conversions import choose_conversion
from ckpt_surgery.inputs.models import Model, ModelLayout, known_models
from ckpt_surgery.planner.plan import Plan
from tests.recipes.keytables import NAMES, KeyTable, keytable
from tests.support.linked_sources import safetensors_header
from tests.support.plans import plan_of

CODES = {
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "int64": ("I64", 8),
    "uint8": ("U8", 1),
}
LARGE = 1 << 42
"""A budget for the way back, whose leaves have no chunks."""
OFTEN = ("Qwen3 0.6B jax", "Llama 3.1 405B maxtext", "BERT base cased flax", "T5 11B t5x")
"""What is planned with every run of the tests; the others with the slow ones."""


def plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


TABLES = {plain(name): name for name in NAMES}
EACH = [
    pytest.param(
        model,
        size,
        layout,
        id=f"{size} {layout.name}",
        marks=() if f"{size} {layout.name}" in OFTEN else pytest.mark.slow("one more case"),
    )
    for model in known_models()
    for layout in model.layouts
    for size in layout.sizes or model.sizes
]


def save(table: KeyTable, path: Path) -> None:
    """A model's directory, whose file is a header and a hole."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(table.config))
    tensors = {}
    for name, (dtype, shape) in table.tensors.items():
        code, nbytes = CODES[dtype]
        for n in shape:
            nbytes *= n
        tensors[name] = (code, shape, nbytes)
    header = safetensors_header(tensors)
    with open(path / "model.safetensors", "wb") as file:
        file.write(header)
        os.truncate(file.fileno(), len(header) + sum(nbytes for _, _, nbytes in tensors.values()))


def listing(plan: Plan) -> dict[str, str]:
    return {step.leaf.key.text: str(step.leaf.spec) for step in plan.steps}


def expected_back(table: KeyTable, there: Plan) -> dict[str, str]:
    """What the way back makes: all but what was dropped, and bfloat16 for what was quantized."""
    dropped = {one.leaf.key.text for one in there.dropped}
    found: dict[str, str] = {}
    for name, described in table.listing.items():
        if name.endswith(("_scale_inv", "_scales")):
            continue
        if name.endswith("_blocks"):  # (experts, outputs, blocks, 16 bytes of two numbers each)
            experts, outputs, blocks, half = table.tensors[name][1]
            name, described = (
                name.removesuffix("_blocks"),
                f"bfloat16[{experts},{blocks * half * 2},{outputs}]",
            )
        if name not in dropped:
            # Old names of the parts of LayerNorm, which the library reads as well as the new ones.
            name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
            name = name.replace("LayerNorm.beta", "LayerNorm.bias")
            found[name] = described.replace("float8_e4m3fn", "bfloat16")
    return found


@pytest.mark.parametrize(("model", "size", "layout"), EACH)
def test_there_and_back(model: Model, size: str, layout: ModelLayout, tmp_path: Path) -> None:
    table = keytable(TABLES[plain(size)])
    save(table, tmp_path / "hf")
    sees = [name for name in table.tensors if name.startswith(("vision_", "multi_modal"))]
    sees = sees if layout.name != "flax" else []
    given = ["vision=drop"] if sees else []
    choice = choose_conversion(tmp_path / "hf", layout.name, given)
    assert (choice.model, choice.layout) == (model, layout)
    there = applying.plan(choice.recipe, tmp_path / "hf", set=choice.set)
    # Rows of Gemma 3's embedding for the tokens of images have no place in MaxText's.
    assert [text for text in there.warnings if "[262144:262208," not in text] == []
    assert {one.leaf.key.text for one in there.dropped} >= set(sees)
    params = {param.name: param.value for param in there.params}  # as a conversion records them
    record = {"recipes": {choice.recipe: {"params": params}}}
    config = {**table.config, "ckpt_surgery": record}
    recipe = Path(__file__).parents[2] / "recipes" / f"{layout.back.recipe.removeprefix('@')}.yaml"
    back = plan_of(recipe.read_text(), listing(there), memory=LARGE, config=config)
    added = {step.leaf.key.text for step in there.steps if not step.sources}
    assert {leaf.leaf.key.text for leaf in back.dropped} == added
    assert listing(back) == expected_back(table, there)


def test_every_table_is_of_a_model() -> None:
    assert {plain(size) for model in known_models() for size in model.sizes} == set(TABLES)
