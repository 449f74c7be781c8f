"""Names, shapes and dtypes alone: decided where they suffice, and open with candidates where they do not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from ckpt_surgery import Inferred, apply, infer, plan
from tests.inference.cases import fused
from tests.inference.cases.running import Arrays, assert_found, inferred, undecided
from tests.recipes.decoder_layouts import GEMMA, LLAMA, MIXTRAL, QWEN, QWEN_MOE, Decoder, Layout
from tests.recipes.deepseek_layouts import V3
from tests.recipes.gpt_oss_layout import GptOss
from tests.recipes.leaves import Shapes, hf_arrays, hf_shapes, jax_arrays, jax_shapes
from tests.support.trees import nested

BF16 = np.dtype(ml_dtypes.bfloat16)
F32 = np.dtype(np.float32)


def listing(path: Path, shapes: Shapes) -> str:
    leaves = [{"key": key, "shape": list(shape), "dtype": "bfloat16"} for key, shape in shapes.items()]
    path.write_text(json.dumps({"leaves": leaves}))
    return str(path)


def abstract(shapes: Shapes) -> Any:
    return nested({key: jax.ShapeDtypeStruct(shape, BF16) for key, shape in shapes.items()})


def assert_listed(tmp_path: Path, source: Shapes, target: Shapes, by_hand: int) -> Inferred:
    """Assert that a draft gives the shapes of a listing, with about as few rules as `by_hand`."""
    inference = infer(abstract(source), listing(tmp_path / "target.json", target))
    assert inference.decided, [(one.targets[:3], one.why) for one in inference.findings.undecided]
    assert inference.values == "none"
    planned = plan(inference.recipe, abstract(source), memory="1TiB")
    assert {step.leaf.key.text: step.leaf.spec.shape for step in planned.steps} == target
    assert len(yaml.safe_load(inference.recipe)["rules"]) <= 1.5 * by_hand, inference.recipe
    return inference


@pytest.mark.parametrize("layout", [Layout(), Layout(scan=False)], ids=["scanned", "by layers"])
@pytest.mark.parametrize(
    ("model", "by_hand"),
    [(LLAMA, 7), (QWEN, 7), (MIXTRAL, 8), pytest.param(QWEN_MOE, 9, marks=pytest.mark.slow("one more case"))],
    ids=lambda one: getattr(one, "family", ""),
)
def test_published_sizes(model: Decoder, by_hand: int, layout: Layout, tmp_path: Path) -> None:
    """Real widths, so that shapes distinguish most matrices; there and back."""
    theirs, ours = hf_shapes(model), jax_shapes(model, layout)
    assert_listed(tmp_path, theirs, ours, by_hand)
    assert_listed(tmp_path, ours, theirs, by_hand)


@pytest.mark.slow("infers from whole models")
@pytest.mark.parametrize("experts", [8, pytest.param(256, marks=pytest.mark.slow("one more case"))])
def test_deepseek_v3(experts: int, tmp_path: Path) -> None:
    """Layers with experts and without are two stacks, though attention has the same names in both.

    By hand: ends (2); for both stacks norms, projections down, their norms, projections up, out (10); mlp,
    router (2), experts, shared expert.
    """
    model = replace(V3, experts=experts)
    theirs, ours = hf_shapes(model), jax_shapes(model, V3.LAYOUT)
    for source, target in ((theirs, ours), (ours, theirs)):
        inference = infer(abstract(source), listing(tmp_path / "target.json", target))
        assert (inference.decided, inference.problems) == (True, ())
        assert set(inference.findings.dropped) == set()
        assert {one.target for one in inference.findings.formations} == target.keys()
        assert len(yaml.safe_load(inference.recipe)["rules"]) <= 1.5 * 17
        if target is ours:
            query = next(
                one
                for one in inference.findings.formations
                if one.target.endswith("moe_layers/self_attention/wq_a/kernel")
            )
            assert query.sources == tuple(f"model.layers.{i}.self_attn.q_a_proj.weight" for i in range(3, 61))


@pytest.mark.parametrize("sizes", [(3, 4, 8, 12), (2, 4, 8, 16), (3, 5, 7, 11)], ids=str)
@pytest.mark.parametrize("first", ["layers", "experts"])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("block_sparse_moe", "w1", "w3", "w2"), ("moe/wi_0", "moe/wi_1", "moe/wo")),
        (
            ("mlp", "gate_proj", "up_proj", "down_proj"),
            ("mlp/experts/gate_proj/kernel", "mlp/experts/up_proj/kernel", "mlp/experts/down_proj/kernel"),
        ),
    ],
    ids=["mixtral", "qwen3"],
)
def test_drafts_with_experts_and_layers_stacked_run(
    theirs: tuple[str, ...], ours: tuple[str, ...], first: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    """Also where layers times experts are as many as a kernel has columns, by chance."""
    layers, experts, embed, mlp = sizes
    block, *words = theirs
    rng, source, target = np.random.default_rng(0), {}, {}
    for word, name in zip(words, ours, strict=True):
        shape = (embed, mlp) if word in ("w2", "down_proj") else (mlp, embed)
        stack = rng.standard_normal((layers, experts, *shape), np.float32)
        source |= {
            f"model.layers.{layer}.{block}.experts.{expert}.{word}.weight": stack[layer, expert]
            for layer, expert in np.ndindex(layers, experts)
        }
        kernel = stack.swapaxes(-1, -2)
        target[f"layers/{name}"] = kernel if first == "layers" else kernel.swapaxes(0, 1)
    save_file(source, tmp_path / "in.safetensors")
    leaves = [{"key": key, "shape": list(a.shape), "dtype": "float32"} for key, a in target.items()]
    (tmp_path / "target.json").write_text(json.dumps({"leaves": leaves}))
    assert infer(tmp_path / "in.safetensors", tmp_path / "target.json", out=tmp_path / "r.yaml").decided
    dst = tmp_path / "out.safetensors"
    apply(tmp_path / "r.yaml", tmp_path / "in.safetensors", dst=dst, target=tmp_path / "target.json")
    saved = load_file(dst)
    for key, array in target.items():
        np.testing.assert_array_equal(saved[key.replace("/", ".")] if key not in saved else saved[key], array)


def assert_open(source: Arrays, target: Arrays, still_open: set[str]) -> None:
    """Assert what names leave open; nothing of it is claimed by a rule, and the draft does not run."""
    inference = inferred(source, target, values="ignore")
    assert not inference.decided
    assert undecided(inference) == still_open
    assert inference.problems == ()
    assert inference.findings.from_target == ()
    assert yaml.safe_load(inference.recipe)["unmatched"] == "error"
    assert {one.target for one in inference.findings.formations} == target.keys() - still_open


def test_gemma_2_over_every_second_layer_is_open(tmp_path: Path) -> None:
    """Names do not say which layers are local: these have candidates, all else is decided."""
    target = jax_shapes(GEMMA, Layout())
    inference = infer(abstract(hf_shapes(GEMMA)), listing(tmp_path / "target.json", target))
    assert undecided(inference) == {key for key in target if "/layers/" in key}
    assert all(one.candidates for one in inference.findings.undecided if "query" in one.targets[0])


def test_gpt_oss_over_every_second_layer_is_open() -> None:
    model = GptOss(6, 6, 2, 8, 24, 20, 50, 4)
    theirs = hf_arrays(model, F32)
    ours = jax_arrays(model, Layout(), theirs)
    assert_open(theirs, ours, {key for key in ours if "/layers/" in key})
    assert_open(ours, theirs, {key for key in theirs if ".layers." in key})


def test_fused_matrices_of_gpt_2_are_split_in_their_order(tmp_path: Path) -> None:
    """`c_attn` is queries, keys and values in all models; in what order others lie is not in their names."""
    theirs = fused.gpt2(5, 24)
    ours = fused.gpt2_in_heads(theirs, 5, 24, 3)
    assert_found(theirs, ours, 8, values="ignore")
    parts = {key for key in ours if any(f"/{name}/" in key for name in ("query", "key", "value"))}
    other = {key.replace("c_attn", "query_key_value"): array for key, array in theirs.items()}
    assert_open(other, ours, parts)
    assert_open(ours, theirs, {key for key in theirs if "c_attn" in key})


def test_square_matrices_are_open_with_both_layouts() -> None:
    """All matrices are 24 by 24: names find each, and nothing says whether it is turned."""
    model = Decoder("llama3", 5, 3, 3, 8, 24, 24, 24)
    theirs = hf_arrays(model, F32)
    ours = jax_arrays(model, Layout(), theirs)
    for source, target in ((theirs, ours), (ours, theirs)):
        inference = inferred(source, target, values="ignore")
        assert undecided(inference) == {key for key in target if "norm" not in key}
        assert all(len(one.candidates) > 1 for one in inference.findings.undecided)


def test_values_that_are_ignored_give_the_same_as_those_that_decide() -> None:
    """Decisions by names alone are right, not only complete: the ignored values confirm them."""
    model = Decoder("qwen3", 5, 6, 3, 8, 24, 40, 50, tied=True)
    theirs = hf_arrays(model, F32)
    ours = jax_arrays(model, Layout(), theirs)
    assert_found(theirs, ours, 7, values="ignore")
    assert_found(ours, theirs, 7, values="ignore")


def test_a_stack_for_each_kind_of_layers() -> None:
    """Norms are in all five layers, so they are two stacks; neither has the size of all."""
    norm = {f"layers/{i}/input_layernorm": np.zeros(6) for i in range(5)}
    down = {f"layers/{i}/mlp/down_proj": np.zeros((6, 8)) for i in range(2)}
    experts = {
        f"layers/{i}/mlp/experts/{e}/down_proj": np.zeros((6, 4)) for i in range(2, 5) for e in range(5)
    }
    target = {"dense_layers/mlp/wo": np.zeros((2, 8, 6)), "moe_layers/experts/wo": np.zeros((3, 5, 4, 6))}
    for name, count in (("dense_layers", 2), ("moe_layers", 3)):
        target[f"{name}/pre_self_attention_layer_norm"] = np.zeros((count, 6))
    inference = inferred(norm | down | experts, target, values="ignore")
    assert inference.decided, inference.recipe
    stacks = {one.target: (one.sources[0], len(one.sources)) for one in inference.findings.formations}
    assert stacks["dense_layers/pre_self_attention_layer_norm"] == ("layers/0/input_layernorm", 2)
    assert stacks["moe_layers/pre_self_attention_layer_norm"] == ("layers/2/input_layernorm", 3)
