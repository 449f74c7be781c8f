"""Checks of one rule: which fields go together, and which names its expressions can use."""

from typing import Any

import pytest

from ckpt_surgery.language.checks.findings import Subject
from ckpt_surgery.language.checks.recipe import RuleCheck, unused_lets
from ckpt_surgery.language.expressions.naming import MEANINGS
from ckpt_surgery.language.schema.fields import Pass, Recipe


def found(rule: dict[str, Any], mirror: dict[str, list[str]] | None = None) -> list[tuple[Any, str, bool]]:
    written = {"version": 1, "sources": ["a", "b"], "params": {"p": 1}, "rules": [rule]}
    recipe = Recipe.model_validate(written)
    pass_ = Pass.model_validate({"rules": [rule], "mirror": mirror or {}})
    check = RuleCheck(Subject(recipe, written, frozenset()), pass_, ("r",), pass_.rules[0], rule)
    return [(f.path[1:], f.message, f.at_key) for f in check.findings()]


def test_entries_of_let_are_no_longer_than_eight_values() -> None:
    let = {f"t{i}": "'" + "y" * 32_766 + "'" for i in range(8)}
    assert found({"match": "a", "let": let}) == []
    rule = {"match": "a", "let": {**let, "v": "1"}}
    message = "entries of 262,145 characters together; the limit is 262,144"
    assert found(rule) == [(("let",), message, True)]


def test_entries_of_let_are_no_deeper_than_the_stack() -> None:
    def rule(levels: int) -> dict[str, Any]:
        deep = {f"t{i}": "-" * 31 + (f"t{i - 1}" if i else "x") for i in range(levels)}
        return {"match": "a", "let": deep, "value": f"t{levels - 1}"}

    assert found(rule(3)) == []
    message = "nested deeper than 96 levels, with the entries that it uses"
    assert found(rule(5)) == [(("let", "t3"), message, False)]


def test_value_and_mirror_value_are_of_one_kind() -> None:
    rule = {"match": "a", "to": "b", "value": "stack(xs)", "mirror_value": "x"}
    assert found(rule, {"a": ["b"]}) == [
        (("mirror_value",), "`value` and `mirror_value` must both use `x`, or both use `xs`", False)
    ]
    through_let = {"match": "a", "to": "b", "let": {"s": "xs"}, "value": "s", "mirror_value": "stack(xs)"}
    assert found(through_let, {"a": ["b"]}) == []
    mapping = {"match": "a", "to": {"b": "x"}, "mirror_value": "x"}
    message = "`mirror_value` does not go with a mapping in `to`, which has a value for each output"
    assert found(mapping, {"a": ["b"]}) == [(("mirror_value",), message, True)]


@pytest.mark.parametrize("name", ["source", "source_2", "src"])
@pytest.mark.parametrize("field", ["value", "when", "to"])
def test_sources_that_have_names_are_listed(name: str, field: str) -> None:
    text = f"{name}['w']" if field != "to" else f"${{{name}['w']}}"
    ((_, message, _),) = found({"match": "w", field: text})
    assert message == f"unknown name `{name}`; sources here: `a`, `b`"


def test_a_name_of_elsewhere_in_a_template_is_pointed_at() -> None:
    for template, name, start in (
        ("ex/${x}", "x", 5),
        ("g/${i}_${g[1]}", "g", 9),
        ("a/${str(xs)}", "xs", 8),
    ):
        rule = {"add": template, "value": "zeros([2], 'float32')", "for": {"i": "range(2)"}}
        written = {"version": 1, "rules": [rule]}
        recipe = Recipe.model_validate(written)
        [pass_] = recipe.passes
        check = RuleCheck(Subject(recipe, written, frozenset()), pass_, (), pass_.rules[0], rule)
        (finding,) = check.findings()
        assert (finding.message, finding.start, finding.end) == (MEANINGS[name], start, start + len(name))


LET = {"a": "x + 1", "b": "a * 2", "c": "x"}


def test_names_without_use() -> None:
    for rule, unused in (
        ({"value": "b"}, ["c"]),
        ({"value": "a"}, ["b", "c"]),
        ({}, ["a", "b", "c"]),
        ({"to": {"p": "b", "q": "c"}}, []),
        ({"value": "b", "mirror_value": "c"}, []),
    ):
        named = {"match": "p", "let": LET, **rule}
        several = {"version": 1, "passes": [{"rules": []}, {"rules": [{"match": "q"}, named]}]}
        for recipe, before in (
            ({"version": 1, "rules": [named]}, ("rules", 0)),
            (several, ("passes", 1, "rules", 1)),
        ):
            found = list(unused_lets(Recipe.model_validate(recipe)))
            assert [one.path for one in found] == [(*before, "let", name) for name in unused]
            assert all(one.at_key for one in found)
