"""Regular expressions: Python's syntax, bounded in size and in time."""

import math
import re
from dataclasses import dataclass

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.language.expressions import regexes
from ckpt_surgery.language.expressions.regexes import (
    MatchBudget,
    alternation,
    compile_pattern,
    safe_length,
    with_params,
)
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.loading import parse_recipe
from tests.support.effort import examples


def test_matches_as_re_does() -> None:
    for pattern, text in (
        (r"params/layer_(?P<n>\d+)/(?P<rest>.*)", "params/layer_12/mlp/wi"),
        (r"(?i)KERNEL", "kernel"),
        (r"[^/]+/\[0\]/x\.y", "a/[0]/x.y"),
        (r"[0-9a-f]{64}/[0-9a-f]{64}", "0" * 64 + "/" + "f" * 64),
        (r"[{}]\{\}", "{{}"),
        (r"(?<=a)b|ab", "ab"),
        (r"a++b(?>c)", "aabc"),
        (r"[]a]", "]"),
        (r"\N{LATIN SMALL LETTER A}", "a"),
        (r"\Aa\Z", "a\n"),
    ):
        ours, theirs = MatchBudget().fullmatch(compile_pattern(pattern), text), re.fullmatch(pattern, text)
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert (ours.groups(), ours.groupdict()) == (theirs.groups(), theirs.groupdict())


@examples(300)
@given(st.text(r"ab/\d.*+?()[]|{}2,^$", max_size=10), st.text("ab/1\n2{", max_size=8))
def test_any_pattern_is_refused_or_matches_as_re_does(pattern: str, text: str) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ExpressionError as error:
        assert 0 <= error.start < error.end <= max(1, len(pattern))
        return
    ours, theirs = MatchBudget().fullmatch(compiled, text), re.fullmatch(pattern, text)
    assert (ours is None) == (theirs is None)


def test_refused() -> None:
    for pattern, start, message in (
        ("a)", 1, "unbalanced parenthesis"),
        ("*a", 0, "nothing to repeat"),
        (r"\p{L}", 2, "`{` stands for a count"),
        ("a{,}", 1, "for the character itself"),
        ("(?x)(?:a{1000}) {1000}", 16, "more than 100000 repeats"),
        (r"\Ka", 0, "bad escape"),
        ("(?R)", 1, "unknown extension"),
        ("(?P<a>x)(?P<a>y)", 12, "redefinition of group name"),
        ("(?<=a+)b", 0, "look-behind"),
        ("(?:abc){e<=1}", 7, "for the character itself"),  # a fuzzy match in `regex`
        ("[[:alpha:]]", 0, "nested set"),  # a POSIX class in `regex`
        ("a{4294967290}", 1, "more than 100000 repeats"),
        ("(?:a{1000}){1000}", 11, "more than 100000 repeats"),
        ("(?:(?:ab{1000}){1000}c){1000}", 15, "more than 100000 repeats"),
        ("a{5,2}", 2, "min repeat greater than max"),
        ("(?:" * 51 + "a" + ")" * 51, 150, "nested deeper than 50 levels"),
    ):
        with pytest.raises(ExpressionError) as caught:
            compile_pattern(pattern)
        assert message in caught.value.message
        assert caught.value.start == start


def test_verbose_patterns_may_hold_braces_in_classes_only() -> None:
    assert MatchBudget().fullmatch(compile_pattern("(?x) a [{] \\d+ # digits"), "a{12")
    with pytest.raises(ExpressionError, match="for the character itself"):
        compile_pattern("(?x) a # {")


