"""What MaxText 0.2.5 expected and computed, when it loaded models that these recipes had converted.

Stored by `peers/maxtext_logits.py`, which runs MaxText itself.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.recipes import deepseek_model, llama4_model
from tests.recipes.deepseek_layouts import DeepSeek
from tests.recipes.leaves import jax_arrays, jax_shapes
from tests.recipes.peers.models_for_maxtext import CASES, CHUNK, SIZES, TOKENS, TOP, Case, layouts, weights
from tests.support.slow import slow
from tests.support.trees import nested

STORED = Path(__file__).parents[1] / "data" / "peers" / "maxtext-deepseek-llama4.npz"


def computed(case: Case) -> np.ndarray:
    """The logits of the small model in these tests, from weights in MaxText's layout."""
    d, names = SIZES[case.model], layouts(case.model)
    layout = names.Layout("maxtext", scan=case.scan)
    tree = nested(jax_arrays(d, layout, weights(case.model)))["params"]
    if isinstance(d, DeepSeek):
        v3 = d.family == "deepseek_v3"
        model = deepseek_model.Model(
            d, "interleaved", top=TOP, routed_scale=2.5 if v3 else 1.0, normalized=v3
        )
        return deepseek_model.jax_logits(model, layout, tree, TOKENS)  # type: ignore[arg-type]
    scout = d.moe_step == 1
    llama = llama4_model.Model(d, qk_norm=scout, chunk=CHUNK, floor_scale=8192, attn_scale=0.1)
    return llama4_model.jax_logits(llama, layout, tree, TOKENS)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_maxtext_has_these_names_and_shapes(case: Case) -> None:
    names = layouts(case.model)
    with np.load(STORED) as stored:
        shapes = json.loads(str(stored[f"{case.name}/shapes"]))
    wanted = jax_shapes(SIZES[case.model], names.Layout("maxtext", scan=case.scan))
    assert {key: tuple(shape) for key, shape in shapes.items()} == wanted


@pytest.mark.parametrize(
    "case",
    [case if case.scan else slow(case) for case in CASES],
    ids=lambda case: case.name,
)
def test_maxtext_computed_these_logits(case: Case) -> None:
    with np.load(STORED) as stored:
        wanted = stored[f"{case.name}/logits"]
    assert np.abs(wanted).max() > 1
    assert np.abs(computed(case) - wanted).max() <= 1e-4
