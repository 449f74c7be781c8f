"""Regular expressions of recipes: Python's syntax, matched by `regex`, which has timeouts.

Patterns that `re.compile` refuses are refused, and so are those that the two libraries read differently.
"""

import functools
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import regex

from ckpt_surgery.core.errors import Code, RecipeError
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.language.expressions.scope import Constant, ExpressionError, PatternError, described

REGEX_SECONDS = 2.0  # Limit on the time that all matches of a plan take together
SECONDS_PER_MATCH = 1e-4  # Seconds that each match adds to the limit: a usual one takes a hundredth of them
SHORTEST_TIMEOUT = 0.005  # Seconds; a shorter timeout would stop too many matches that would have ended
MOST_STEPS = 10**6  # A match of fewer steps takes only milliseconds, and needs no timeout
MAX_PATTERN = 2000  # Limit on the characters of a pattern
MAX_NESTING = 50  # Limit on the groups around each other in a pattern
MAX_REPEATS = 100_000  # Limit on the product of counts such as `{64}`, which `regex` unrolls when it compiles


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str, longest: int = MAX_PATTERN) -> regex.Pattern[str]:
    """The compiled pattern. Raises PatternError, with the offset in the pattern, if it is refused.

    `longest`: limit on its characters, which is for patterns that strangers wrote.
    """
    if len(text) > longest:
        message = f"a regular expression of {len(text)} characters; the limit is {longest}"
        raise PatternError(message, 0, 1)
    _check_size(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # later versions of `re`, or `regex`, may read it differently
            re.compile(text)
        return regex.compile(text)
    except (re.error, regex.error, Warning, OverflowError, RecursionError, MemoryError) as error:
        is_deep = isinstance(error, RecursionError | MemoryError)
        reason = "nested too deeply" if is_deep else getattr(error, "msg", error)
        start = min(getattr(error, "pos", None) or 0, max(0, len(text) - 1))
        raise PatternError(f"not a regular expression: {reason}", start, start + 1) from None


TOKEN = re.compile(
    r"\\N\{[^}]*\}|\\."  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a character class
    r"|\((?:\?P<\w+>|\?:)?"  # the start of a group
    r"|(?P<brace>\{)(?:(?P<low>\d*),?(?P<high>\d*)\})?"
    r"|.",
    re.DOTALL,
)
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")


def _check_size(text: str) -> None:
    """Refuse deep nesting, braces that are not counts, for which `regex` has other uses, and large counts.

    The bound is the product of all counts of groups times the sum of all others, which holds for any nesting.
    In verbose mode, white space can stand between a group and its count, so all are taken as of groups.
    """
    groups, others, last, nesting = 1, len(text), "", 0
    verbose = _VERBOSE.search(text) is not None
    for match in TOKEN.finditer(text):
        if match["brace"] is not None:
            digits = match["high"] or match["low"]
            if not digits:
                message = "`{` stands for a count such as {3} or {2,5}; for the character itself write `\\{`"
                raise PatternError(message, match.start(), match.start() + 1)
            count = int(digits) if len(digits) <= len(str(MAX_REPEATS)) else MAX_REPEATS + 1
            if last == ")" or verbose:
                groups *= max(1, count)
            else:
                others += count
            if groups * others > MAX_REPEATS:
                message = f"the counts in braces multiply to more than {MAX_REPEATS} repeats"
                raise PatternError(message, *match.span())
        last = match[0]
        nesting += last.startswith("(") - (last == ")")
        if nesting > MAX_NESTING:
            raise PatternError(f"groups are nested deeper than {MAX_NESTING} levels", *match.span())


_UNSAFE = re.compile(r"\)[*+{]|\\|\(\?(?!P<|:)")
"""In a pattern without escapes: what makes it slow or gives it another meaning beside others.

A repeat of a group, a reference to a group, a flag or a look at what stands around.
"""


@functools.lru_cache(maxsize=1024)
def safe_length(pattern: regex.Pattern[str]) -> int:
    """Length up to which texts are matched in less than MOST_STEPS steps; 0 where that is unknown.

    k repeats, none inside another, end at k of n positions: in at most (n + k)^k / k! ways. What is optional
    and every alternative at most double these.
    """
    text = re.sub(r"\\[^1-9]", "x", pattern.pattern, flags=re.DOTALL)
    if _UNSAFE.search(text):
        return 0
    repeats = sum(map(text.count, "*+{"))
    doublings = text.count("?") - text.count("(?") + text.count("|")
    ways = math.log(MOST_STEPS) + math.lgamma(repeats + 1) - doublings * math.log(2)
    return max(0, int(math.exp(ways / max(1, repeats)) - repeats))


def alternation(patterns: Sequence[regex.Pattern[str]]) -> regex.Pattern[str]:
    """One pattern that matches what any of several does; `lastgroup` is then `R` and the first one's number.

    All of them must have a safe length.
    """
    # Groups only hold together here: keeping what they match, or their names, takes time.
    texts = (
        TOKEN.sub(lambda token: "(?:" if token[0].startswith("(") else token[0], pattern.pattern)
        for pattern in patterns
    )
    return regex.compile("|".join(f"(?:{text})(?P<R{i}>)" for i, text in enumerate(texts)))


class MatchBudget:
    """Bounds the time of matches that belong together, such as all those of a plan.

    That is wall time: reading the processor time of a thread takes longer than most matches. All methods
    raise RecipeError once the time is used up.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        """`clock` gives seconds since an arbitrary moment."""
        self._clock = clock
        self._seconds = 0.0
        self._matches = 0

    def fullmatch(
        self, pattern: regex.Pattern[str], text: str, safe: int | None = None
    ) -> regex.Match[str] | None:
        """The match of the whole text, or None. `safe`: safe length, of an alternation."""
        if len(text) > (safe_length(pattern) if safe is None else safe):
            return self.limited(pattern.fullmatch, text)
        self._matches += 1
        started = self._clock()
        match = pattern.fullmatch(text)
        self._spend(started, text)
        return match

    @property
    def _limit(self) -> float:
        return REGEX_SECONDS + SECONDS_PER_MATCH * self._matches

    def limited(self, search: Callable[..., Any], text: str) -> Any:
        """Make a match that might never end: the result of `search`, a method of a pattern.

        The timeout of `regex` counts what all threads compute, so it can come too early; then the match is
        tried again with twice the time, until the time on the wall is used up.
        """
        self._matches += 1
        timeout = max(self._limit - self._seconds, SHORTEST_TIMEOUT)
        while True:
            started = self._clock()
            with suppress(TimeoutError):
                result = search(text, timeout=timeout)
                self._spend(started, text)
                return result
            self._spend(started, text)
            timeout *= 2

    def _spend(self, started: float, text: str) -> None:
        """Count the time of a match. Raises RecipeError if all of them took too long."""
        self._seconds += self._clock() - started
        if self._seconds >= self._limit:
            raise RecipeError(
                f"the regular expressions took more than {self._limit:.2g} s, the last on `{shown(text)}`",
                hint="Nested repeats such as (a+)+ take exponential time; write the pattern without nesting.",
                code=Code.SLOW_PATTERN,
            )


_INSERTED = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"  # an escape, a character class: no param stands there
    r"|(?P<param>\$\{(?P<name>[^\W\d]\w*)\})"
    r"|[^\\\[$]+|.",
    re.DOTALL,
)


def with_params(text: str, params: Mapping[str, Constant | None]) -> str:
    """The pattern with the values of params in place of their names.

    `params`: the value of each param by name; None for one that the config of a checkpoint may give, which
    is not known yet. A list stands for any one of its values. Raises ExpressionError, with offsets in the
    written pattern, for unknown names and for values that are neither text nor integers.
    """
    parts: list[str] = []
    left = MAX_PATTERN
    for match in _INSERTED.finditer(text):
        parts.append(match[0] if match["param"] is None else _literal(match, params))
        left -= len(parts[-1])
        if left < 0 and match["param"]:
            message = f"with `{match['name']}` the pattern has more than {MAX_PATTERN} characters"
            raise ExpressionError(message, *match.span("param"), None, Code.INSERTED_PARAM)
    return "".join(parts)


def _literal(match: re.Match[str], params: Mapping[str, Constant | None]) -> str:
    """The regular expression that matches the param's value and nothing else."""
    name = match["name"]

    def wrong(message: str, hint: str | None = None) -> ExpressionError:
        return ExpressionError(message, *match.span("param"), hint, Code.INSERTED_PARAM)

    if name not in params:
        guess = did_you_mean(name, params) or "; a pattern can insert params only"
        raise wrong(f"unknown param `{name}`{guess}")
    value = params[name]
    if value is None:
        message = f"the config may give `{name}`, and patterns are read before any config"
        raise wrong(message, "Insert a param without `config:`, or compare in `when:`.")
    values = value if isinstance(value, tuple) else (value,)
    for item in values:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise wrong(f"a pattern takes text and integers, not {described(item)}")
    return f"(?:{'|'.join(re.escape(str(item)) for item in values)})"
