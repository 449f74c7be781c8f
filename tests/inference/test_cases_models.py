"""Models that people convert: each direction from values alone, every element compared.

The numbers by hand count the rules of the packaged recipe that speak of the leaves in question, with one for
words that a table turns into each other, as a person would write a recipe that serves one model.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.inference.cases.fused import gpt2, gpt2_in_heads, megatron
from tests.inference.cases.running import assert_found, inferred, undecided
from tests.recipes import t5_layouts
from tests.recipes.decoder_layouts import Decoder, Layout
from tests.recipes.gpt_oss_layout import GptOss
from tests.recipes.leaves import hf_arrays, jax_arrays
from tests.recipes.test_t5 import state_of
from tests.support.arrays import numbers
from tests.support.slow import slow, some

Arrays = dict[str, np.ndarray]
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
    """Norms of query and key, too, and blocks of six layers, five of them local."""
    model = Decoder("gemma3", 12, 6, 3, 8, 24, 40, 50, tied=True)
    theirs = hf_arrays(model, F32)
    assert "layers_${int(n) % 6}" in assert_found(theirs, jax_arrays(model, model.LAYOUT, theirs), 9).recipe


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


# --- query, key and value in one matrix, and in three -----------------------------------------------------


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize(("layers", "embed", "heads"), [(5, 24, 3), (4, 16, 4)])
def test_gpt_2(layers: int, embed: int, heads: int) -> None:
    """By hand: embedding, norms (2), fused (2), out (2), mlp (1)."""
    theirs = gpt2(layers, embed)
    ours = gpt2_in_heads(theirs, layers, embed, heads)
    assert_found(theirs, ours, 8)
    assert_found(ours, theirs, 8)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_megatron(kv_heads: int) -> None:
    """By hand: ends (3), fused attention, fused mlp, norms, out, down."""
    model = Decoder("llama3", 5, 6, kv_heads, 8, 24, 40, 50)
    theirs = hf_arrays(model, np.dtype(np.float32))
    ours = megatron(model, theirs)
    assert_found(theirs, ours, 8)
    assert_found(ours, theirs, 8)


# --- T5 under its three names, with the slots of its optimizer --------------------------------------------

VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])


SIZE = t5_layouts.Size(layers=3, vocab=50, embed=24, heads=4, joined=20, mlp=40, buckets=5)


def t5_values(version: Any, slots: t5_layouts.Slots) -> tuple[Arrays, Arrays, Arrays]:
    """One model with its optimizer's slots: in Mesh TensorFlow, in T5X, and without slots in Hugging Face."""
    parameters = t5_layouts.t5(SIZE, version, "shared")
    listed = t5_layouts.mesh_variables(parameters, slots)
    mesh = {key: numbers(spec, seed) for seed, (key, spec) in enumerate(listed.items())}
    mesh["global_step"] = np.array(1000)
    theirs = {p.hugging_face: mesh[p.mesh].T if p.transposed else mesh[p.mesh] for p in parameters}
    return mesh, state_of(parameters, mesh), theirs


@VERSIONS
def test_hugging_face_and_t5x(version: str) -> None:
    """By hand: the rules of `@t5x-hf-t5` (10)."""
    _, ours, theirs = t5_values(version, "none")
    target = {key: array for key, array in ours.items() if key.startswith("target/")}
    assert_found(theirs, target, 10)
    assert_found(target, theirs, 10)


@VERSIONS
def test_hugging_face_and_mesh_tensorflow(version: str) -> None:
    """By hand: attention, relative bias, norms and mlp of two towers (8), the last norms, ends (2)."""
    mesh, _, theirs = t5_values(version, "none")
    del mesh["global_step"]
    assert_found(theirs, mesh, 10)
    assert_found(mesh, theirs, 10)


@pytest.mark.slow("infers from whole models")
@VERSIONS
@pytest.mark.parametrize("slots", ["whole", "factored"])
def test_mesh_tensorflow_and_t5x(version: str, slots: t5_layouts.Slots) -> None:
    """By hand: the rules of `@t5-to-t5x` (16), and one for slots that are not in use. The way back has two
    rules for each of ten kinds of leaves, one for it and one for its slots, and two for step and slots."""
    mesh, ours, _ = t5_values(version, slots)
    inference = assert_found(mesh, ours, 17)
    unused = {key for key, array in ours.items() if array.shape == (1,)}
    assert set(inference.findings.from_target) == unused
    back = assert_found(ours, mesh, 22)
    assert set(back.findings.dropped) == unused


# --- flax.linen and flax.nnx, with statistics, optimizer and random streams -------------------------------

BLOCKS = 3
LEAVES = {
    "embed/embedding": (11, 8),
    "conv/kernel": (3, 3, 2, 8),
    "conv/bias": (8,),
    "batch_norm/scale": (8,),
    "batch_norm/bias": (8,),
    **{
        f"blocks_{i}/{name}": shape
        for i in range(BLOCKS)
        for name, shape in {
            "attention/query/kernel": (8, 2, 4),
            "attention/query/bias": (2, 4),
            "attention/out/kernel": (2, 4, 8),
            "norm/scale": (8,),
            "up/kernel": (8, 16),
            "down/kernel": (16, 8),
        }.items()
    },
    "head/layers_0/kernel": (8, 4),
    "head/layers_2/kernel": (4, 3),
}


def of_nnx(name: str) -> str:
    """`blocks_0/up/kernel` → `blocks/0/up/kernel`."""
    return re.sub(r"\b(blocks|layers)_(\d+)", r"\1/\2", name)


def states() -> tuple[Arrays, Arrays]:
    """A state of linen, and the same in nnx."""
    random = np.random.default_rng(8)
    linen: Arrays = {"step": np.array(7, np.int32), "opt_state/1/0/count": np.array(7, np.int32)}
    nnx: Arrays = {
        "optimizer/step/value": np.array(7, np.uint32),
        "optimizer/opt_state/1/0/count/value": np.array(7, np.int32),
    }
    trees = {
        "params": "model",
        "opt_state/1/0/mu": "optimizer/opt_state/1/0/mu",
        "opt_state/1/0/nu": "optimizer/opt_state/1/0/nu",
    }
    for theirs, ours in trees.items():
        for name, shape in LEAVES.items():
            array = random.standard_normal(shape).astype(np.float32)
            linen[f"{theirs}/{name}"] = nnx[f"{ours}/{of_nnx(name)}/value"] = array
    for name in ("mean", "var"):
        array = random.standard_normal(8).astype(np.float32)
        linen[f"batch_stats/batch_norm/{name}"] = nnx[f"model/batch_norm/{name}/value"] = array
    return linen, nnx


@pytest.mark.slow("infers from whole models")
def test_linen_and_nnx() -> None:
    """By hand 7, as `@linen-to-nnx` has in two passes, and 8 the other way, as `@nnx-to-linen` has."""
    linen, nnx = states()
    assert_found(linen, nnx, 7)
    assert_found(nnx, linen, 8)


@pytest.mark.slow("infers from whole models")
def test_random_streams_stay_with_nnx() -> None:
    """They are nowhere in linen: the target's own on the way there, dropped on the way back."""
    linen, nnx = states()
    streams = {
        "model/rngs/dropout/key/value": np.array([3, 4], np.uint32),
        "model/rngs/dropout/counter/value": np.array([[9]], np.uint32),
    }
    inference = assert_found(linen, nnx | streams, 9)
    assert set(inference.findings.from_target) == set(streams)
    back = assert_found(nnx | streams, linen, 9)
    assert set(back.findings.dropped) == set(streams)
