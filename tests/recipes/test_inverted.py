"""The inverse of a packaged recipe does what the packaged way back does, bit for bit."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.inference.going_back import described, random_arrays, reasons, there_and_back
from tests.recipes import t5_layouts
from tests.recipes.decoder_layouts import NARROW, Layout, hf_arrays, jax_arrays
from tests.recipes.flax_weights import weights
from tests.recipes.running import RECIPES
from tests.recipes.t5_layouts import Size
from tests.recipes.test_flax_classes import recorded
from tests.recipes.test_layouts import BF16, EXACT, converted, params, recipe_names
from tests.recipes.test_t5 import filled
from tests.support.comparing import assert_same
from tests.support.plans import plan_of
from tests.support.slow import some


def text_of(name: str) -> str:
    return (RECIPES / f"{name}.yaml").read_text()


@pytest.mark.parametrize(("family", "layout"), some(EXACT))
def test_of_the_way_to_jax(family: str, layout: Layout) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, BF16)
    there, back = recipe_names(d)
    given = params(d, layout, False)
    packaged = converted(back, converted(there, hf, given), params(d, layout, True))
    found, inversion = there_and_back(there.read_text(), hf, overrides=given)
    assert reasons(inversion) == {}
    assert_same(found, packaged)


@pytest.mark.parametrize(("family", "layout"), some(EXACT))
def test_of_the_way_from_jax(family: str, layout: Layout) -> None:
    """Rows of padding are not in what it makes."""
    d = NARROW[family]
    hf = hf_arrays(d, BF16)
    there, back = recipe_names(d)
    jax = converted(there, hf, params(d, layout, False))
    given = params(d, layout, True)
    found, inversion = there_and_back(back.read_text(), jax, overrides=given)
    padded = jax["params/token_embedder/embedding"].shape[0] > d.vocab
    cut = {f"no output holds all of it: [{d.vocab}:{layout.vocab_size_padded}]"} if padded else set()
    tables = {"params/token_embedder/embedding", "params/decoder/logits_dense/kernel"} & set(jax)
    assert set(reasons(inversion)) == (tables if padded else set())
    assert {why.replace(":, ", "") for why in reasons(inversion).values()} == cut
    packaged = converted(there, converted(back, jax, given), params(d, layout, False))
    assert_same(found, {key: array for key, array in packaged.items() if key not in reasons(inversion)})


def test_sums_of_gemma_do_not_come_back() -> None:
    d = replace(NARROW["gemma2"], layers=2)
    hf, layout = hf_arrays(d, BF16), Layout()
    found, inversion = there_and_back(recipe_names(d)[0].read_text(), hf, overrides=params(d, layout, False))
    assert set(reasons(inversion).values()) == {"`+ 1` rounds"}
    assert set(reasons(inversion)) == {key for key in hf if "norm" in key}
    assert_same(found, {key: array for key, array in hf.items() if "norm" not in key})
    assert set(jax_arrays(d, layout, hf)) == {
        one for formation in inversion.findings.formations for one in formation.sources
    } | set(inversion.findings.dropped)


LAYERED = {
    f"{tree}/layers_{i}/{leaf}": described
    for tree in ("params", "opt_state/0/mu/params")
    for i in range(12)
    for leaf, described in {"kernel": "bfloat16[4,6]", "bias": "float32[6]"}.items()
} | {"step": "int32[]"}


@pytest.mark.parametrize("axis", [0, 1])
def test_of_stacking_and_of_taking_apart(axis: int) -> None:
    arrays = random_arrays(LAYERED)
    given = [f"axis={axis}"]
    back, inversion = there_and_back(text_of("stack-layers"), arrays, overrides=given)
    assert reasons(inversion) == {}
    assert_same(back, arrays)
    stacked = converted(RECIPES / "stack-layers.yaml", arrays, given)
    again, inversion = there_and_back(text_of("unstack-layers"), stacked, overrides=given)
    assert reasons(inversion) == {}
    assert_same(again, stacked)


SIZE = Size()
VERSIONS = [("1.0", "shared"), ("1.1", "shared"), ("1.1", "per layer")]


@pytest.mark.parametrize(("version", "biases"), VERSIONS)
def test_of_t5_to_t5x(version: Any, biases: Any) -> None:
    variables = t5_layouts.mesh_variables(t5_layouts.t5(SIZE, version, biases), "factored")
    arrays = filled(variables) | {"global_step": np.array(7, np.int64)}
    back, inversion = there_and_back(text_of("t5-to-t5x"), arrays)
    assert reasons(inversion) == {"global_step": "keeps int32 of its int64"}
    assert_same(back, {key: array for key, array in arrays.items() if key != "global_step"})
    assert any("/m" in key for key in inversion.findings.dropped), "slots that the recipe added"


@pytest.mark.parametrize(("version", "biases"), VERSIONS)
def test_of_t5x_to_transformers_and_back(version: Any, biases: Any) -> None:
    state = filled(t5_layouts.inference_state(t5_layouts.t5(SIZE, version, biases)))
    back, inversion = there_and_back(text_of("t5x-hf-t5"), state)
    assert set(reasons(inversion).values()) == {"dropped by rules[0]"}
    lost = set(reasons(inversion))
    assert lost == {key for key in state if key.startswith("state/")}
    assert_same(back, {key: array for key, array in state.items() if key not in lost})
    weights = converted(RECIPES / "t5x-hf-t5.yaml", state, [])
    again, inversion = there_and_back(text_of("hf-t5-to-t5x"), weights)
    assert reasons(inversion) == {}
    assert_same(again, weights)


@pytest.mark.parametrize(
    ("case", "name", "model_type"),
    [
        ("gpt2", "GPT2LMHeadModel", "gpt2"),
        ("vit", "ViTForImageClassification", "vit"),
        ("opt", "OPTForCausalLM", "opt"),
    ],
)
def test_of_transformers_to_its_flax_classes(case: str, name: str, model_type: str) -> None:
    arrays = weights(recorded(case, name)["weights"])
    given = ["tied=false", f"model_type={model_type}"]
    back, inversion = there_and_back(text_of("hf-to-flax"), arrays, overrides=given)
    assert reasons(inversion) == {}
    assert_same(back, arrays)
    tree = converted(RECIPES / "hf-to-flax.yaml", arrays, given)
    again, inversion = there_and_back(text_of("flax-to-hf"), tree)
    assert reasons(inversion) == {}
    assert_same(again, tree)


LINEN = {
    **{f"params/blocks_{i}/up/{leaf}": "float32[4]" for i in range(2) for leaf in ("kernel", "bias")},
    "params/embed/embedding": "bfloat16[5,8]",
    "batch_stats/norm/mean": "float32[8]",
}
NNX = {
    **{f"blocks/{i}/up/{leaf}/value": "float32[4]" for i in range(2) for leaf in ("kernel", "bias")},
    "embed/embedding/value": "bfloat16[5,8]",
    "norm/mean/value": "float32[8]",
}


@pytest.mark.parametrize(
    ("name", "source", "target"), [("linen-to-nnx", LINEN, NNX), ("nnx-to-linen", NNX, LINEN)]
)
def test_of_linen_and_nnx(name: str, source: Mapping[str, str], target: Mapping[str, str]) -> None:
    arrays = random_arrays(source)
    assert {s.leaf.key.text for s in plan_of(text_of(name), described(arrays), target=target).steps} == set(
        target
    )
    back, inversion = there_and_back(text_of(name), arrays, target=target)
    assert reasons(inversion) == {}
    assert_same(back, arrays)
    assert not inversion.findings.dropped


def test_of_casting_to_a_wider_type() -> None:
    arrays = {"a": np.arange(6, dtype=np.float16), "b": np.arange(4)}
    back, inversion = there_and_back(text_of("cast"), arrays, overrides=["dtype=float32"])
    assert reasons(inversion) == {}
    assert_same(back, arrays)
