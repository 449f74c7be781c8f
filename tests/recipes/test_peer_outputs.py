"""Gemma 3 and gpt-oss in other projects' layouts are bit for bit what these projects' own conversions make.

What MaxText 0.2.5 and google-tunix 0.1.7 make was stored by `make_peer_outputs`.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.recipes.families import BF16, converted
from tests.recipes.leaves import Arrays
from tests.support.comparing import assert_same

DATA = Path(__file__).parents[1] / "data" / "peers"
GIVEN = {
    "gemma3": ["layout=maxtext", "num_layers=14", "model_type=gemma3_text"],
    "gpt_oss": ["layout=maxtext", "num_layers=4"],
}


def stored(family: str, part: str) -> Arrays:
    with np.load(DATA / f"{family}.npz") as file:
        return {
            key.removeprefix(f"{part}/"): file[key].view(BF16)
            for key in file.files
            if key.startswith(f"{part}/")
        }


@pytest.mark.parametrize("family", GIVEN)
def test_the_way_to_maxtext(family: str) -> None:
    recipe = f"hf-{family.replace('_', '-')}-to-jax"
    assert_same(converted(recipe, stored(family, "hf"), GIVEN[family]), stored(family, "maxtext"))


@pytest.mark.parametrize("family", GIVEN)
def test_the_way_back_from_maxtext(family: str) -> None:
    recipe = f"jax-to-hf-{family.replace('_', '-')}"
    assert_same(converted(recipe, stored(family, "maxtext"), GIVEN[family]), stored(family, "back"))


def test_the_way_to_tunix() -> None:
    given = ["layout=tunix", "num_layers=14"]
    made = converted("hf-gemma3-to-jax", stored("gemma3", "hf"), given)
    assert_same(made, stored("gemma3", "tunix"))
