"""The config of a merge describes the merge."""

from typing import Any

import pytest

from ckpt_surgery.merging.reading import parse_config
from ckpt_surgery.merging.recipes import config_changes

SLICES = """
merge_method: passthrough
slices:
  - sources: [{model: a, layer_range: [0, 2]}]
  - sources: [{model: b, layer_range: [1, 3]}]
"""


@pytest.mark.parametrize(
    ("text", "base", "wanted"),
    [
        (SLICES, {"num_hidden_layers": 3}, {("num_hidden_layers",): 4}),
        (SLICES, {"n_layer": 3, "torch_dtype": "float16"}, {("n_layer",): 4}),
        (SLICES, {}, {}),
        (SLICES + "dtype: float32\n", {}, {("torch_dtype",): "float32"}),
        (SLICES + "dtype: float32\nout_dtype: bfloat16\n", {"dtype": "x"}, {("dtype",): "bfloat16"}),
        (
            SLICES,
            {"num_hidden_layers": 3, "layer_types": ["full", "sliding", "none"]},
            {("num_hidden_layers",): 4, ("layer_types",): ["full", "sliding", "sliding", "none"]},
        ),
        (
            SLICES + "dtype: float32\n",
            {"dtype": "x", "text_config": {"num_hidden_layers": 3, "dtype": "x"}},
            {
                ("dtype",): "float32",
                ("text_config", "dtype"): "float32",
                ("text_config", "num_hidden_layers"): 4,
            },
        ),
        ("merge_method: karcher\nmodels: [{model: a}]\n", {"num_hidden_layers": 3}, {}),
    ],
)
def test_entries_change(text: str, base: dict[str, Any], wanted: dict[tuple[str, ...], Any]) -> None:
    assert config_changes(parse_config(text, "merge.yaml").config, base) == wanted