@pytest.mark.parametrize("pattern", ["(?:(a|aa)+)+$", "(?:(?:a|aa)*)*[bc]", "(a*)" * 9 + "[bc]"])
def test_pathological_patterns_stop(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, text = compile_pattern(pattern), "a" * 5000 + "\x1b!"
    monkeypatch.setattr(regexes, "REGEX_SECONDS", 0.05)
    for search in (
        MatchBudget().fullmatch,
        lambda p, text: MatchBudget().limited(p.search, text),
    ):
        with pytest.raises(RecipeError, match=r"took more than 0\.05 s, the last on `aaaa") as caught:
            search(compiled, text)
        assert "\x1b" not in str(caught.value)


# --- which patterns need no timeout, and several as one -----------------------------------------------------


def test_how_long_a_text_needs_no_timeout() -> None:
    for pattern, length in (
        (r"params/layer_(\d+)/(.*query.*)", 178),  # the third root of 3! times a million, less 3
        (r"a(?P<n>b)?c", 500_000),  # one part that may be absent: twice the ways
        ("a|b", 500_000),
        (r"(.*/)?(wi|wo)(/scale)?.*", 498),  # two repeats, eight ways: the root of 2! * 10**6 / 8, less 2
        (r"\)\*\(\?P<n>", 10**6),
        ("a*" * 200, 0),
        ("(ab)*c", 0),
        ("(a+)+", 0),
        ("(?x) (a|b) *", 0),
        ("(?i)a", 0),
        (r"(a*)\1", 0),
        ("(?P<n>a)(?P=n)", 0),
        ("(?=a*)b", 0),
        ("(?>a)b", 0),
    ):
        assert abs(safe_length(compile_pattern(pattern)) - length) <= (2 if length else 0)


_PIECES = (
    *("a", "bc", "/", r"\.", r"\d", r"\(", r"\(?P<n>", ".", "[ab]", "[^a]", "[(?P<n>]", "(", "(?:"),
    *("(?P<n>", "(?P<R0>", ")", "*", "?", "+?", "{2}", "{1,3}", "|", "$", r"\b"),
)
_PATTERNS = st.lists(st.sampled_from(_PIECES), max_size=7).map("".join)


@examples(500)
@given(st.data(), st.lists(_PATTERNS, min_size=1, max_size=6))
def test_an_alternation_finds_the_first_pattern_that_matches(data: st.DataObject, texts: list[str]) -> None:
    compiled = [pattern for pattern in map(compiled_or_none, texts) if pattern and safe_length(pattern)]
    if not compiled:
        return
    pattern = data.draw(st.sampled_from(compiled)).pattern
    text = data.draw(st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True) | st.text("ab1./(P<n>"))
    first = next((i for i, each in enumerate(compiled) if re.fullmatch(each.pattern, text)), None)
    match = alternation(compiled).fullmatch(text)
    assert (match and match.lastgroup) == (None if first is None else f"R{first}")


def compiled_or_none(pattern: str) -> regex.Pattern[str] | None:
    try:
        return compile_pattern(pattern)
    except ExpressionError:
        return None


# --- how long matches may take: a clock that only moves when a match is made --------------------------------


@dataclass
class Machine:
    """Where a match takes time, its clock, and the one pattern that is matched there."""

    needs: float
    """Seconds of a match."""
    others: float = 0.0
    """Seconds that other threads of the process compute meanwhile, for each of these."""
    quick: bool = False
    """Whether the pattern is known to take few steps."""
    clock: float = 0.0
    tries: int = 0

    @property
    def pattern(self) -> str:
        return "a" if self.quick else "(?:(a|aa)+)+$"

    def __hash__(self) -> int:
        return id(self)

    def fullmatch(self, text: str, timeout: float = math.inf) -> str:
        """As in `regex`: what all threads compute counts as time."""
        self.tries += 1
        self.clock += min(self.needs, timeout / (1 + self.others))
        if self.needs > timeout / (1 + self.others):
            raise TimeoutError
        return text

    def budget(self) -> MatchBudget:
        return MatchBudget(lambda: self.clock)

    def match(self, keys: int) -> None:
        budget = self.budget()
        for i in range(keys):
            assert budget.fullmatch(self, f"key {i}") == f"key {i}"


@pytest.mark.parametrize("others", [1, 15, 1000])
def test_a_timeout_that_other_threads_bring_about_is_longer_the_next_time(others: float) -> None:
    Machine(0.6, others=others).match(1)
    Machine(9e-5, others=others).match(10_000)


@pytest.mark.parametrize(("others", "at_most"), [(0, 2.1), (1, 3.1), (1000, 4.1)])
def test_a_match_without_end_stops(others: float, at_most: float) -> None:
    machine = Machine(math.inf, others)
    with pytest.raises(RecipeError, match="the regular expressions took more than 2 s, the last on `key 0`"):
        machine.match(1)
    assert machine.clock < at_most
    assert machine.tries < 15


