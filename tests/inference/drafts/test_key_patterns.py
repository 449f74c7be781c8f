"""Patterns of keys: what they match, and what several keys have in common."""

import re

import pytest

from ckpt_surgery.inference.drafts.key_patterns import (
    BELOW,
    NUMBER,
    KeyPattern,
    KeyPlace,
    NamedGroup,
    Universe,
    escaped,
    in_common,
    number_name,
    numbered,
    place_of,
    prefix_of,
    span_of,
    tokens,
)
from ckpt_surgery.language.expressions.naming import name_problem


def test_tokens() -> None:
    assert tokens("a.b/c_d") == ["a", ".", "b", "/", "c_d"]


@pytest.mark.parametrize(
    ("texts", "before", "words", "after"),
    [
        (["a/q/w", "a/k/w"], "a/", ("q", "k"), "/w"),
        (["a.q_proj.w", "a.k_proj.w"], "a.", ("q_proj", "k_proj"), ".w"),  # not in the middle of a component
        (["params/w", "opt/0/mu/w"], "", ("params", "opt/0/mu"), "/w"),
        (["a/b", "a/b/c"], "a/b", ("", "/c"), ""),
        (["a", "b"], "", ("a", "b"), ""),
        (["a/a", "a/a/a"], "a/a", ("", "/a"), ""),  # what both ends share is counted once
    ],
)
def test_spans(texts: list[str], before: str, words: tuple[str, ...], after: str) -> None:
    span = span_of(texts)
    assert (span.before, span.words, span.after) == (before, words, after)
    assert [span.before + word + span.after for word in span.words] == texts


KEYS = ["h/0/w", "h/0/b/c", "h/11/w", "h/x/w", "g/0/w", "h", "i"]
LAYER = NamedGroup("n", NUMBER)


@pytest.mark.parametrize("text", ["a.b*", "a+b(c)|d", "^${n}", "x[0]", "back\\slash", "line\nbreak", "ü €"])
def test_text_matches_itself(text: str) -> None:
    assert re.fullmatch(escaped(text), text)
    assert "\n" not in escaped(text)


def test_only_places_that_are_used_have_names() -> None:
    pattern = KeyPattern(("a/", "/", ""), (LAYER, NamedGroup("word", "q|k")))
    assert pattern.regex() == r"a/(?P<n>\d+)/(?P<word>q|k)"
    assert pattern.regex({"word"}) == r"a/\d+/(?P<word>q|k)"
    assert pattern.regex(()) == r"a/\d+/(?:q|k)"


def test_what_patterns_match() -> None:
    keys = Universe(KEYS)
    assert keys.matched(numbered(("h/", "/w"))) == {"h/0/w": {"n": "0"}, "h/11/w": {"n": "11"}}
    assert keys.matched(KeyPattern(("h/", "/", ""), (LAYER, BELOW))) == {
        "h/0/w": {"n": "0", "rest": "w"},
        "h/0/b/c": {"n": "0", "rest": "b/c"},
        "h/11/w": {"n": "11", "rest": "w"},
    }
    assert keys.matched(KeyPattern(("i",))) == {"i": {}}
    assert keys.matched(KeyPattern(("j",))) == {}
    assert keys.matched(KeyPattern(("", ""), (BELOW,))).keys() == set(KEYS)


def test_keys_and_prefixes_have_a_place_for_each_number() -> None:
    assert place_of("a1/h/2") == KeyPlace(numbered(("a", "/h/", "")), ("1", "2"))
    layer = KeyPattern(("a/h/", "/", "/c"), (LAYER, BELOW))
    assert prefix_of("a/h/2/", "/c") == KeyPlace(layer, ("2", ""))
    assert prefix_of("") == KeyPlace(KeyPattern(("", ""), (BELOW,)), ("",))


@pytest.mark.parametrize(
    ("texts", "regex"),
    [
        (["o/q/w", "o/k/w"], "o/(?:q|k)/w"),
        (["a/w", "b/a/w"], "(?:a|b/a)/w"),  # whole components
        (["a/w/b", "c/w/d"], "(?:a/w/b|c/w/d)"),
        (["n", "n/b"], None),  # nothing is left that they have in common
        (["n/{}/q", "n/{}/k"], r"n/\d+/(?:q|k)"),
        (["n/{}/q", "m/{}/k"], None),  # two texts differ
        (["n/{}", "n/a"], None),
    ],
)
def test_what_keys_have_in_common(texts: list[str], regex: str | None) -> None:
    patterns = [numbered(tuple(text.split("{}"))) for text in texts]
    places = [KeyPlace(one, (str(n),) * len(one.groups)) for one in patterns for n in range(2)]
    seen = in_common(places)
    assert (seen is None) == (regex is None)
    for place in places if seen else ():
        assert (seen(place).pattern.regex(()), seen(place).text) == (regex, place.text)


def test_what_never_varies_is_no_place() -> None:
    pattern = numbered(("h/", "/", ""))
    places = [KeyPlace(pattern, ("0", str(n))) for n in range(2)]
    seen = in_common(places)
    assert seen
    assert [*map(seen, places)] == [KeyPlace(numbered(("h/0/", "")), (str(n),)) for n in range(2)]


def test_every_number_has_a_name() -> None:
    names = [number_name(place) for place in range(20)]
    assert names[:3] == ["n", "m", "k"]
    assert len(set(names)) == 20
    assert [name for name in names if name_problem(name, {})] == []
