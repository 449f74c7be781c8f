"""The inverse of a packaged recipe does what the packaged way back does, bit for bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.inference.going_back import random_arrays, reasons, there_and_back
from tests.recipes import deepseek_layouts as deepseek
from tests.recipes import gemma3_layout as gemma3
from tests.recipes import llama4_layouts as llama4
from tests.recipes import t5_layouts
from tests.recipes.decoder_layouts import NARROW, Layout
from tests.recipes.families import BF16, FAMILIES, Family, converted
from tests.recipes.flax_weights import weights
from tests.recipes.leaves import hf_arrays, jax_arrays
from tests.recipes.running import text_of
from tests.recipes.t5_layouts import Size
from tests.recipes.test_flax_classes import recorded
from tests.recipes.test_layouts import EXACT, back, there
from tests.recipes.test_t5 import filled
from tests.support.comparing import assert_same
from tests.support.slow import slow, some

OTHERS = [
    ("deepseek_v3", replace(deepseek.NARROW, layers=4, experts=3), deepseek.Layout()),
    ("deepseek_v3", replace(deepseek.NARROW, layers=4, experts=3), deepseek.Layout(scan=False, rope="half")),
    ("llama4", llama4.SMALL, llama4.Layout()),
    ("llama4", llama4.SMALL, llama4.Layout(scan=False, rope="half")),
]


def undone(f: Family, d: Any, layout: Any, hf: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Any]:
    """What the inverse of the way to JAX makes, and the inversion."""
    return there_and_back(text_of(f.recipes[0]), hf, overrides=f.params(layout, False, d))


@pytest.mark.parametrize(
    ("family", "d", "layout"), [*some([(name, NARROW[name], layout) for name, layout in EXACT]), *OTHERS]
)
def test_of_the_way_to_jax(family: str, d: Any, layout: Any) -> None:
    hf = hf_arrays(d, BF16)
    found, inversion = undone(FAMILIES[family], d, layout, hf)
    assert reasons(inversion) == {}
    assert_same(found, hf)  # which test_layouts.py has of the packaged way back, too


@pytest.mark.parametrize(("family", "layout"), some(EXACT))
def test_of_the_way_from_jax(family: str, layout: Layout) -> None:
    """Rows of padding are not in what it makes."""
    f, d = FAMILIES[family], NARROW[family]
    jax = there(f, d, layout, hf_arrays(d, BF16))
    given = f.params(layout, True)
    found, inversion = there_and_back(text_of(f.recipes[1]), jax, overrides=given)
    padded = jax["params/token_embedder/embedding"].shape[0] > d.vocab
    cut = {f"no output holds all of it: [{d.vocab}:{layout.vocab_size_padded}]"} if padded else set()
    tables = {"params/token_embedder/embedding", "params/decoder/logits_dense/kernel"} & set(jax)
    assert set(reasons(inversion)) == (tables if padded else set())
    assert {why.replace(":, ", "") for why in reasons(inversion).values()} == cut
    packaged = there(f, d, layout, back(f, d, layout, jax))
    assert_same(found, {key: array for key, array in packaged.items() if key not in reasons(inversion)})


@pytest.mark.parametrize(
    ("family", "layout"),
    [
        ("gemma2", Layout()),
        slow(("gemma3", gemma3.Layout())),
        slow(("gemma3", gemma3.Layout("maxtext"))),
        slow(("gemma3", gemma3.Layout(norm_plus_one=False, rope="interleaved"))),
    ],
    ids=str,
)
def test_sums_of_gemma_do_not_come_back(family: str, layout: Any) -> None:
    f = FAMILIES[family]
    d = gemma3.SMALL if family == "gemma3" else replace(NARROW["gemma2"], layers=2)
    hf = hf_arrays(d, BF16)
    found, inversion = undone(f, d, layout, hf)
    lost = {key for key in hf if "norm" in key} if layout.norm_plus_one else set()
    assert {reasons(inversion)[key] for key in lost} <= {"`+ 1` rounds"}
    lost |= {"model.embed_tokens.weight"} if layout.layout == "maxtext" else set()
    assert set(reasons(inversion)) == lost
    assert_same(found, {key: array for key, array in hf.items() if key not in lost})
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
    stacked = converted("stack-layers", arrays, given)
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
    weights = converted("t5x-hf-t5", state, [])
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
    tree = converted("hf-to-flax", arrays, given)
    again, inversion = there_and_back(text_of("flax-to-hf"), tree)
    assert reasons(inversion) == {}
    assert_same(again, tree)
