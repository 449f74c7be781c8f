"""Regular expressions of recipes: Python's syntax, matched by `regex`, which has timeouts.

Patterns that `re.compile` refuses are refused, and so are those that the two libraries read differently.
"""

import functools
import math
import re
import time
import warnings
from collections.abc import Callable

import regex

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.prefilters import quick_length
from ckpt_surgery.language.scope import ExpressionError

REGEX_SECONDS = 1.0
"""Limit on the processor time of all matches of one pattern."""
SECONDS_PER_MATCH = 1e-4
"""Seconds that each match adds to that limit."""
UNMEASURED_SECONDS = 0.1
"""Wall time after which processor time is measured."""
SHORTEST_TIMEOUT = 0.005
"""Seconds; a shorter timeout would stop too many matches that would have ended."""
MAX_PATTERN = 2000
"""Limit on the characters of a pattern."""
MAX_REPEATS = 100_000
"""Limit on the product of counts such as `{64}`, which `regex` unrolls when it compiles."""


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises ExpressionError, with the offset in the pattern, if it is refused."""
    if len(text) > MAX_PATTERN:
        message = f"a regular expression of {len(text)} characters; the limit is {MAX_PATTERN}"
        raise ExpressionError(message, 0, 1)
    _check_braces(text)
    _check_with_python(text)
    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        start = getattr(error, "pos", None) or 0
        raise ExpressionError(f"not a regular expression: {_sentence(error)}", start, start + 1) from None


def _check_with_python(text: str) -> None:
    """Refuse what `re` refuses or warns about: later versions of it, or `regex`, may read it differently."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except re.error as error:
        start = min(error.pos or 0, max(0, len(text) - 1))
        raise ExpressionError(f"not a regular expression: {error.msg}", start, start + 1) from None
    except (Warning, OverflowError, RecursionError) as error:
        raise ExpressionError(f"not a regular expression: {_sentence(error)}", 0, len(text)) from None


def _sentence(error: BaseException) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "nested too deeply"
    return str(getattr(error, "msg", None) or error)


_TOKEN = re.compile(
    r"\\N\{[^}]*\}|\\."  # an escape
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"  # a character class
    r"|(?P<brace>\{)(?P<count>(?P<low>\d*)(?P<comma>,)?(?P<high>\d*)\})?"
    r"|.",
    re.DOTALL,
)
_VERBOSE = re.compile(r"\(\?[a-zA-Z]*x")


def _check_braces(text: str) -> None:
    """Refuse braces that are not counts, for which `regex` has other uses, and counts that grow too large.

    The bound is the product of all counts of groups times the sum of all others, which holds for any nesting.
    In verbose mode, white space can stand between a group and its count, so all counts are taken for counts
    of groups.
    """
    groups, others, last = 1, len(text), ""
    verbose = _VERBOSE.search(text) is not None
    for match in _TOKEN.finditer(text):
        if match["brace"] is not None:
            count = _count_of(match)
            if last == ")" or verbose:
                groups *= max(1, count)
            else:
                others += count
            if groups * others > MAX_REPEATS:
                message = f"the counts in braces multiply to more than {MAX_REPEATS} repeats"
                raise ExpressionError(message, *match.span())
        last = match[0]


def _count_of(match: re.Match[str]) -> int:
    low, high = match["low"], match["high"]
    if match["count"] is None or not (low or high):
        raise ExpressionError(
            "`{` stands for a count such as {3} or {2,5}; for the character itself write `\\{`",
            match.start(),
            match.start() + 1,
        )
    digits = high or low
    if len(digits) > math.ceil(math.log10(MAX_REPEATS)) + 1:
        raise ExpressionError(f"the count {{{digits}}} is too large", *match.span())
    return int(digits)


Clock = Callable[[], float]
"""Gives seconds since an arbitrary moment."""


class Watch:
    """Bounds the processor time of matches that belong together, such as those of one rule on all keys.

    Work of other threads, and waiting on a busy or suspended machine, does not count. Reading the thread's
    clock takes longer than most matches. The wall clock never shows less, so it alone is read as long as it
    shows that little time has passed.
    """

    def __init__(self, wall: Clock = time.perf_counter, processor: Clock = time.thread_time):
        self._clock = wall
        self._processor = processor
        self._enough = UNMEASURED_SECONDS
        self._seconds = 0.0
        self._matches = 0

    def fullmatch(self, pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
        """The match of the whole text, or None. Raises RecipeError when the time is used up."""
        self._matches += 1
        if len(text) > quick_length(pattern):
            return self._timed(pattern, text)
        started = self._clock()
        found = pattern.fullmatch(text)
        self._seconds += self._clock() - started
        if self._seconds > self._enough:
            self._check(self._seconds, text)
        return found

    def _timed(self, pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
        """A match that might never end. The timeout of `regex` counts the processor time of all threads.

        It can therefore come too early; then the match is tried again with twice the time.
        """
        timeout = SHORTEST_TIMEOUT
        while True:
            timeout = max(2 * timeout, 1.1 * (self._limit() - self._seconds))
            started = self._clock()
            try:
                found = pattern.fullmatch(text, timeout=timeout)
            except TimeoutError:
                self._check(self._seconds + self._clock() - started, text)
            else:
                self._seconds += self._clock() - started
                self._check(self._seconds, text)
                return found

    def _limit(self) -> float:
        exact = self._clock is self._processor
        return self._enough + (SECONDS_PER_MATCH * self._matches if exact else 0)

    def _check(self, seconds: float, text: str) -> None:
        """If the wall clock shows too much, switch to the thread's clock; if that does too, raise
        RecipeError."""
        if seconds <= self._limit():
            return
        if self._clock is not self._processor:
            self._clock, self._enough, self._seconds = self._processor, REGEX_SECONDS, 0.0
            return
        keys = f"{self._matches} keys, the last of them " if self._matches > 1 else ""
        took = f"took more than {self._limit():.2g} s of processor time"
        raise RecipeError(
            f"the regular expression {took} on {keys}`{shown(text)}`",
            hint="Nested repeats such as (a+)+ take exponential time; write the pattern without nesting.",
        )
