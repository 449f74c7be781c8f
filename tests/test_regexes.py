"""Regular expressions: Python's syntax, bounded in size and in time."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.errors import RecipeError
from ckpt_surgery.expressions import ExpressionError
from ckpt_surgery.prefilters import literals
from ckpt_surgery.regexes import compile_pattern, fullmatch

ALIKE = [
    (r"params/layer_(?P<n>\d+)/(?P<rest>.*)", "params/layer_12/mlp/wi"),
    (r"(a|ab)(c|bcd)", "abcd"),
    (r"(?i)KERNEL", "kernel"),
    (r"[^/]+/\[0\]/x\.y", "a/[0]/x.y"),
    (r"[0-9a-f]{64}/[0-9a-f]{64}", "0" * 64 + "/" + "f" * 64),
    (r"(\w+/){2}x{,3}", "a/b/xx"),
    (r"(?x) a  # a comment with ) and {", "a"),
    (r"[{}]\{\}", "{{}"),
    (r"(?<=a)b|ab", "ab"),
    (r"a(?!b).", "ac"),
    (r"a++b(?>c)", "aabc"),
    (r"[]a]", "]"),
    (r"\N{LATIN SMALL LETTER A}", "a"),
    (r"a$", "a"),
    (r"\Aa\Z", "a\n"),
]


@pytest.mark.parametrize(("pattern", "text"), [row for row in ALIKE if "comment" not in row[0]])
def test_matches_as_re_does(pattern: str, text: str) -> None:
    ours, theirs = fullmatch(compile_pattern(pattern), text), re.fullmatch(pattern, text)
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        assert (ours.groups(), ours.groupdict()) == (theirs.groups(), theirs.groupdict())


@settings(deadline=None, max_examples=300)
@given(st.text(r"ab/\d.*+?()[]|{}2,^$", max_size=10), st.text("ab/1\n2{", max_size=8))
def test_any_pattern_is_refused_or_matches_as_re_does(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ExpressionError as error:
        assert 0 <= error.start < error.end <= max(1, len(pattern))
        return
    ours, theirs = fullmatch(compiled, text), re.fullmatch(pattern, text)
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        assert literals(compiled).fit(text)


@pytest.mark.parametrize(
    ("pattern", "start", "message"),
    [
        ("a(b", 1, "unterminated subpattern"),
        ("a)", 1, "unbalanced parenthesis"),
        ("*a", 0, "nothing to repeat"),
        (r"\p{L}", 2, "`{` stands for a count"),
        (r"\pL", 0, "bad escape"),
        (r"\Ka", 0, "bad escape"),
        ("(?R)", 1, "unknown extension"),
        ("(?|a|b)", 1, "unknown extension"),
        ("(?P<a>x)(?P<a>y)", 12, "redefinition of group name"),
        ("(?<=a+)b", 0, "look-behind"),
        ("(?:abc){e<=1}", 7, "for the character itself"),  # a fuzzy match in `regex`
        ("a{", 1, "for the character itself"),
        ("a{}", 1, "for the character itself"),
        ("a{,}", 1, "for the character itself"),
        ("[[:alpha:]]", 0, "nested set"),  # a POSIX class in `regex`
        ("[a--b]", 0, "set difference"),
        ("[a&&b]", 0, "set intersection"),
        ("a{4294967290}", 1, "too large"),
        ("(?:a{1000}){1000}", 11, "more than 100000 repeats"),
        ("(?x)(?:a{1000}) {1000}", 16, "more than 100000 repeats"),
        ("(?:(?:ab{1000}){1000}c){1000}", 15, "more than 100000 repeats"),
        ("a{5,2}", 2, "min repeat greater than max"),
        ("(" * 600 + ")" * 600, 0, "too deeply"),
        ("a" * 3000, 0, "3000 characters"),
    ],
)
def test_refused(pattern: str, start: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_pattern(pattern)
    assert message in caught.value.message
    assert caught.value.start == start


def test_verbose_patterns_may_hold_braces_in_classes_only() -> None:
    assert fullmatch(compile_pattern("(?x) a [{] \\d+ # digits"), "a{12")
    with pytest.raises(ExpressionError, match="for the character itself"):
        compile_pattern("(?x) a # {")


@pytest.mark.parametrize("pattern", ["(?:(a|aa)+)+$", "(?:(?:a|aa)*)*[bc]", "(a*)" * 9 + "[bc]"])
def test_pathological_patterns_stop(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    with pytest.raises(RecipeError, match="took more than 1 s on `aaaa") as caught:
        fullmatch(compiled, "a" * 5000 + "\x1b!")
    assert "\x1b" not in str(caught.value)
