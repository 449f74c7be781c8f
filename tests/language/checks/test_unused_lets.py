"""Entries of `let` that no value uses."""

from typing import Any

import pytest

from ckpt_surgery.language.checks.unused_lets import unused_lets
from ckpt_surgery.language.schema.fields import Recipe

LET = {"a": "x + 1", "b": "a * 2", "c": "x"}


@pytest.mark.parametrize(
    ("rule", "unused"),
    [
        ({"value": "b"}, ["c"]),
        ({"value": "a"}, ["b", "c"]),
        ({}, ["a", "b", "c"]),
        ({"to": {"p": "b", "q": "c"}}, []),
        ({"value": "b", "mirror_value": "c"}, []),
    ],
)
def test_names_without_use(rule: dict[str, Any], unused: list[str]) -> None:
    named = {"match": "p", "let": LET, **rule}
    several = {"version": 1, "passes": [{"rules": []}, {"rules": [{"match": "q"}, named]}]}
    for recipe, before in (
        ({"version": 1, "rules": [named]}, ("rules", 0)),
        (several, ("passes", 1, "rules", 1)),
    ):
        found = list(unused_lets(Recipe.model_validate(recipe)))
        assert [one.path for one in found] == [(*before, "let", name) for name in unused]
        assert all(one.at_key for one in found)
