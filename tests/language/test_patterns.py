"""Regular expressions: Python's syntax, bounded in size and in time."""

import math
import re
import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.language import patterns as regexes
from ckpt_surgery.language.patterns import MatchingTime, Watch, compile_pattern
from ckpt_surgery.language.prefilters import literals
from ckpt_surgery.language.scope import ExpressionError

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
    ours, theirs = Watch().fullmatch(compile_pattern(pattern), text), re.fullmatch(pattern, text)
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
    ours, theirs = Watch().fullmatch(compiled, text), re.fullmatch(pattern, text)
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
        ("(" * 600 + ")" * 600, 50, "nested deeper than 50 levels"),
        ("(?:" * 51 + "a" + ")" * 51, 150, "nested deeper than 50 levels"),
        ("a" * 3000, 0, "3000 characters"),
    ],
)
def test_refused(pattern: str, start: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_pattern(pattern)
    assert message in caught.value.message
    assert caught.value.start == start


def test_verbose_patterns_may_hold_braces_in_classes_only() -> None:
    assert Watch().fullmatch(compile_pattern("(?x) a [{] \\d+ # digits"), "a{12")
    with pytest.raises(ExpressionError, match="for the character itself"):
        compile_pattern("(?x) a # {")


@pytest.mark.parametrize("pattern", ["(?:(a|aa)+)+$", "(?:(?:a|aa)*)*[bc]", "(a*)" * 9 + "[bc]"])
def test_pathological_patterns_stop(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_pattern(pattern)
    monkeypatch.setattr(regexes, "REGEX_SECONDS", 0.05)
    with pytest.raises(RecipeError, match=r"took more than 0\.05 s of processor time on `aaaa") as caught:
        Watch().fullmatch(compiled, "a" * 5000 + "\x1b!")
    assert "\x1b" not in str(caught.value)


# --- what counts as the time of a match: clocks that only move when a match is made ------------------------


@dataclass
class Machine:
    """Where a match takes time, its clocks, and the one pattern that is matched there."""

    needs: float
    """Processor time of a match."""
    waiting: float = 0.0
    """Wall time that passes while a thread is kept waiting, for each second that it computes."""
    others: float = 0.0
    """What the process' other threads compute meanwhile."""
    quick: bool = False
    """Whether the pattern is known to take few steps."""
    wall: float = 0.0
    thread: float = 0.0
    flags: int = 0

    @property
    def pattern(self) -> str:
        return "a" if self.quick else "(?:(a|aa)+)+$"

    def __hash__(self) -> int:
        return id(self)

    def fullmatch(self, text: str, timeout: float = math.inf) -> str:
        """As in `regex`: what all threads compute counts as time."""
        allowed = timeout / (1 + self.others)
        computed = min(self.needs, allowed)
        self.thread += computed
        self.wall += computed * (1 + self.waiting)
        if self.needs > allowed:
            raise TimeoutError
        return text

    def watch(self) -> Watch:
        return Watch(self.matching())

    def matching(self) -> MatchingTime:
        return MatchingTime(lambda: self.wall, lambda: self.thread)

    def match(self, keys: int) -> None:
        watch = self.watch()
        for i in range(keys):
            assert watch.fullmatch(self, f"key {i}") == f"key {i}"


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("needs", [1e-6, 1e-4, 9e-4])
def test_how_long_a_machine_is_busy_or_suspended_does_not_count(needs: float, quick: bool) -> None:
    machine = Machine(needs, waiting=10**6, quick=quick)
    machine.match(1000)
    assert machine.wall > 1000
    assert machine.thread < 2


@pytest.mark.parametrize("others", [1, 15, 1000])
def test_what_other_threads_compute_does_not_count(others: float) -> None:
    Machine(0.9, waiting=2, others=others).match(1)
    Machine(9e-4, others=others).match(1000)


@pytest.mark.parametrize("waiting", [0, 1000])
@pytest.mark.parametrize(("others", "at_most"), [(0, 1.25), (1, 2.5), (1000, 4)])
def test_a_match_without_end_stops(waiting: float, others: float, at_most: float) -> None:
    machine = Machine(math.inf, waiting, others)
    with pytest.raises(RecipeError, match="took more than 1 s of processor time on `key 0`"):
        machine.match(1)
    assert machine.thread < at_most


@pytest.mark.parametrize("quick", [False, True])
def test_many_slow_matches_stop(quick: bool) -> None:
    """A second, a tenth of a millisecond for each key, and what was done before the time is measured."""
    machine = Machine(1e-2, quick=quick)
    with pytest.raises(RecipeError, match=r"took more than 1 s of processor time on 113 keys, .* `key 112"):
        machine.match(10_000)
    Machine(1e-4, quick=quick).match(100_000)


def test_the_exact_clock_is_read_only_where_it_matters() -> None:
    """Reading it takes longer than most matches."""
    machine = Machine(1e-6, quick=True)
    Watch(MatchingTime(lambda: machine.wall, processor=lambda: 1 // 0)).fullmatch(machine, "key")


def test_the_clock_of_processor_time_is_the_threads() -> None:
    """It stands still while the thread waits, whatever the others do."""
    _, processor = MatchingTime.__init__.__defaults__
    assert processor is time.thread_time


def test_many_slow_patterns_stop_together() -> None:
    """None of them takes a second alone."""
    machine = Machine(0.3)
    matching = machine.matching()
    with pytest.raises(RecipeError, match=r"expressions together took more than 1 s .* this one on `key 3`"):
        for number in range(300):
            Watch(matching).fullmatch(machine, f"key {number}")
    assert machine.thread < 2


def test_quick_patterns_are_as_many_as_they_like() -> None:
    machine = Machine(5e-6, quick=True)
    matching = machine.matching()
    for _ in range(300):
        watch = Watch(matching)
        for number in range(1000):
            watch.fullmatch(machine, f"key {number}")
    assert machine.thread > 1
