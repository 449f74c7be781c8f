"""What other projects' own converters make of a model is what the recipes make of it, bit for bit.

MaxText 0.2.5, google-tunix 0.1.7 and KerasHub 0.32.0. Their results are stored: `peers/` and
`make_peer_outputs` made them.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckpt_surgery import apply, convert
from tests.recipes.decoder_layouts import GEMMA, NARROW, Decoder, Layout, hf_config, sizes
from tests.recipes.families import BF16, F32, FAMILIES, FULL_WIDTH, converted, shapes_of
from tests.recipes.leaves import Arrays, hf_arrays, hf_shapes, jax_arrays, listed, said
from tests.recipes.peers.kerashub_names import LAYER, kerashub_names
from tests.recipes.peers.models import CASES, OF_KERASHUB, Case, arrays, save
from tests.recipes.running import fails, planned
from tests.support.comparing import assert_same
from tests.support.slow import slow

PEERS = Path(__file__).parents[1] / "data" / "peers"
OF_TUNIX = [case for case in CASES if case.tunix]


@cache
def stored(name: str) -> Mapping[str, np.ndarray]:
    """All arrays of a file; of bfloat16 in a file of NumPy's, the bits."""
    if not name.endswith(".npz"):
        return load_file(PEERS / name)
    with np.load(PEERS / name) as file:
        return {key: file[key] for key in file.files}


def part(arrays: Mapping[str, np.ndarray], prefix: str) -> Arrays:
    """The arrays whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def ours(case: Case, layout: str, tmp_path: Path) -> tuple[Arrays, Arrays]:
    """What `convert --to` makes, from files with a config beside them, and what comes back."""
    save(case, tmp_path / "hf")
    made, back = tmp_path / "out.safetensors", tmp_path / "back.safetensors"
    convert(tmp_path / "hf", made, to=layout, set={"scan": case.scan})
    convert(made, back, to="hf")
    return load_file(made), load_file(back)


@pytest.mark.each
@pytest.mark.parametrize(
    "case",
    [case if case.dtype == F32 else slow(case) for case in CASES],
    ids=lambda case: case.name,
)
def test_maxtext(case: Case, tmp_path: Path) -> None:
    """What is computed comes back as near as the dtype has it."""
    made, back = ours(case, "maxtext", tmp_path)
    theirs = part(stored("maxtext.safetensors"), f"{case.name}/")
    assert_same(made, {f"params/{key}": array.astype(case.dtype) for key, array in theirs.items()})
    hf = arrays(case)
    rtol, atol = (2e-6, 2e-7) if case.dtype == F32 else (0.02, 0.02)
    assert sorted(back) == sorted(hf)
    for key, array in hf.items():
        if case.decoder.family == "gemma2" or (not case.name.startswith("qwen") and "q_proj" in key):
            np.testing.assert_allclose(back[key].astype(F32), array.astype(F32), rtol, atol)
        else:
            assert back[key].tobytes() == array.tobytes(), key


@pytest.mark.parametrize("case", OF_TUNIX, ids=lambda case: case.name)
def test_tunix(case: Case, tmp_path: Path) -> None:
    made, back = ours(case, "tunix", tmp_path)
    assert_same(made, part(stored("tunix.safetensors"), f"{case.name}/"))
    assert_same(back, arrays(case))


def test_both_loaded_all_of_ours() -> None:
    """And their models have the logits of transformers, but for MaxText's Gemma 2, which differs a little."""
    maxtext, tunix = (json.loads((PEERS / f"{name}.json").read_text()) for name in ("maxtext", "tunix"))
    assert maxtext.pop("versions")["maxtext"] == "0.2.5"
    assert tunix.pop("versions")["google-tunix"] == "0.1.7"
    assert sorted(maxtext) == sorted(case.name for case in CASES)
    assert sorted(tunix) == sorted(case.name for case in OF_TUNIX)
    for told in (maxtext, tunix):
        for name, found in told.items():
            assert found["leaves"] == found["same"] == found.get("loaded", found.get("restored")), name
            limit = 2e-3 if told is maxtext and name == "gemma2" else 5e-6
            assert found.get("logits", 0.0) < limit, name


@pytest.mark.parametrize(
    ("family", "layout", "layers"),
    [("gemma3", "maxtext", 14), ("gpt_oss", "maxtext", 4), ("gemma3", "tunix", 14)],
)
def test_gemma3_and_gpt_oss(family: str, layout: str, layers: int) -> None:
    """MaxText's mapping goes both ways; what tunix loads comes back as it was."""
    bits = {key: array.view(BF16) for key, array in stored(f"{family}.npz").items()}
    given = [f"layout={layout}", f"num_layers={layers}"]
    given += ["model_type=gemma3_text"] if family == "gemma3" else []
    there, back = FAMILIES[family].recipes
    hf, theirs = part(bits, "hf/"), part(bits, f"{layout}/")
    assert_same(converted(there, hf, given), theirs)
    assert_same(converted(back, theirs, given), hf if layout == "tunix" else part(bits, "back/"))


# --- KerasHub -----------------------------------------------------------------------------------------

LAYERS = OF_KERASHUB.decoder.layers


