"""The models of recipes: defaults, short forms, and what properties make of them."""

from typing import Any

import pytest

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.schema.fields import Param, Recipe


def recipe(**fields: Any) -> Recipe:
    return Recipe.model_validate({"version": 1, **fields})


def test_defaults() -> None:
    empty = recipe()
    assert (empty.sources, empty.unmatched, empty.target, empty.output) == (("source",), "keep", None, None)
    ((only,)) = empty.passes
    assert (only.rules, only.mirror, only.unmatched) == ((), {}, None)


def test_rules_are_short_for_one_pass() -> None:
    rule = {"match": "a", "to": "b"}
    (short,) = recipe(rules=[rule], mirror={"a": ["b"]}).passes
    (long,) = recipe(passes=[{"rules": [rule], "mirror": {"a": ["b"]}}]).passes
    assert (short.rules, short.mirror) == (long.rules, long.mirror)
    assert [p.name for p in recipe(passes=[{"name": "x"}, {"name": "y"}]).passes] == ["x", "y"]


def test_a_value_is_short_for_a_param() -> None:
    found = recipe(params={"a": 1, "b": {"default": [1, "x"], "config": "c/d"}}).params
    assert found["a"] == Param.model_validate({"default": 1})
    assert (found["b"].default, found["b"].config) == ((1, "x"), ("c/d",))


def test_source_names() -> None:
    for sources, count, names in (
        (["a", "b"], 2, ("a", "b")),
        (["a", "*"], 1, ("a",)),
        (["a", "*"], 3, ("a", "source_2", "source_3")),
    ):
        assert recipe(sources=sources).source_names(count) == names


def test_too_few_or_too_many_sources() -> None:
    for sources, count, message in (
        (["a"], 2, "the recipe takes 1 source (a), not 2"),
        (["a", "b"], 1, "the recipe takes 2 sources (a, b), not 1"),
        (["a", "b", "*"], 1, "the recipe takes 2 sources or more (a, b), not 1"),
    ):
        with pytest.raises(UsageError) as caught:
            recipe(sources=sources).source_names(count)
        assert str(caught.value) == message