@pytest.mark.parametrize("quick", [False, True])
def test_many_slow_matches_stop(quick: bool) -> None:
    """Two seconds, and a tenth of a millisecond for each key."""
    machine = Machine(1e-2, quick=quick)
    with pytest.raises(RecipeError, match=r"expressions took more than 2 s, the last on `key 202`"):
        machine.match(10_000)
    Machine(9e-5, quick=quick).match(30_000)


# --- params in patterns ----------------------------------------------------------------------------------


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


def test_values() -> None:
    for value, matches, others in (
        (("a", "b.c", 7), ["a", "b.c", "7"], ["b_c", "ab", ""]),
        (3, ["3"], ["", "33"]),
        ("", [""], ["a"]),
        ((), [""], ["a"]),
    ):
        pattern = with_params("${v}", {"v": value})
        assert all(compile_pattern(pattern).fullmatch(text) for text in matches)
        assert not any(compile_pattern(pattern).fullmatch(text) for text in others)
        # A value is one item for what follows it.
        assert re.fullmatch(with_params("${v}+x?", {"v": ("ab", "c")}), "abcab")


@pytest.mark.parametrize(
    "pattern", [r"\${name}", "[${name}]", "a$", "$", r"[\]${name}]", "{name}", "${3}", "["]
)
def test_what_is_no_param_stays_as_it_is(pattern: str) -> None:
    assert with_params(pattern, {"name": "block"}) == pattern


def test_what_is_refused_is_pointed_at() -> None:
    for pattern, says, characters in (
        ("a/${x}", "unknown param `x`; a pattern can insert params only", "${x}"),
        ("${from_config}", "the config may give `from_config`, and patterns", "${from_config}"),
        ("${name}/(a", "not a regular expression: missing ), unterminated subpattern", "${name}/(a"),
        ("${name}(?P<x>a)", "the group `x` has a meaning of its own", "x"),
        ("${name}/(?P<name>a)", "the group `name` is already a param; choose another name", "name"),
        ("${name}b{c}", "`{` stands for a count such as {3}", "${name}b{c}"),
    ):
        with pytest.raises(RecipeError) as caught:
            parse_recipe(recipe(pattern), "recipe.yaml")
        (problem,) = caught.value.problems
        assert says in problem.message
        assert problem.place is not None
        start = problem.place.column - 1
        assert problem.place.text[start : start + problem.place.width] == characters


def test_values_that_no_pattern_takes_are_the_only_problem() -> None:
    for pattern, value, message in (
        *(("${name}", value, "a pattern takes text and integers, not ") for value in ("true", "[a, 0.5]")),
        *(("a/${name}", value, "has to be text, a number") for value in ("{default: {a: 1}}", "null")),
    ):
        with pytest.raises(RecipeError) as caught:
            parse_recipe(recipe(pattern, f"{{name: {value}}}"), "recipe.yaml")
        assert [message in problem.message for problem in caught.value.problems] == [True]


def test_a_value_that_is_too_long() -> None:
    says = "with `name` the pattern has more than 2000 characters"
    for pattern, value in [("a/${name}", "b" * 3000), ("${name}" * 250, "b" * 100)]:
        with pytest.raises(RecipeError, match=says):
            parse_recipe(recipe(pattern), "recipe.yaml", [f"name={value}"])
    with pytest.raises(RecipeError, match=says):
        parse_recipe(recipe("${name}", f"{{name: {10**4000}}}"), "recipe.yaml")
    with pytest.raises(RecipeError, match=says):
        parse_recipe(recipe("${name}"), "recipe.yaml", [f"name={'*' * 1500}"])


def test_the_caller_sets_the_value() -> None:
    def pattern(*overrides: str) -> str:
        match = parse_recipe(recipe("a/${name}"), "recipe.yaml", overrides).recipe.passes[0].rules[0].match
        assert match is not None
        return str(match.pattern)

    assert (pattern(), pattern("name=x.y")) == ("a/(?:block)", r"a/(?:x\.y)")
