"""The registry names recipes, params, tests and keys that are there."""

import functools

import pytest

from ckpt_surgery.inputs import models
from ckpt_surgery.inputs.models import ModelLayout, known_models
from ckpt_surgery.inputs.request import read_recipe
from ckpt_surgery.language.packaged import packaged_recipes
from tests.support.ci_scripts import ROOT, script

EACH = [pytest.param(one, id=f"{m.title} {one.name}") for m in known_models() for one in m.layouts]


@functools.cache
def params_of(recipe: str) -> set[str]:
    return set(read_recipe(recipe).params)


@pytest.mark.parametrize("layout", EACH)
def test_what_is_named_is_there(layout: ModelLayout) -> None:
    for run in (layout.there, layout.back):
        assert run.recipe.removeprefix("@") in packaged_recipes()
        assert set(run.params) <= params_of(run.recipe)
    assert layout.proofs
    assert [proof for proof in layout.proofs if not (ROOT / "tests/recipes" / proof).is_file()] == []


def test_names_are_told_apart() -> None:
    kinds = [kind for model in known_models() for kind in model.model_types]
    assert len(kinds) == len(set(kinds))
    for model in known_models():
        keys = [model.key, *(layout.key for layout in model.layouts)]
        assert len(keys) == len(set(keys))
        names = [layout.name for layout in model.layouts]
        assert len(names) == len(set(names))


def test_every_recipe_between_hugging_face_and_jax_is_of_a_model() -> None:
    named = {run.recipe for m in known_models() for one in m.layouts for run in (one.there, one.back)}
    decoders = {f"@{name}" for name in packaged_recipes() if "-to-jax" in name or "jax-to-" in name}
    assert decoders <= named


def test_what_to_can_be() -> None:
    assert models.layouts() == ("jax", "maxtext", "tunix", "flax", "t5x", "hf")
    assert models.model_of("qwen2") is known_models()[4]
    assert models.model_of("qwen1") is None


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    script("models").main()
    assert capsys.readouterr().out == (ROOT / "docs/models.md").read_text(), "run `make docs`"
