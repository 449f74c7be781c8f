"""The inverse of a packaged recipe does what the packaged way back does, bit for bit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.inference.undoing.inverting import Inversion
from tests.inference.going_back import random_arrays, reasons, there_and_back
from tests.recipes import t5_layouts
from tests.recipes.decoder_layouts import NARROW, Layout
from tests.recipes.families import BF16, FAMILIES, converted
from tests.recipes.flax_weights import weights
from tests.recipes.leaves import Arrays, hf_arrays, jax_arrays
from tests.recipes.running import text_of
from tests.recipes.t5_layouts import Size
from tests.recipes.test_flax_classes import recorded
from tests.recipes.test_layouts import EXACT, back, there
from tests.recipes.test_t5 import filled
from tests.support.comparing import assert_same
from tests.support.slow import slow, some

OTHERS = [
    (name, FAMILIES[name].small, FAMILIES[name].layout(**given))
    for name in ("deepseek_v3", "llama4")
    for given in ({}, {"scan": False, "rope": "half"})
]


def comes_back(
    recipe: str, arrays: Arrays, given: Sequence[str] = (), lost: Mapping[str, str] | None = None
) -> Inversion:
    """The inverse makes all of the arrays again, but for those that are lost, each for its reason."""
    found, inversion = there_and_back(text_of(recipe), arrays, overrides=given)
    assert reasons(inversion) == (lost or {})
    assert_same(found, {key: array for key, array in arrays.items() if key not in (lost or {})})
    return inversion


@pytest.mark.parametrize(
    ("family", "d", "layout"), [*some([(name, NARROW[name], layout) for name, layout in EXACT]), *OTHERS]
)
def test_of_the_way_to_jax(family: str, d: Any, layout: Any) -> None:
    """Which test_layouts.py has of the packaged way back, too."""
    f = FAMILIES[family]
    comes_back(f.recipes[0], hf_arrays(d, BF16), f.params(layout, False, d))


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
        slow(("gemma3", Layout())),
        slow(("gemma3", Layout("maxtext"))),
        slow(("gemma3", Layout(norm_plus_one=False, rope="interleaved"))),
    ],
    ids=str,
)
def test_sums_of_gemma_do_not_come_back(family: str, layout: Any) -> None:
    f = FAMILIES[family]
    d = f.small if family == "gemma3" else replace(NARROW["gemma2"], layers=2)
    hf = hf_arrays(d, BF16)
    given = f.params(layout, False, d)
    found, inversion = there_and_back(text_of(f.recipes[0]), hf, overrides=given)
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
    arrays, given = random_arrays(LAYERED), [f"axis={axis}"]
    comes_back("stack-layers", arrays, given)
    comes_back("unstack-layers", converted("stack-layers", arrays, given), given)


@pytest.mark.parametrize(("version", "biases"), [("1.0", "shared"), ("1.1", "shared"), ("1.1", "per layer")])
def test_of_t5(version: Any, biases: Any) -> None:
    parameters = t5_layouts.t5(Size(), version, biases)
    variables = filled(t5_layouts.mesh_variables(parameters, "factored"))
    variables["global_step"] = np.array(7, np.int64)
    inversion = comes_back("t5-to-t5x", variables, lost={"global_step": "keeps int32 of its int64"})
    assert any("/m" in key for key in inversion.findings.dropped), "slots that the recipe added"
    state = filled(t5_layouts.inference_state(parameters))
    dropped = {key: "dropped by rules[0]" for key in state if key.startswith("state/")}
    comes_back("t5x-hf-t5", state, lost=dropped)
    comes_back("hf-t5-to-t5x", converted("t5x-hf-t5", state, []))


@pytest.mark.parametrize(
    ("case", "name"), [("gpt2", "GPT2LMHeadModel"), ("vit", "ViTForImageClassification")]
)
def test_of_transformers_to_its_flax_classes(case: str, name: str) -> None:
    arrays, given = weights(recorded(case, name)["weights"]), ["tied=false", f"model_type={case}"]
    comes_back("hf-to-flax", arrays, given)
    comes_back("flax-to-hf", converted("hf-to-flax", arrays, given))
