"""Patterns of keys: what they match, and how they are written."""

import pytest

from ckpt_surgery.inference.drafts.key_patterns import (
    KeyPattern,
    NamedGroup,
    Universe,
    alternation,
    escaped,
    number_name,
    numbered,
)
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.regexes import compile_pattern

KEYS = ("h/0/w", "h/0/w/b", "h/12/w", "h/x/w", "h1/w", "i")


@pytest.mark.parametrize("text", ["a.b", "a/b-c d", "$x{1}", "(a|b)*", "[0]", "a\\d+", "a\nb", "ä", "#^?"])
def test_escaped_texts_match_themselves(text: str) -> None:
    assert compile_pattern(escaped(text)).fullmatch(text)
    assert compile_pattern(alternation(["other", text])).fullmatch(text)
    assert not compile_pattern(escaped(text)).fullmatch(text + "0")


def test_only_what_has_a_meaning_is_escaped() -> None:
    assert escaped("a/b-c_d e.f") == r"a/b-c_d e\.f"


def test_groups_that_nobody_uses_have_no_name() -> None:
    pattern = KeyPattern(("a/", NamedGroup("n", r"\d+"), "/", NamedGroup("word", "q|k")))
    assert pattern.regex() == r"a/(?P<n>\d+)/(?P<word>q|k)"
    assert pattern.regex({"word"}) == r"a/\d+/(?P<word>q|k)"
    assert pattern.regex(()) == r"a/\d+/(?:q|k)"


def test_what_is_matched() -> None:
    keys = Universe(KEYS)
    assert keys.matched(numbered([("h/",), ("/w",)], rest=False)) == {
        "h/0/w": {"n": "0"},
        "h/12/w": {"n": "12"},
    }
    assert keys.matched(numbered([("h/",), ("/",)], rest=True)) == {
        "h/0/w": {"n": "0", "rest": "w"},
        "h/0/w/b": {"n": "0", "rest": "w/b"},
        "h/12/w": {"n": "12", "rest": "w"},
    }
    assert keys.matched(KeyPattern(("i",))) == {"i": {}}
    assert keys.matched(KeyPattern(("j",))) == {}
    assert keys.matched(KeyPattern((NamedGroup("rest", ".*"),))).keys() == set(KEYS)


def test_keys_below_a_prefix() -> None:
    assert list(Universe(KEYS).below("h/0")) == ["h/0/w", "h/0/w/b"]
    assert list(Universe(KEYS).below("")) == sorted(KEYS)
    assert list(Universe(KEYS).below("z")) == []


def test_names_of_numbers_are_allowed() -> None:
    names = [number_name(slot) for slot in range(20)]
    assert names[:3] == ["n", "m", "k"]
    assert len(set(names)) == 20
    assert [name for name in names if name_problem(name, {})] == []
