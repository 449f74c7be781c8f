"""Decoders that people convert: each direction from values alone, every element compared.

The numbers by hand count the rules of the packaged recipe that speak of the leaves in question, with one for
words that a table turns into each other, as a person would write a recipe that serves one model.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.inference.cases.running import assert_found, inferred, undecided
from tests.recipes.decoder_layouts import Decoder, Layout
from tests.recipes.gpt_oss_layout import GptOss
from tests.recipes.leaves import hf_arrays, jax_arrays
from tests.support.slow import slow, some

F32 = np.dtype(np.float32)
LLAMA = Decoder("llama3", 5, 6, 3, 8, 24, 40, 50)
"""Head counts and lengths differ, but keys are as wide as the model: (kv_heads × head_dim) is 24, too."""
ALIKE = {"heads": 3, "kv_heads": 3, "head_dim": 8, "embed": 24, "mlp": 24, "vocab": 24}
"""All matrices are 24 by 24: shapes tell nothing."""
MODELS = {
    "llama": (LLAMA, 7),  # ends (2), norms, query, key and value, out, mlp
    "llama, all alike": (replace(LLAMA, **ALIKE), 7),
    "qwen3": (replace(LLAMA, family="qwen3", tied=True), 7),  # + norms of query and key, – logits
    "qwen3, as many layers as heads": (replace(LLAMA, family="qwen3", heads=5, kv_heads=5), 8),
    "qwen3 with experts": (replace(LLAMA, family="qwen3_moe", experts=12), 9),  # + router, experts (2)
    "mixtral": (replace(LLAMA, family="mixtral", experts=4), 8),
    "mixtral, all alike": (
        Decoder("mixtral", layers=4, heads=4, kv_heads=4, head_dim=4, embed=16, mlp=16, vocab=16, experts=4),
        8,
    ),
}
LAYOUTS = {
    "scanned": Layout(),
    "by layers": Layout(scan=False),
    "layers second, rope by turns": Layout(rope="interleaved", layer_axis=1),
}


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("model", "by_hand"), some(MODELS.values()), ids=MODELS)
def test_there_and_back(model: Decoder, by_hand: int, layout: Layout) -> None:
    theirs = hf_arrays(model, F32)
    ours = jax_arrays(model, layout, theirs)
    assert_found(theirs, ours, by_hand)
    assert_found(ours, theirs, by_hand)


GEMMA = Decoder("gemma2", 6, 6, 3, 8, 24, 40, 50, tied=True)


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("scaled", [slow(False), True])
def test_gemma_2_with_what_is_folded_in(layout: Layout, scaled: bool) -> None:
    """Norms as 1 + w, over every second layer; the embedding times the root of its width."""
    theirs = hf_arrays(GEMMA, F32)
    inference = assert_found(theirs, jax_arrays(GEMMA, replace(layout, scale_embedding=scaled), theirs), 8)
    assert "+ 1.0" in inference.recipe
    assert ("sqrt(24)" in inference.recipe) is scaled


def test_what_rounding_lost_does_not_come_back() -> None:
    """1 + w has lost bits of w, so w - 1 is another number: such leaves stay undecided."""
    theirs = hf_arrays(GEMMA, F32)
    for layout in LAYOUTS.values():
        ours = jax_arrays(GEMMA, replace(layout, scale_embedding=True), theirs)
        inference = inferred(ours, theirs)
        norms = {key for key in theirs if "norm" in key}
        assert undecided(inference) == norms | {"model.embed_tokens.weight"}
        assert (inference.findings.from_target, inference.findings.dropped) == ((), ())


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gemma_2_without_arithmetic_there_and_back(layout: Layout) -> None:
    """Sums of 1 and a multiple of 2^-20 are exact, and so are their differences."""
    theirs = {
        key: (np.round(array * 2**16) / 2**16).astype(F32) if "norm" in key else array
        for key, array in hf_arrays(GEMMA, F32).items()
    }
    ours = jax_arrays(GEMMA, layout, theirs)
    assert_found(theirs, ours, 8)
    assert_found(ours, theirs, 8)


def test_gemma_3() -> None:
    """Norms of query and key, too; five local layers to a global one say nothing in one stack."""
    model = replace(GEMMA, family="qwen3")
    theirs = hf_arrays(model, F32)
    theirs |= {
        f"model.layers.{i}.{which}_feedforward_layernorm.weight": hf_arrays(model, F32)[
            f"model.layers.{i}.input_layernorm.weight"
        ][::-1]
        * np.float32(scale)
        for i in range(model.layers)
        for which, scale in (("pre", 0.5), ("post", 0.25))
    }
    ours = jax_arrays(model, Layout(), theirs)
    for which, name in (("pre", "pre_ffw_norm"), ("post", "post_ffw_norm")):
        ours[f"params/decoder/layers/{name}/scale"] = np.stack(
            [theirs[f"model.layers.{i}.{which}_feedforward_layernorm.weight"] for i in range(model.layers)]
        )
    ours = {
        key: array + np.float32(1) if key.endswith("norm/scale") else array for key, array in ours.items()
    }
    assert_found(theirs, ours, 8)


@pytest.mark.parametrize(
    "model",
    [GptOss(6, 6, 2, 8, 24, 20, 50, 4), GptOss(6, 4, 4, 4, 16, 16, 16, 4)],
    ids=["telling", "alike"],
)
def test_gpt_oss(model: GptOss) -> None:
    """By hand: ends (3), norms, 4 projections with 2 kinds of leaves, sinks, router (2), experts (4)."""
    theirs = hf_arrays(model, F32)
    ours = jax_arrays(model, Layout(layer_axis=1), theirs)
    inference = assert_found(theirs, ours, 16)
    assert "layers_${int(n) % 2}" in inference.recipe
    assert_found(ours, theirs, 16)
