"""`@lora-merge-inplace`: one matrix product with the merged weight gives what the adapted layer gives."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import PlanError
from tests.support.heavy import jax, jnp, nnx

RECIPE = "@lora-merge-inplace"


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def merged(tmp_path: Any, leaves: Mapping[str, np.ndarray], **params: Any) -> Mapping[str, np.ndarray]:
    save_file(dict(leaves), tmp_path / "in.safetensors")
    applying.apply(RECIPE, tmp_path / "in.safetensors", dst=tmp_path / "out.safetensors", set=params)
    return load_file(tmp_path / "out.safetensors")


def test_layers_of_nnx(tmp_path: Any) -> None:
    layer = nnx.LoRALinear(5, 7, lora_rank=2, rngs=nnx.Rngs(0))
    layer.lora.lora_b[...] = jnp.asarray(numbers(2, 7))
    state = nnx.to_pure_dict(nnx.state(layer))
    leaves = {
        "top/" + "/".join(str(step.key) for step in path): np.asarray(value)
        for path, value in jax.tree_util.tree_leaves_with_path(state)
    }
    assert {"top/lora/lora_a", "top/lora/lora_b"} < set(leaves)
    found = merged(tmp_path, leaves, scale=1)
    assert set(found) == {"top/kernel", "top/bias"}
    x = numbers(3, 5)
    np.testing.assert_allclose(x @ found["top/kernel"] + found["top/bias"], layer(jnp.asarray(x)), rtol=1e-5)


@pytest.mark.parametrize(
    ("weight", "a", "b", "equation", "equation_a", "equation_b"),
    [
        # openpi/models/lora.py: the last axis of `lora_a`, and the one before it of `lora_b`, has length r
        ((2, 5, 3), (2, 5, 2), (2, 2, 3), "td,ndh->tnh", "td,ndr->tnr", "tnr,nrh->tnh"),
        ((2, 4, 5, 3), (2, 4, 5, 2), (2, 4, 2, 3), "sd,ckdh->cskh", "sd,ckdr->cskr", "cskr,ckrh->cskh"),
        # qwix: the axes that are summed over and r; r and the others
        ((4, 5, 3), (5, 2), (2, 4, 3), "td,ndh->tnh", "td,dr->tr", "tr,rnh->tnh"),
        ((5, 4, 3), (5, 2), (2, 4, 3), "td,dnh->tnh", "td,dr->tr", "tr,rnh->tnh"),
        ((2, 4, 5, 3), (5, 2), (2, 2, 4, 3), "sd,ckdh->cskh", "sd,dr->sr", "sr,rckh->cskh"),
        ((4, 3, 5), (4, 3, 2), (2, 5), "tnh,nhd->td", "tnh,nhr->tr", "tr,rd->td"),
    ],
)
def test_einsums(
    tmp_path: Any, weight: tuple, a: tuple, b: tuple, equation: str, equation_a: str, equation_b: str
) -> None:
    w, a, b = numbers(*weight), numbers(*a), numbers(*b)
    found = merged(tmp_path, {"q/w": w, "q/lora_a": a, "q/lora_b": b, "q/step": numbers(1)}, alpha=6)
    assert set(found) == {"q/w", "q/step"}
    letters = equation.partition(",")[0]
    sizes = dict(zip(equation.partition(",")[2].partition("-")[0], weight, strict=True))
    x = numbers(*(sizes.get(letter, 6) for letter in letters))
    adapted = np.einsum(equation, x, w) + 3 * np.einsum(equation_b, np.einsum(equation_a, x, a), b)
    np.testing.assert_array_equal(np.einsum(equation, x, found["q/w"]), adapted)


def test_names_beside_the_weight_and_the_optimizer(tmp_path: Any) -> None:
    leaves = {
        "m/gating_einsum": numbers(2, 5, 7),
        "m/gating_einsum_lora_a": numbers(2, 5, 1),
        "m/gating_einsum_lora_b": numbers(2, 1, 7),
        "d/kernel/value": numbers(5, 7).astype(ml_dtypes.bfloat16),
        "d/kernel_lora_a/value": numbers(5, 2),
        "d/kernel_lora_b/value": numbers(2, 7),
        "opt_state/0/mu/d/kernel/value": numbers(5, 7),
        "opt_state/0/mu/d/kernel_lora_a/value": numbers(5, 2),
        "opt_state/0/mu/d/kernel_lora_b/value": numbers(2, 7),
    }
    found = merged(tmp_path, leaves, scale=2)
    assert set(found) == {"m/gating_einsum", "d/kernel/value", "opt_state/0/mu/d/kernel/value"}
    wanted = numbers(5, 7) + 2 * numbers(5, 2) @ numbers(2, 7)
    np.testing.assert_array_equal(found["d/kernel/value"], wanted.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found["opt_state/0/mu/d/kernel/value"], numbers(5, 7))
    product = numbers(2, 5, 1) @ numbers(2, 1, 7)
    np.testing.assert_array_equal(found["m/gating_einsum"], numbers(2, 5, 7) + 2 * product)


FACTORS = {"q/lora_a": numbers(5, 2), "q/lora_b": numbers(2, 4, 3)}


@pytest.mark.parametrize(
    ("leaves", "params", "says"),
    [
        ({"q/w": numbers(4, 5, 3), **FACTORS}, {}, "by what the products are multiplied"),
        (
            {"q/w": numbers(4, 5, 3), **FACTORS},
            {"scale": 1, "alpha": 2},
            "by what the products are multiplied",
        ),
        ({"q/w": numbers(4, 3, 5, 1), **FACTORS}, {"scale": 1}, "do not fit this weight"),
        ({"q/other": numbers(4, 5, 3), **FACTORS}, {"scale": 1}, "no weight that this factor belongs to"),
        ({"q/w": numbers(4, 5, 3), "q/lora_a": numbers(5, 2)}, {"scale": 1}, "q/w_lora_b"),
        (
            {"q/w": numbers(4, 4, 3), "q/lora_a": numbers(4, 2), "q/lora_b": numbers(2, 4, 3)},
            {"scale": 1},
            "several axes are as long as the input",
        ),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path: Any, leaves: Any, params: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        merged(tmp_path, leaves, **params)


def test_the_axis_decides_where_several_fit(tmp_path: Any) -> None:
    leaves = {"q/w": numbers(4, 4, 3), "q/lora_a": numbers(4, 2), "q/lora_b": numbers(2, 4, 3)}
    product = np.einsum("dr,rnh->ndh", leaves["q/lora_a"], leaves["q/lora_b"])
    found = merged(tmp_path, leaves, scale=1, axis=1)
    np.testing.assert_array_equal(found["q/w"], leaves["q/w"] + product)
