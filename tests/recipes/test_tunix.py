"""`layout=tunix`, there and back; test_peers.py compares the way there with tunix's own loaders."""

from dataclasses import replace

import pytest

from tests.recipes import gemma3_layout
from tests.recipes.decoder_layouts import NARROW, Decoder, sizes
from tests.recipes.families import BF16, FAMILIES, converted
from tests.recipes.leaves import hf_arrays, hf_shapes, listed, said
from tests.recipes.running import fails, planned
from tests.support.comparing import assert_same

OF_TUNIX = [family for family in NARROW if family != "mixtral"]


def given(d: Decoder, back: bool = False, **more: object) -> list[str]:
    family = {"family": d.family} if back and d.experts else {}
    return said(sizes(d) | {"layout": "tunix"} | family | more)


@pytest.mark.parametrize("family", OF_TUNIX)
def test_there_and_back_bit_for_bit(family: str) -> None:
    d = NARROW[family]
    hf = hf_arrays(d, BF16)
    if family == "gemma2":
        hf.pop("lm_head.weight", None)
    found = converted(FAMILIES[family].recipes[0], hf, given(d))
    assert_same(converted(FAMILIES[family].recipes[1], found, given(d, back=True)), hf)


@pytest.mark.parametrize("family", OF_TUNIX)
@pytest.mark.parametrize("back", [False, True])
def test_no_layer_may_be_missing(family: str, back: bool) -> None:
    d = NARROW[family]
    shapes = hf_shapes(d)
    if back:
        shapes = {
            k: a.shape
            for k, a in converted(FAMILIES[family].recipes[0], hf_arrays(d, BF16), given(d)).items()
        }
    lost = next(key for key in shapes if "mlp" in key and "down_proj" in key)
    left = {key: shape for key, shape in shapes.items() if key != lost}
    says = "layers are missing|no leaf is at place"
    fails(says, lambda: planned(FAMILIES[family].recipes[back], listed(left), overrides=given(d, back)))


def test_its_pairs_are_halves() -> None:
    d = NARROW["llama3"]
    told, overrides = listed(hf_shapes(d)), given(d, rope="interleaved")
    says = "tunix has its own: leave out rope"
    fails(says, lambda: planned("hf-llama3-to-jax", told, overrides=overrides))


def test_gemma3_there_and_back() -> None:
    """It joins queries with keys and values where there are as many heads of each."""
    f, d = FAMILIES["gemma3"], gemma3_layout.SMALL
    hf, overrides = hf_arrays(d, BF16), ["layout=tunix", f"num_layers={d.layers}"]
    found = converted(f.recipes[0], hf, overrides)
    assert_same(converted(f.recipes[1], found, overrides), hf)
    d = replace(d, kv_heads=d.heads)
    run = lambda: planned(f.recipes[0], listed(hf_shapes(d)), overrides=["layout=tunix"], config=f.config(d))  # noqa: E731
    fails("tunix joins queries, keys and values", run)
