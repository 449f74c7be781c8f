"""Models that see images: their names, and Gemma 3's rows for the tokens of images."""

from dataclasses import replace

import numpy as np
import pytest

from tests.recipes.families import F32, FAMILIES
from tests.recipes.gemma3_layout import (
    GEMMA_1B,
    GEMMA_4B,
    GEMMA_12B,
    GEMMA_27B,
    NARROW,
    Layout,
    embedding_root,
)
from tests.recipes.leaves import hf_arrays, jax_arrays
from tests.recipes.llama4_layouts import IMAGES
from tests.recipes.test_layouts import back, there
from tests.support.comparing import assert_same
from tests.support.slow import slow

F = FAMILIES["gemma3"]


def test_the_root_is_that_of_maxtext() -> None:
    """In its conversion, bfloat16 of the root: of 5376, 73.5 in place of 73.32."""
    assert [embedding_root(d) for d in (GEMMA_1B, GEMMA_4B, GEMMA_12B, GEMMA_27B)] == [34, 50.5, 62, 73.5]


@pytest.mark.parametrize("root", ["language_model.model", slow("model.language_model")])
def test_names_of_models_that_see_images(root: str) -> None:
    d, layout = replace(NARROW, root=root), Layout(norm_plus_one=False)
    hf = hf_arrays(d, F32)
    table = hf[f"{root}.embed_tokens.weight"]
    extra = {"lm_head.weight": table, "model.vision_tower.a": table, "multi_modal_projector.b": table}
    found = there(F, d, layout, hf | extra, "vision=drop")
    assert_same(found, jax_arrays(d, layout, hf))
    published = hf_arrays(replace(d, root="language_model.model"), F32)
    assert_same(back(F, d, layout, found, "model_type=gemma3"), published)


def test_llama4_comes_back_as_its_text_model() -> None:
    f = FAMILIES["llama4"]
    hf, layout = hf_arrays(f.small, F32), f.layout()
    images = {key: np.zeros(1, np.float32) for key in IMAGES}
    found = there(f, f.small, layout, hf | images, "vision=drop")
    assert_same(found, jax_arrays(f.small, layout, hf))
    text = back(f, f.small, layout, found, "model_type=llama4_text")
    assert_same(text, {key.removeprefix("language_model."): array for key, array in hf.items()})


def test_rows_for_the_tokens_of_images_that_maxtext_has_not() -> None:
    d = replace(NARROW, layers=6, vocab=262208, embed=2, root="language_model.model")
    hf, layout, key = hf_arrays(d, F32), Layout("maxtext"), "params/params/token_embedder/embedding"
    jax = there(F, d, layout, hf)
    assert_same(jax, jax_arrays(d, layout, hf))
    assert jax[key].shape == (262144, 2)
    table = back(F, d, layout, jax, "model_type=gemma3")["language_model.model.embed_tokens.weight"]
    assert table.shape == (262208, 2)
    np.testing.assert_allclose(table[:262144], hf["language_model.model.embed_tokens.weight"][:262144], 2e-7)
    assert not table[262144:].any()
    table = there(F, d, layout, hf, "vocab_size_padded=262208")[key]
    assert table.shape == (262208, 2)
    assert table[262144:].all()
