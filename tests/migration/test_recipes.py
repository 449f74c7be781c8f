"""Migrated recipes as values: what they hold cannot be changed, and YAML says it."""

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.migration.recipes import MigratedRecipe

DOCUMENT = {
    "version": 1,
    "target": {"missing": "fallback"},
    "rules": [{"fill": r"(.*)/w", "from": r"\1/kernel", "value": "source['a'] * 2", "optional": True}],
}


def test_what_is_changed_outside_does_not_change_it() -> None:
    given = {"version": 1, "rules": [{"fill": "a"}]}
    recipe = MigratedRecipe(given)
    given["rules"].append({"fill": "b"})  # type: ignore[attr-defined]
    recipe.document["rules"].append({"fill": "c"})
    assert recipe.document == {"version": 1, "rules": [{"fill": "a"}]}
    with pytest.raises(TypeError):
        recipe.hooks["f"] = len  # type: ignore[index]


def test_equal_recipes() -> None:
    recipe, again = MigratedRecipe(DOCUMENT), MigratedRecipe(DOCUMENT)
    assert recipe == again
    assert hash(recipe) == hash(again)
    assert recipe != MigratedRecipe({"version": 1})
    assert recipe != MigratedRecipe(DOCUMENT, {"f": len})
    assert recipe != DOCUMENT
    assert repr(MigratedRecipe(DOCUMENT, {"f": len})) == "<MigratedRecipe: 1 rules, 1 functions>"


def test_its_functions_run_without_leave() -> None:
    document = {"version": 1, "rules": [{"match": "w", "value": "hooks.sort(x)"}]}
    recipe = MigratedRecipe(document, {"sort": np.sort})
    found = ckpt_surgery.restore(recipe, {"w": np.float32([3, 1, 2])}, target={"w": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(found["w"], [1, 2, 3])
