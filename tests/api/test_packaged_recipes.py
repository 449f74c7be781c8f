"""The recipes that come with the package, as functions list and describe them."""

from pathlib import Path

import pytest

import ckpt_surgery
from ckpt_surgery.errors import KeyNotFound
from tests.support.command_line import run


def test_every_recipe_is_listed_with_its_purpose() -> None:
    listed = ckpt_surgery.recipes()
    files = (Path(__file__).parent.parent.parent / "recipes").glob("*.yaml")
    assert list(listed) == sorted(f"@{file.stem}" for file in files)
    assert listed["@average"].startswith("The mean of several checkpoints")
    assert all(name in run("recipes").stdout for name in list(listed)[:3])


@pytest.mark.parametrize("name", ckpt_surgery.recipes())
def test_every_recipe_is_described(name: str) -> None:
    recipe = ckpt_surgery.recipe(name)
    assert (recipe.name, recipe.summary) == (name, ckpt_surgery.recipes()[name])
    assert recipe.params == ckpt_surgery.read_recipe(name).params
    assert recipe.text == recipe.path.read_text()
    assert recipe.help.startswith(recipe.summary)


def test_params_have_their_defaults_and_others_the_nearest_name() -> None:
    recipe = ckpt_surgery.recipe("@unstack-layers")
    assert recipe == ckpt_surgery.recipe("unstack-layers")
    assert dict(recipe.params) == {
        "name": ("layer", "layers", "block", "blocks", "encoderblock", "h"),
        "layers": 0,
        "axis": 0,
        "separator": "_",
    }
    assert recipe.description == "One array per parameter and layer."
    with pytest.raises(KeyNotFound, match="no param `layer`; did you mean `layers`"):
        recipe.params["layer"]
