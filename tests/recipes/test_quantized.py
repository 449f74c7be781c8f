"""Weights of DeepSeek in float8, and experts of gpt-oss in MXFP4 are converted as what they stand for."""

from dataclasses import replace

import numpy as np
import pytest

from tests.recipes import deepseek_layouts as deepseek
from tests.recipes import leaves
from tests.recipes.families import BF16, F32, FAMILIES
from tests.recipes.gpt_oss_layout import PACKED, Layout, hf_arrays, unpacked
from tests.recipes.leaves import jax_arrays, listed
from tests.recipes.running import planned
from tests.recipes.test_layouts import back, there
from tests.support.comparing import assert_same
from tests.support.slow import slow

DEEPSEEK, OSS = FAMILIES["deepseek_v3"], FAMILIES["gpt_oss"]


@pytest.mark.slow("runs models of transformers")
@pytest.mark.parametrize("layout", [deepseek.Layout(), deepseek.Layout("maxtext", scan=False)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, slow(F32)], ids=str)
def test_float8_weights_are_multiplied_by_the_scales_of_their_blocks(
    layout: deepseek.Layout, dtype: np.dtype
) -> None:
    """Matrices of more than one block each way, the last of them cut; and a layer that goes."""
    d = replace(deepseek.NARROW, layers=3, experts=2, embed=130, mlp=257, q_rank=140)
    further = {key: np.ones(shape, F32) for key, shape in deepseek.further_layer(d).items()}
    quantized = deepseek.as_float8(leaves.hf_arrays(d, F32) | further)
    hf = {key: w for key, w in deepseek.dequantized(quantized, dtype).items() if key not in further}
    assert hf["model.layers.0.mlp.gate_proj.weight"].dtype == dtype
    assert quantized["model.layers.0.mlp.down_proj.weight_scale_inv"].shape == (2, 3)
    found = there(DEEPSEEK, d, layout, quantized, f"dtype={dtype}")
    assert_same(found, jax_arrays(d, layout, hf))
    assert_same(back(DEEPSEEK, d, layout, found), hf)


@pytest.mark.slow("runs models of transformers")
@pytest.mark.parametrize("layout", [Layout(), slow(Layout("maxtext"))], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_experts_in_mxfp4(layout: Layout, dtype: np.dtype) -> None:
    hf = hf_arrays(PACKED, dtype, quantized=True)
    plain = unpacked(hf, dtype)
    found = there(OSS, PACKED, layout, hf, f"dtype={dtype}")
    assert_same(found, jax_arrays(PACKED, layout, plain))
    assert_same(back(OSS, PACKED, layout, found), plain)


# It imports transformers.
@pytest.mark.slow("runs models of transformers")
def test_unpacked_experts_are_those_of_the_library() -> None:
    """The numbers that the tests take MXFP4 to mean."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    hf = hf_arrays(PACKED, BF16, quantized=True)
    plain = unpacked(hf, BF16)
    for name in ("gate_up_proj", "down_proj"):
        key = f"model.layers.1.mlp.experts.{name}"
        blocks, scales = torch.from_numpy(hf[f"{key}_blocks"]), torch.from_numpy(hf[f"{key}_scales"])
        theirs = convert_moe_packed_tensors(blocks, scales).float().numpy()
        np.testing.assert_array_equal(plain[key].astype(np.float32), theirs)


def test_the_bias_of_the_gate_comes_back_from_where_older_versions_of_maxtext_had_it() -> None:
    layout = deepseek.Layout("maxtext")
    newer = DEEPSEEK.shapes(layout, True)
    older = {k.replace("MoEBiasVar", "params"): (s[::-1] if "Var" in k else s) for k, s in newer.items()}
    assert older != newer
    plan = planned(DEEPSEEK.recipes[1], listed(older), config=DEEPSEEK.recorded(layout))
    assert {step.leaf.key.text for step in plan.steps} == set(DEEPSEEK.shapes(layout, False))
