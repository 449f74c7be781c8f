"""Texts that need quotes in YAML: each hint, followed to the letter, makes the recipe what was meant."""

import pytest

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.language.yaml.parsing import parse_document

TEXTS = ("*x", "*/w", "*.weight", "*", "[pq]/(.*)", "[a-z]+/w", "[it's]/x", "{a}/b", "{g[1]}/x", "&x", "&x y")
TEXTS += ("!x", "!x y", "%x", "@x", "`x", "|x", "> x")
INSIDE_BRACES = ("layers/[0-9]+/w", "w{1,2}/(.*)", "a{2}", "a[0]", "(a|b){2}/[x]", "a/{g[1]}", "x[0, 1]")
BLOCK = "rules:\n  - match: {}\n    to: b\n"
BRACES = "rules:\n  - {{match: {}, to: b}}\n"


def advised(text: str) -> tuple[str, int, int]:
    """What the hint says to write, and the line and column of the only problem."""
    with pytest.raises(RecipeError) as raised:
        document = parse_document(text, "recipe.yaml")
        raise RecipeError(*document.problems)
    (problem,) = raised.value.problems
    assert problem.hint is not None
    assert problem.place is not None
    assert problem.place.line is not None
    return problem.hint.split("in single quotes: ")[1], problem.place.line, problem.place.column


def test_a_text_without_quotes_is_shown_with_them() -> None:
    for form, text in (
        *((BLOCK, text) for text in (*TEXTS, "- x")),
        *((BRACES, text) for text in (*TEXTS, *INSIDE_BRACES) if text[0] != "!"),
    ):
        quoted, line, column = advised(form.format(text))
        assert (line, column) == (2, form.format(text).splitlines()[1].index("match: ") + 8)
        document = parse_document(form.format(quoted), "recipe.yaml")
        assert document.value == {"rules": [{"match": text, "to": "b"}]}


def test_the_second_of_two_texts_follows_the_first() -> None:
    form = "rules: [{{match: {}, to: {}}}]\n"
    first, _, _ = advised(form.format("[a]/b", "{c}/d"))
    second, _, column = advised(form.format(first, "{c}/d"))
    assert (first, second, column) == ("'[a]/b'", "'{c}/d'", 30)


def test_other_mistakes_get_no_advice_to_quote() -> None:
    for text in (
        "rules: [a, b\n",  # a bracket is missing
        "sources: [a, b]]\n",
        "rules: {match: a}}\n",
        "rules:\n  - {match: a to: b}\n",  # a comma is missing
        "rules:\n  - {match: a, to: b\n",
        "rules:\n  - match: a\n   to: b\n",
        "mirror: {params: [a]\nrules: []\n",
    ):
        with pytest.raises(RecipeError) as raised:
            parse_document(text, "recipe.yaml")
        assert "quotes" not in str(raised.value)
