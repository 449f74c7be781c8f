"""The recipes between Hugging Face's layouts and those of JAX decoders.

Planned at full width from the names and shapes of published models; run at a narrow width against a
conversion in NumPy that is written in `leaves`.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import PlanError
from ckpt_surgery.functions.arrays import reads
from tests.recipes import deepseek_layouts as deepseek
from tests.recipes import gpt_oss_layout as gpt_oss
from tests.recipes import llama4_layouts as llama4
from tests.recipes.decoder_layouts import GEMMA, LLAMA, MIXTRAL, NARROW, QWEN, QWEN2, Layout
from tests.recipes.deepseek_layouts import NARROW_V2, V3
from tests.recipes.families import BF16, DECODERS, F32, FAMILIES, FULL_WIDTH, Family, converted, shapes_of
from tests.recipes.gpt_oss_layout import OSS_20B
from tests.recipes.keytables import keytable
from tests.recipes.leaves import Shapes, Sizes, computed, hf_arrays, hf_shapes, jax_arrays, jax_shapes, listed
from tests.recipes.llama4_layouts import SCOUT
from tests.recipes.running import planned
from tests.support.comparing import assert_same
from tests.support.slow import slow

# --- full width ---------------------------------------------------------------------------------------


def published(name: str) -> Shapes:
    return {key: shape for key, (_, shape) in keytable(name).tensors.items()}


NO_CONFIG = "there is no config.json"
DEFAULTS = [
    # family, model, its published names and shapes, what has to be set, what the plan relied on
    ("llama3", LLAMA, published("llama3.1-8b"), [], "num_heads=32, num_kv_heads=8"),
    ("gemma2", GEMMA, published("gemma2-2b"), [], "num_heads=8, num_kv_heads=4"),
    ("qwen3", QWEN, published("qwen3-0.6b"), ["tied=true"], "num_heads=16, num_kv_heads=8"),
    ("qwen2", QWEN2, hf_shapes(QWEN2), [], "num_heads=28, num_kv_heads=4"),
    ("mixtral", MIXTRAL, hf_shapes(MIXTRAL), [], "num_heads=32, num_kv_heads=8"),
    slow(("gpt_oss", OSS_20B, hf_shapes(OSS_20B), [], "model_type=gpt_oss, num_layers=24, tied=false")),
    (
        *("llama4", SCOUT, hf_shapes(SCOUT), []),
        "num_layers=48, num_heads=40, num_kv_heads=8, num_experts=16, moe_step=1, tied=false",
    ),
    (
        *("deepseek_v3", replace(V3, layers=5, experts=2), hf_shapes(replace(V3, layers=5, experts=2))),
        ["num_layers=5", "num_experts=2"],
        "model_type=deepseek_v3, first_dense=3, num_heads=128, qk_rope_head_dim=64, tied=false",
    ),
]


@pytest.mark.parametrize(("family", "d", "table", "given", "told"), DEFAULTS)
def test_the_defaults_are_those_of_a_published_model(
    family: str, d: Sizes, table: Shapes, given: list[str], told: str
) -> None:
    """Where there is no config, the plan says which of them it relied on."""
    there, back = FAMILIES[family].recipes
    plan = planned(there, listed(table), overrides=given, memory=FULL_WIDTH)
    assert shapes_of(plan) == jax_shapes(d, d.LAYOUT)
    assert plan.dropped == ()
    (warning,) = plan.warnings
    assert warning.startswith("by default ")
    assert warning.endswith(f"({NO_CONFIG})")
    assert told in warning
    if family in DECODERS:
        again = planned(back, listed(shapes_of(plan)), overrides=given, memory=FULL_WIDTH)
        assert shapes_of(again) == table
        assert again.dropped == ()
        (warning,) = again.warnings
        assert "layer_axis=0, rope=half" in warning


def test_the_names_that_the_tests_make_are_the_published_ones() -> None:
    for d, table in ((LLAMA, "llama3.1-8b"), (GEMMA, "gemma2-2b"), (QWEN, "qwen3-0.6b")):
        assert hf_shapes(d) == published(table)
    parts = ("_scale_inv", "model.layers.61.")
    plain = {k: shape for k, shape in published("deepseek-v3").items() if not any(p in k for p in parts)}
    assert hf_shapes(V3) == plain
    assert len(plain) == 45_395


# --- narrow, with values ------------------------------------------------------------------------------

EXACT = [
    ("llama3", Layout()),
    ("llama3", Layout(scan=False)),
    ("llama3", Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    ("llama3", Layout(scan=False, rope="interleaved", vocab_size_padded=33)),
    ("gemma2", Layout(norm_plus_one=False)),
    ("gemma2", Layout(norm_plus_one=False, scan=False, rope="interleaved")),
    ("gemma2", Layout(norm_plus_one=False, layer_axis=1, vocab_size_padded=64)),
    ("qwen2", Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    ("qwen2", Layout(scan=False)),
    ("qwen3", Layout(scan=False, vocab_size_padded=64)),
    ("qwen3", Layout(layer_axis=1, rope="interleaved")),
    ("mixtral", Layout()),
    ("mixtral", Layout(scan=False, rope="interleaved")),
    ("qwen3_moe", Layout(layer_axis=1, rope="interleaved", moe_block="moe_block", vocab_size_padded=48)),
    ("qwen3_moe", Layout(scan=False)),
]
"""Layouts without arithmetic."""
EXACT_TOO: list[tuple[str, Any]] = [
    ("gemma3", Layout(norm_plus_one=False)),
    ("gemma3", Layout(norm_plus_one=False, layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    slow(("gemma3", Layout(norm_plus_one=False, scan=False, rope="interleaved"))),
    ("gpt_oss", gpt_oss.Layout()),
    ("gpt_oss", gpt_oss.Layout(layer_axis=1, rope="interleaved", vocab_size_padded=40)),
    ("gpt_oss", gpt_oss.Layout("maxtext")),
    slow(("gpt_oss", gpt_oss.Layout(scan=False, rope="interleaved"))),
    slow(("gpt_oss", gpt_oss.Layout("maxtext", scan=False, vocab_size_padded=40))),
    *(
        (family, FAMILIES[name].layout(**given))
        for family, name in (
            ("deepseek_v3", "deepseek_v3"),
            ("deepseek_v2", "deepseek_v3"),
            ("llama4", "llama4"),
        )
        for given in (
            {"scan": False, "rope": "half"},
            {"layout": "maxtext", "vocab_size_padded": 48},
            {"layout": "maxtext", "scan": False, "vocab_size_padded": 33},
        )
    ),
    ("gemma3, whole blocks", Layout(norm_plus_one=False)),
    ("kimi_k2", FAMILIES["deepseek_v3"].layout(layout="maxtext")),
    *(("llama4", llama4.Layout(**given)) for given in ({}, {"layer_axis": 1, "rope": "half"})),
    *(slow(("scout", llama4.Layout(**given))) for given in ({}, {"layout": "maxtext"}, {"scan": False})),
    *(
        slow(("deepseek_v3", FAMILIES["deepseek_v3"].layout(**given)))
        for given in ({}, {"layer_axis": 1, "rope": "half"})
    ),
]
ROUNDED: list[tuple[str, Any]] = [
    ("llama3", Layout(layer_axis=1, rope="interleaved", fold_query_scale=True)),
    ("gemma2", Layout()),
    ("gemma2", Layout(scan=False, scale_embedding=True, fold_query_scale=True, vocab_size_padded=40)),
    ("mixtral", Layout(fold_query_scale=True)),
    ("gemma3", Layout(scan=False, rope="interleaved", scale_embedding=True, vocab_size_padded=40)),
    ("gemma3", Layout("maxtext")),
    slow(("gemma3", Layout())),
    slow(("gemma3", Layout("maxtext", scan=False, vocab_size_padded=40))),
]
"""Layouts whose values are computed: from float32, rounded once."""
VARIANTS: Mapping[str, tuple[str, Sizes]] = {
    "deepseek_v2": ("deepseek_v3", NARROW_V2),
    "gemma3, whole blocks": ("gemma3", replace(NARROW["gemma3"], layers=12)),
    "kimi_k2": ("deepseek_v3", replace(FAMILIES["deepseek_v3"].small, family="kimi_k2", dense=1)),
    "scout": ("llama4", llama4.NARROW_SCOUT),
}
"""Other models of a family."""


def there(
    f: Family, d: Sizes, layout: Any, arrays: Mapping[str, np.ndarray], *more: str
) -> dict[str, np.ndarray]:
    return converted(f.recipes[0], arrays, [*f.params(layout, False, d), *more])


def back(
    f: Family, d: Sizes, layout: Any, arrays: Mapping[str, np.ndarray], *more: str
) -> dict[str, np.ndarray]:
    return converted(f.recipes[1], arrays, [*f.params(layout, True, d), *more])


def computes(family: str, layout: Any) -> bool:
    told = asdict(layout)
    plus_one = told.get("norm_plus_one") and family.startswith("gemma")
    return bool(plus_one or told.get("scale_embedding") or told.get("fold_query_scale"))


@pytest.mark.parametrize("dtype", [BF16, slow(F32)], ids=str)
@pytest.mark.parametrize(("family", "layout"), [*EXACT, *EXACT_TOO, *ROUNDED], ids=str)
def test_values_are_those_of_a_conversion_in_numpy_and_come_back(
    family: str, layout: Any, dtype: np.dtype
) -> None:
    """What is exact comes back to the bit."""
    name, d = VARIANTS.get(family, (family, None))
    f = FAMILIES[name]
    d = d or (f.small if family == "gpt_oss" and layout != gpt_oss.Layout() else f.narrow)
    hf = hf_arrays(d, dtype)
    found = there(f, d, layout, hf)
    assert_same(found, jax_arrays(d, layout, hf))
    assert {key: array.shape for key, array in found.items()} == jax_shapes(d, layout)
    if not computes(family, layout):
        assert_same(back(f, d, layout, found), hf)


@pytest.mark.parametrize(
    ("family", "layout"),
    [
        ("gemma2", Layout(scale_embedding=True, fold_query_scale=True)),
        ("gemma3", Layout("maxtext")),
    ],
    ids=str,
)
def test_what_is_computed_is_undone_by_computing(family: str, layout: Any) -> None:
    """Not to the bit: `1 + w` loses the last bits of a small `w`. What is left is what NumPy has left."""
    f = FAMILIES[family]
    d: Any = f.narrow
    hf = hf_arrays(d, BF16)
    one, root = np.float32(1), d.embedding_root
    wanted = {}
    for key, w in hf.items():
        if "norm" in key:
            wanted[key] = computed(computed(w, lambda wide: wide + one), lambda wide: wide - one)
        elif "embed" in key:
            wanted[key] = computed(computed(w, lambda wide: wide * root), lambda wide: wide / root)
        else:  # queries of Gemma 2 are folded with 1/16, which is exact and comes undone exactly
            wanted[key] = w
    assert_same(back(f, d, layout, jax_arrays(d, layout, hf)), wanted)
    assert any(wanted[key].tobytes() != hf[key].tobytes() for key in hf)


def test_the_query_scale_is_undone_by_its_inverse() -> None:
    f, d, layout = FAMILIES["llama3"], NARROW["llama3"], Layout(fold_query_scale=True)
    hf = hf_arrays(d, F32)
    found = back(f, d, layout, jax_arrays(d, layout, hf))
    queries = [key for key in hf if "q_proj" in key]
    for key in queries:
        np.testing.assert_allclose(found.pop(key), hf.pop(key), rtol=2e-7)
    assert_same(found, hf)


@pytest.mark.parametrize("family", ["llama3", "gpt_oss"])
def test_tied_embeddings(family: str) -> None:
    f = FAMILIES[family]
    hf, layout = hf_arrays(f.small, F32), f.layout()
    hf["lm_head.weight"] = hf["model.embed_tokens.weight"]
    with_copy = there(f, f.small, layout, hf, "tied=true")
    del hf["lm_head.weight"]
    found = there(f, f.small, layout, hf, "tied=true")
    assert_same(with_copy, found)
    assert "params/decoder/logits_dense/kernel" not in found
    assert_same(back(f, f.small, layout, found, "tied=true"), hf)


def test_buffers_of_older_files_are_dropped() -> None:
    f, d = FAMILIES["llama3"], NARROW["llama3"]
    hf = hf_arrays(d, F32)
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(3) for i in range(d.layers)}
    assert_same(there(f, d, Layout(), hf | buffers), jax_arrays(d, Layout(), hf))


# --- what the config and the plan say -----------------------------------------------------------------


def test_another_name_of_the_same_model() -> None:
    d = NARROW["llama3"]
    f = FAMILIES["llama3"]
    config = f.config(model_type="yi")
    plan = planned(f.recipes[0], listed(hf_shapes(d)), overrides=["model_type=llama"], config=config)
    assert shapes_of(plan) == jax_shapes(d, Layout())


def test_heads_that_the_weights_do_not_tell_are_in_the_plan() -> None:
    """Without a config, 2 heads of 12 look like 4 of 6: the plan says what it relied on, set or not."""
    wrong = ["num_heads=2", "num_kv_heads=1", "num_layers=11"]
    plan = planned("hf-llama3-to-jax", listed(hf_shapes(NARROW["llama3"])), overrides=wrong)
    assert plan.warnings == (f"by default model_type=llama, tied=false ({NO_CONFIG})",)
    told = {value.name: str(value.origin) for value in plan.params}
    assert (told["num_heads"], told["num_kv_heads"], told["model_type"]) == ("set", "set", "default")
    given = [*wrong[:2], "num_layers=3"]  # the norms of queries have the length of a head
    with pytest.raises(PlanError, match="24 rows are not those of num_heads=2"):
        planned("hf-qwen3-to-jax", listed(hf_shapes(NARROW["qwen3"])), overrides=given)


@pytest.mark.parametrize("family", ["llama3", "qwen3", "mixtral", "qwen3_moe"])
def test_no_lm_head_is_dropped_unless_embeddings_are_said_to_be_tied(family: str) -> None:
    f, d = FAMILIES[family], replace(NARROW[family], tied=False)
    given = [text for text in f.params(Layout(), False, d) if not text.startswith("tied")]
    plan = planned(f.recipes[0], listed(hf_shapes(d)), overrides=given)
    assert "params/decoder/logits_dense/kernel" in shapes_of(plan)
    plan = planned(f.recipes[0], listed(hf_shapes(d)), config=f.config(d, tie_word_embeddings=True))
    [table] = [step for step in plan.steps if step.leaf.key.text == "params/token_embedder/embedding"]
    compared = {read.leaf.key.text for read in reads(table.value)}
    assert compared == {"model.embed_tokens.weight", "lm_head.weight"}
    assert plan.dropped == ()


def test_rows_that_are_cut_are_told() -> None:
    d, layout = NARROW["llama3"], Layout(vocab_size_padded=40)
    plan = planned(
        "jax-to-hf-llama3", listed(jax_shapes(d, layout)), overrides=FAMILIES["llama3"].params(layout, True)
    )
    assert [warning for warning in sorted(plan.warnings) if "by default" not in warning] == [
        "70 of 400 elements of `params/decoder/logits_dense/kernel` are used by no output: [0:10, 33:40]",
        "70 of 400 elements of `params/token_embedder/embedding` are used by no output: [33:40, 0:10]",
    ]


def test_how_configs_of_gemma3_list_their_layers() -> None:
    """As older versions of the library write the config, and as newer ones do."""
    f, local = FAMILIES["gemma3"], ["sliding_attention"] * 5
    for said in ({"sliding_window_pattern": 6}, {"layer_types": [*local, "full_attention", *local[:1]]}):
        plan = planned(f.recipes[0], listed(hf_shapes(f.small)), config=f.config(**said))
        assert shapes_of(plan) == jax_shapes(f.small, Layout())


def test_layers_that_cannot_be_scanned_can_be_one_by_one() -> None:
    """Of Gemma 3, fewer than a block; of Llama 4, those whose pattern does not repeat."""
    f = FAMILIES["gemma3"]
    d = replace(f.small, layers=5)
    told, config = listed(hf_shapes(d)), f.config(d)
    with pytest.raises(PlanError, match="six layers are a block, and there are fewer: --set scan=false"):
        planned(f.recipes[0], told, config=config)
    plan = planned(f.recipes[0], told, config=config, overrides=["scan=false"])
    assert shapes_of(plan) == jax_shapes(d, Layout(scan=False))
    f = FAMILIES["llama4"]
    config = f.config()
    config["text_config"]["no_rope_layers"][-1] = 1
    plan = planned(f.recipes[0], listed(hf_shapes(f.small)), overrides=["scan=false"], config=config)
    assert shapes_of(plan) == jax_shapes(f.small, llama4.Layout(scan=False))


# --- models that see images ---------------------------------------------------------------------------


def test_the_root_is_that_of_maxtext() -> None:
    """In its conversion, bfloat16 of the root: of 5376, 73.5 in place of 73.32."""
    widths = {1152: 34, 2560: 50.5, 3840: 62, 5376: 73.5}
    assert {n: replace(NARROW["gemma3"], embed=n).embedding_root for n in widths} == widths


@pytest.mark.parametrize("root", ["language_model.model", slow("model.language_model")])
def test_names_of_models_that_see_images(root: str) -> None:
    d, layout = replace(NARROW["gemma3"], root=root), Layout(norm_plus_one=False)
    hf = hf_arrays(d, F32)
    table = hf[f"{root}.embed_tokens.weight"]
    extra = {"lm_head.weight": table, "model.vision_tower.a": table, "multi_modal_projector.b": table}
    found = there(FAMILIES["gemma3"], d, layout, hf | extra, "vision=drop")
    assert_same(found, jax_arrays(d, layout, hf))
    published = hf_arrays(replace(d, root="language_model.model"), F32)
    assert_same(back(FAMILIES["gemma3"], d, layout, found, "model_type=gemma3"), published)


def test_llama4_comes_back_as_its_text_model() -> None:
    f = FAMILIES["llama4"]
    hf, layout = hf_arrays(f.small, F32), f.layout()
    images = {key: np.zeros(1, np.float32) for key in llama4.IMAGES}
    found = there(f, f.small, layout, hf | images, "vision=drop")
    assert_same(found, jax_arrays(f.small, layout, hf))
    text = back(f, f.small, layout, found, "model_type=llama4_text")
    assert_same(text, {key.removeprefix("language_model."): array for key, array in hf.items()})


def test_rows_for_the_tokens_of_images_that_maxtext_has_not() -> None:
    d = replace(NARROW["gemma3"], layers=6, vocab=262208, embed=2, root="language_model.model")
    hf, layout, key = hf_arrays(d, F32), Layout("maxtext"), "params/params/token_embedder/embedding"
    jax = there(FAMILIES["gemma3"], d, layout, hf)
    assert_same(jax, jax_arrays(d, layout, hf))
    assert jax[key].shape == (262144, 2)
    hf_key = "language_model.model.embed_tokens.weight"
    table = back(FAMILIES["gemma3"], d, layout, jax, "model_type=gemma3")[hf_key]
    assert table.shape == (262208, 2)
    np.testing.assert_allclose(table[:262144], hf[hf_key][:262144], 2e-7)
    assert not table[262144:].any()
    table = there(FAMILIES["gemma3"], d, layout, hf, "vocab_size_padded=262208")[key]
    assert table.shape == (262208, 2)
    assert table[262144:].all()


# --- float8 and MXFP4 ---------------------------------------------------------------------------------

DEEPSEEK, OSS = FAMILIES["deepseek_v3"], FAMILIES["gpt_oss"]


@pytest.mark.parametrize("layout", [deepseek.Layout(), deepseek.Layout("maxtext", scan=False)], ids=str)
@pytest.mark.parametrize("dtype", [BF16, slow(F32)], ids=str)
def test_float8_weights_are_multiplied_by_the_scales_of_their_blocks(
    layout: deepseek.Layout, dtype: np.dtype
) -> None:
    """Matrices of more than one block each way, the last of them cut; and a layer that goes."""
    d = replace(deepseek.NARROW, layers=3, experts=2, embed=130, mlp=257, q_rank=140)
    further = {key: np.ones(shape, F32) for key, shape in deepseek.further_layer(d).items()}
    quantized = deepseek.as_float8(hf_arrays(d, F32) | further)
    hf = {key: w for key, w in deepseek.dequantized(quantized, dtype).items() if key not in further}
    assert hf["model.layers.0.mlp.gate_proj.weight"].dtype == dtype
    assert quantized["model.layers.0.mlp.down_proj.weight_scale_inv"].shape == (2, 3)
    found = there(DEEPSEEK, d, layout, quantized, f"dtype={dtype}")
    assert_same(found, jax_arrays(d, layout, hf))
    assert_same(back(DEEPSEEK, d, layout, found), hf)


@pytest.mark.parametrize("layout", [gpt_oss.Layout(), slow(gpt_oss.Layout("maxtext"))], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_experts_in_mxfp4(layout: gpt_oss.Layout, dtype: np.dtype) -> None:
    hf = gpt_oss.hf_arrays(gpt_oss.PACKED, dtype, quantized=True)
    plain = gpt_oss.unpacked(hf, dtype)
    found = there(OSS, gpt_oss.PACKED, layout, hf, f"dtype={dtype}")
    assert_same(found, jax_arrays(gpt_oss.PACKED, layout, plain))
    assert_same(back(OSS, gpt_oss.PACKED, layout, found), plain)


@pytest.mark.slow("runs models of transformers")
def test_unpacked_experts_are_those_of_the_library() -> None:
    """The numbers that the tests take MXFP4 to mean."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    hf = gpt_oss.hf_arrays(gpt_oss.PACKED, BF16, quantized=True)
    plain = gpt_oss.unpacked(hf, BF16)
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
