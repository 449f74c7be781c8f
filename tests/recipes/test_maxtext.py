"""`layout=maxtext`: the tree that MaxText loads, told by one param, and the way back from it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckpt_surgery.api import applying
from tests.recipes.decoder_layouts import GEMMA, NARROW, Decoder, Layout, hf_config, sizes
from tests.recipes.families import BF16, F32, FAMILIES, FULL_WIDTH, converted, shapes_of
from tests.recipes.leaves import Arrays, hf_arrays, hf_shapes, jax_arrays, listed, said
from tests.recipes.running import planned
from tests.support.comparing import assert_same
from tests.support.slow import slow


def layout_of(d: Decoder, scan: bool, rope: str = "half") -> Layout:
    """What MaxText has for a family, spelled out."""
    return Layout(
        scan=scan,
        layer_axis=1,
        rope=rope,
        fold_query_scale=not d.family.startswith("qwen"),
        scale_embedding=d.family == "gemma2",
        moe_block="MoeBlock_0" if d.family == "mixtral" else "moe_block",
    )


def rooted(arrays: Arrays) -> Arrays:
    return {f"params/{key}": array for key, array in arrays.items()}


def given(d: Decoder, **more: object) -> list[str]:
    return said(sizes(d) | {"layout": "maxtext"} | more)


@pytest.mark.parametrize("dtype", [BF16, slow(F32)], ids=str)
@pytest.mark.parametrize("scan", [True, slow(False)])
@pytest.mark.parametrize("family", NARROW)
def test_one_param_says_it_all(family: str, scan: bool, dtype: np.dtype) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, dtype)
    found = converted(FAMILIES[family].recipes[0], hf, given(d, scan=scan))
    assert_same(found, rooted(jax_arrays(d, layout_of(d, scan), hf)))


@pytest.mark.parametrize("scan", [True, slow(False)])
@pytest.mark.parametrize("family", NARROW)
def test_and_back(family: str, scan: bool) -> None:
    """What training adds is left out; what was computed comes back as near as float32 has it."""
    d = NARROW[family]
    hf = hf_arrays(d, F32)
    state = rooted(jax_arrays(d, layout_of(d, scan), hf)) | {
        "step": np.array(3, np.int32),
        "opt_state/0/mu/params/decoder/decoder_norm/scale": np.zeros(d.embed, np.float32),
    }
    more = {"family": family} if d.experts else {}
    found = converted(FAMILIES[family].recipes[1], state, given(d, scan=scan, **more))
    assert sorted(found) == sorted(hf)
    for key, array in hf.items():
        if layout_of(d, scan).fold_query_scale and ("q_proj" in key or family == "gemma2"):
            np.testing.assert_allclose(found[key], array, rtol=2e-6, atol=2e-7)
        else:
            assert found[key].tobytes() == array.tobytes(), key


@pytest.mark.parametrize("at", ["rope_scaling", "rope_parameters"])
def test_pairs_of_llama_are_neighbours_where_its_rope_type_is_llama3(tmp_path: Path, at: str) -> None:
    """As the class of MaxText that has the scaled frequencies of Llama 3.1 wants them."""
    d = replace(NARROW["llama3"], layers=2)
    hf, config = hf_arrays(d, F32), hf_config(d) | {at: {"rope_type": "llama3", "factor": 8.0}}
    (tmp_path / "hf").mkdir()
    save_file(hf, tmp_path / "hf" / "model.safetensors")
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    applying.apply(
        "@hf-llama3-to-jax", tmp_path / "hf", dst=tmp_path / "jax.safetensors", set=["layout=maxtext"]
    )
    wanted = jax_arrays(d, layout_of(d, True, "interleaved"), hf)
    assert_same(load_file(tmp_path / "jax.safetensors"), rooted(wanted))
    applying.apply("@jax-to-hf-llama3", tmp_path / "jax.safetensors", dst=tmp_path / "back.safetensors")
    assert_same(
        {k: a for k, a in load_file(tmp_path / "back.safetensors").items() if "q_proj" not in k},
        {k: a for k, a in hf.items() if "q_proj" not in k},
    )


def test_the_vocabulary_of_gemma_is_padded_as_in_maxtext() -> None:
    d = replace(GEMMA, layers=2)
    there, back = FAMILIES["gemma2"].recipes
    given: dict[str, Any] = {"overrides": ["layout=maxtext"], "memory": FULL_WIDTH, "config": hf_config(d)}
    plan = planned(there, listed(hf_shapes(d)), **given)
    assert shapes_of(plan)["params/params/token_embedder/embedding"] == (256128, 2304)
    assert shapes_of(planned(back, listed(shapes_of(plan)), **given)) == hf_shapes(d)
