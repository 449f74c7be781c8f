"""What is known of a regular expression before it is matched."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.language.patterns import compile_pattern
from ckpt_surgery.language.prefilters import MOST_TEXTS, Literals, literals, quick_length
from ckpt_surgery.language.scope import ExpressionError

NOTHING = ("",)


@pytest.mark.parametrize(
    ("pattern", "prefixes", "inner", "suffixes"),
    [
        ("params/layer_(.*)", ["params/layer_"], NOTHING, NOTHING),
        (r"params/layer_(\d+)/(.*attention_output.*)", ["params/layer_"], ["attention_output"], NOTHING),
        (r"a\.b\[0\]/.*", ["a.b[0]/"], NOTHING, NOTHING),
        ("abc*", ["ab"], NOTHING, NOTHING),
        ("ab{2}", ["ab"], NOTHING, ["b"]),  # what follows a `b` is not looked at more closely
        ("a|b", ["a", "b"], NOTHING, ["a", "b"]),
        ("(?i)abc", NOTHING, NOTHING, NOTHING),
        ("a(?i:b)c", ["a"], NOTHING, ["c"]),
        (".*", NOTHING, NOTHING, NOTHING),
        (r"\d+/(?:left)?(?P<side>right)(?:x)*y", NOTHING, ["/right", "/leftright"], ["y"]),
        (r".(a(?:bcd)(e)*)z", NOTHING, ["abcd"], ["z"]),
        (r".(?!abc)d", NOTHING, NOTHING, ["d"]),  # a look at what follows takes nothing
        (r".*\x41b\dcd/e", NOTHING, ["Ab"], ["cd/e"]),
        (r".*/(wi_0|wi_1|wo)", NOTHING, NOTHING, ["/wi_0", "/wi_1", "/wo"]),
        (r".*(query|key).*", NOTHING, ["query", "key"], NOTHING),
        (r".*[qk]_proj/.*", NOTHING, ["q_proj/", "k_proj/"], NOTHING),
        (r".*[a-z]d?", NOTHING, NOTHING, ["", "d"]),
        (r"(a/.*|b)/c", ["a/", "b"], ["a/", "b"], ["/c"]),
        (r"(a.*|.*)/c", NOTHING, NOTHING, ["/c"]),  # an alternative that may be anything
        (r"(?x) a b # c", ["ab"], NOTHING, ["ab"]),
        (r"(a)\1", ["a"], NOTHING, NOTHING),
        ("", NOTHING, NOTHING, NOTHING),
    ],
)
def test_the_texts_that_every_match_has(
    pattern: str, prefixes: list[str], inner: list[str], suffixes: list[str]
) -> None:
    assert literals(compile_pattern(pattern)) == Literals(tuple(prefixes), tuple(inner), tuple(suffixes))


def test_only_so_many_texts_are_told_apart() -> None:
    many = "|".join(f"w{i}" for i in range(MOST_TEXTS + 1))
    assert literals(compile_pattern(f"a/({many})/b")) == Literals(("a/w",), NOTHING, ("/b",))
    found = literals(compile_pattern("[ab]" * 10))
    assert len(found.prefixes) == MOST_TEXTS
    assert found.fit("abababbaba")
    assert not found.fit("abababbabc")


_PIECES = (
    "a",
    "bc",
    "/",
    r"\.",
    r"\d",
    r"\x41",
    ".",
    "[ab]",
    "[^a]",
    "(",
    "(?:",
    "(?P<n>",
    "(?=",
    "(?!",
    "(?>",
    "(?i:",
    ")",
    "*",
    "?",
    "+?",
    "{2}",
    "{0}",
    "{1,3}",
    "|",
    "$",
    r"\b",
)


@settings(deadline=None, max_examples=500)
@given(st.data(), st.lists(st.sampled_from(_PIECES), max_size=8).map("".join))
def test_every_match_has_its_texts(data: st.DataObject, pattern: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ExpressionError:
        return
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True) | st.text("ab1./A"))
    if compiled.fullmatch(text):
        assert literals(compiled).fit(text)


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        (r"params/layer_(\d+)/(.*query.*)", 181),  # the third root of 3! times a million
        (r"a(?P<n>b)?c", 500_000),  # one part that may be absent: twice the ways
        ("a|b", 500_000),
        ("(a|a)(a|a)", 250_000),  # the parser takes these for classes
        (".*/(wi_0|wi_1|wo)", 250_000),
        (r"(.*/)?(wi|wo)(/scale)?.*", 500),  # two repeats, eight ways: the root of 2! times a million / 8
        ("|".join("a" * 30), 0),
        ("(ab)*c", 10**6),
        ("(?:ab){3}", 10**6),
        ("(?x) a", 10**6),
        ("(?x) (a|b) *", 0),
        ("(a+)+", 0),
        ("(a|b)*", 0),
        ("(?:a*){3}", 0),
        (r"(a*)\1", 0),
        ("(?=a*)b", 0),
    ],
)
def test_how_long_a_text_needs_no_watch(pattern: str, length: int) -> None:
    assert quick_length(compile_pattern(pattern)) == length
