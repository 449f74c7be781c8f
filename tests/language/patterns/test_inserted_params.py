"""Params in regular expressions: what they match, and what is refused, with its place."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.language.expressions.regexes import compile_pattern
from ckpt_surgery.language.expressions.scope import Constant
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.patterns.inserted_params import with_params


def recipe(pattern: str, params: str = "{name: block, from_config: {default: 1, config: n}}") -> str:
    return f"version: 1\nparams: {params}\nrules:\n  - match: '{pattern}'\n    drop: true\n"


@given(st.text(min_size=1, max_size=20))
@example("a|b")
@example("[#-&~]")
@example("(?P<x>")
def test_a_text_stands_for_itself(value: str) -> None:
    pattern = with_params("x/(?P<of>${name})_\\d", {"name": value})
    found = compile_pattern(pattern).fullmatch(f"x/{value}_3")
    assert found is not None
    assert found["of"] == value
    assert compile_pattern(pattern).fullmatch(f"x/{value}{value}_3") is None


@pytest.mark.parametrize(
    ("value", "matches", "others"),
    [
        (("a", "b.c", 7), ["a", "b.c", "7"], ["b_c", "ab", ""]),
        (3, ["3"], ["", "33"]),
        ("", [""], ["a"]),
        ((), [""], ["a"]),
    ],
)
def test_values(value: Constant, matches: list[str], others: list[str]) -> None:
    pattern = with_params("${v}", {"v": value})
    assert all(compile_pattern(pattern).fullmatch(text) for text in matches)
    assert not any(compile_pattern(pattern).fullmatch(text) for text in others)


def test_a_value_is_one_item_for_what_follows() -> None:
    assert re.fullmatch(with_params("${v}+x?", {"v": ("ab", "c")}), "abcab")


@pytest.mark.parametrize(
    "pattern", [r"\${name}", "[${name}]", "a$", "$", r"[\]${name}]", "{name}", "${3}", "["]
)
def test_what_is_no_param_stays_as_it_is(pattern: str) -> None:
    assert with_params(pattern, {"name": "block"}) == pattern


@pytest.mark.parametrize(
    ("pattern", "says", "characters"),
    [
        ("a/${nmae}/b", "unknown param `nmae`; did you mean `name`?", "${nmae}"),
        ("a/${x}", "unknown param `x`; a pattern can insert params only", "${x}"),
        ("${from_config}", "the config may give `from_config`, and patterns", "${from_config}"),
        ("${name}/(a", "not a regular expression: missing ), unterminated subpattern", "${name}/(a"),
        ("a/(b", "not a regular expression: missing ), unterminated subpattern", "("),
        ("${name}(?P<x>a)", "the group `x` has a meaning of its own", "x"),
        ("${name}/(?P<name>a)", "the group `name` is already a param; choose another name", "name"),
        ("${name}b{c}", "`{` stands for a count such as {3}", "${name}b{c}"),
    ],
)
def test_what_is_refused_is_pointed_at(pattern: str, says: str, characters: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(recipe(pattern), "recipe.yaml")
    (problem,) = caught.value.problems
    assert says in problem.message
    assert problem.place is not None
    assert problem.place.line is not None
    line = recipe(pattern).splitlines()[problem.place.line - 1]
    start = problem.place.column - 1
    assert line[start : start + problem.place.width] == characters


@pytest.mark.parametrize("value", ["true", "0.5", "[a, 0.5]"])
def test_other_values_than_text_and_integers(value: str) -> None:
    with pytest.raises(RecipeError, match="a pattern takes text and integers, not "):
        parse_recipe(recipe("${name}", f"{{name: {value}}}"), "recipe.yaml")


@pytest.mark.parametrize("value", ["{default: {a: 1}}", "null", "[[1]]"])
def test_a_param_that_is_wrong_is_the_only_problem(value: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(recipe("a/${name}", f"{{name: {value}}}"), "recipe.yaml")
    assert ["has to be text, a number" in problem.message for problem in caught.value.problems] == [True]


def test_a_value_that_is_too_long() -> None:
    says = "with `name` the pattern has more than 2000 characters"
    for pattern, value in [("a/${name}", "b" * 3000), ("${name}" * 250, "b" * 100)]:
        with pytest.raises(RecipeError, match=says):
            parse_recipe(recipe(pattern), "recipe.yaml", [f"name={value}"])
    with pytest.raises(RecipeError, match=says):
        parse_recipe(recipe("${name}", f"{{name: {10**4000}}}"), "recipe.yaml")
    with pytest.raises(RecipeError, match="the limit is 2000"):
        parse_recipe(recipe("${name}"), "recipe.yaml", [f"name={'*' * 1500}"])


def test_the_caller_sets_the_value() -> None:
    def pattern(*overrides: str) -> str:
        match = parse_recipe(recipe("a/${name}"), "recipe.yaml", overrides).recipe.passes[0].rules[0].match
        assert match is not None
        return str(match.pattern)

    assert (pattern(), pattern("name=x.y")) == ("a/(?:block)", r"a/(?:x\.y)")