@pytest.mark.parametrize("scan", [False, True])
def test_kerashub(tmp_path: Path, scan: bool) -> None:
    """The variables of its backbone, under the keys of ours, or stacked."""
    variables = part(stored("kerashub-mixtral.npz"), "weights/")
    assert len(variables) == 3 + LAYERS * len(LAYER)
    theirs = {ours: variables[path] for ours, path in kerashub_names(LAYERS).items()}
    if scan:
        outside = {key: array for key, array in theirs.items() if "/layers_" not in key}
        stacks = {
            name: [theirs[f"params/decoder/layers_{i}/{name}"] for i in range(LAYERS)] for name in LAYER
        }
        theirs = outside | {f"params/decoder/layers/{name}": np.stack(one) for name, one in stacks.items()}
    save(OF_KERASHUB, tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "out.safetensors", to="jax", set={"scan": scan})
    assert_same(load_file(tmp_path / "out.safetensors"), theirs)


def test_kerashubs_model_computes_the_same_with_our_leaves() -> None:
    told, outputs = json.loads((PEERS / "kerashub.json").read_text()), stored("kerashub-mixtral.npz")
    assert told["versions"]["keras-hub"] == "0.32.0"
    assert told["leaves"] == told["loaded"] == told["same"] == 3 + LAYERS * len(LAYER)
    for output, width in (("hidden", OF_KERASHUB.decoder.embed), ("logits", OF_KERASHUB.decoder.vocab)):
        found, wanted = outputs[f"kerashub/{output}"], outputs[f"transformers/{output}"]
        assert found.shape == wanted.shape == (*outputs["tokens"].shape, width)
        assert np.abs(found - wanted).max() / np.abs(wanted).max() < 5e-6, output


# --- MaxText's layout, and that of tunix --------------------------------------------------------------


@pytest.mark.parametrize("at", ["rope_scaling", "rope_parameters"])
def test_pairs_of_llama_are_neighbours_where_its_rope_type_is_llama3(tmp_path: Path, at: str) -> None:
    """As the class of MaxText that has the scaled frequencies of Llama 3.1 wants them."""
    d = replace(NARROW["llama3"], layers=2)
    hf, config = hf_arrays(d, F32), hf_config(d) | {at: {"rope_type": "llama3", "factor": 8.0}}
    (tmp_path / "hf").mkdir()
    save_file(hf, tmp_path / "hf" / "model.safetensors")
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    apply("@hf-llama3-to-jax", tmp_path / "hf", dst=tmp_path / "jax.safetensors", set=["layout=maxtext"])
    wanted = jax_arrays(d, Layout(layer_axis=1, rope="interleaved", fold_query_scale=True), hf)
    assert_same(load_file(tmp_path / "jax.safetensors"), {f"params/{key}": a for key, a in wanted.items()})
    apply("@jax-to-hf-llama3", tmp_path / "jax.safetensors", dst=tmp_path / "back.safetensors")
    back = load_file(tmp_path / "back.safetensors")
    assert_same(
        {k: a for k, a in back.items() if "q_proj" not in k},
        {k: a for k, a in hf.items() if "q_proj" not in k},
    )


def test_the_vocabulary_of_gemma_is_padded_as_in_maxtext() -> None:
    d = replace(GEMMA, layers=2)
    there, back = FAMILIES["gemma2"].recipes
    given: dict[str, Any] = {"overrides": ["layout=maxtext"], "memory": FULL_WIDTH, "config": hf_config(d)}
    plan = planned(there, listed(hf_shapes(d)), **given)
    assert shapes_of(plan)["params/params/token_embedder/embedding"] == (256128, 2304)
    assert shapes_of(planned(back, listed(shapes_of(plan)), **given)) == hf_shapes(d)


def tunix(d: Decoder, back: bool = False, **more: object) -> list[str]:
    family = {"family": d.family} if back and d.experts else {}
    return said(sizes(d) | {"layout": "tunix"} | family | more)


@pytest.mark.parametrize("family", [family for family in NARROW if family != "mixtral"])
@pytest.mark.parametrize("back", [False, True])
def test_no_layer_of_tunix_may_be_missing(family: str, back: bool) -> None:
    d, recipes = NARROW[family], FAMILIES[family].recipes
    shapes = hf_shapes(d)
    if back:
        there = converted(recipes[0], hf_arrays(d, BF16), tunix(d))
        shapes = {key: array.shape for key, array in there.items()}
    del shapes[next(key for key in shapes if "mlp" in key and "down_proj" in key)]
    says = "layers are missing|no leaf is at place"
    fails(says, lambda: planned(recipes[back], listed(shapes), overrides=tunix(d, back)))


def test_what_tunix_has_not() -> None:
    """Pairs are halves, and heads of queries, keys and values are joined where there are as many of each."""
    d = NARROW["llama3"]
    given = {"overrides": tunix(d, rope="interleaved")}
    fails(
        "tunix has its own: leave out rope",
        lambda: planned("hf-llama3-to-jax", listed(hf_shapes(d)), **given),
    )
    f = FAMILIES["gemma3"]
    alike = replace(NARROW["gemma3"], layers=7, kv_heads=4)
    told, config = listed(hf_shapes(alike)), f.config(alike)
    fails(
        "tunix joins queries, keys and values",
        lambda: planned(f.recipes[0], told, overrides=["layout=tunix"], config=config),
    )
