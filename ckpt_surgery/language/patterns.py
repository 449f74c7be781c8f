"""Regular expressions of recipes: Python's syntax, matched by `regex`, which has timeouts.

Patterns that `re.compile` refuses are refused, and so are those that the two libraries read differently.
"""

import functools
import math
import re
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import regex

from ckpt_surgery.core.errors import RecipeError
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.prefilters import quick_length
from ckpt_surgery.language.scope import PatternError

T = TypeVar("T")

REGEX_SECONDS = 1.0
"""Limit on the processor time of all matches: of one pattern, and of all patterns of a plan together."""
SECONDS_PER_MATCH = 1e-4
"""Seconds that each match adds to the limit of its pattern."""
SECONDS_PER_MATCH_OF_OTHERS = 1e-5
"""Seconds that each match adds to the limit of all patterns, beyond what those of one pattern add: several
times what a usual match takes."""
UNMEASURED_SECONDS = 0.1
"""Wall time of all matches after which processor time is measured."""
SHORTEST_TIMEOUT = 0.005
"""Seconds; a shorter timeout would stop too many matches that would have ended."""
MAX_PATTERN = 2000
"""Limit on the characters of a pattern."""
MAX_NESTING = 50
"""Limit on the groups around each other in a pattern."""
MAX_REPEATS = 100_000
"""Limit on the product of counts such as `{64}`, which `regex` unrolls when it compiles."""


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str, longest: int = MAX_PATTERN) -> regex.Pattern[str]:
    """The compiled pattern. Raises PatternError, with the offset in the pattern, if it is refused.

    `longest`: limit on its characters, which is for patterns that strangers wrote.
    """
    if len(text) > longest:
        message = f"a regular expression of {len(text)} characters; the limit is {longest}"
        raise PatternError(message, 0, 1)
    _check_size(text)
    _check_with_python(text)
    try:
        return regex.compile(text)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        start = getattr(error, "pos", None) or 0
        raise PatternError(f"not a regular expression: {_sentence(error)}", start, start + 1) from None


def _check_with_python(text: str) -> None:
    """Refuse what `re` refuses or warns about: later versions of it, or `regex`, may read it differently."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(text)
    except re.error as error:
        start = min(error.pos or 0, max(0, len(text) - 1))
        raise PatternError(f"not a regular expression: {error.msg}", start, start + 1) from None
    except (Warning, OverflowError, RecursionError) as error:
        raise PatternError(f"not a regular expression: {_sentence(error)}", 0, len(text)) from None


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


def _check_size(text: str) -> None:
    """Refuse deep nesting, braces that are not counts, for which `regex` has other uses, and large counts.

    The bound is the product of all counts of groups times the sum of all others, which holds for any nesting.
    In verbose mode, white space can stand between a group and its count, so all counts are taken for counts
    of groups.
    """
    groups, others, last, nesting = 1, len(text), "", 0
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
                raise PatternError(message, *match.span())
        last = match[0]
        nesting += (last == "(") - (last == ")")
        if nesting > MAX_NESTING:
            raise PatternError(f"groups are nested deeper than {MAX_NESTING} levels", *match.span())


def _count_of(match: re.Match[str]) -> int:
    low, high = match["low"], match["high"]
    if match["count"] is None or not (low or high):
        raise PatternError(
            "`{` stands for a count such as {3} or {2,5}; for the character itself write `\\{`",
            match.start(),
            match.start() + 1,
        )
    digits = high or low
    if len(digits) > math.ceil(math.log10(MAX_REPEATS)) + 1:
        raise PatternError(f"the count {{{digits}}} is too large", *match.span())
    return int(digits)


Clock = Callable[[], float]
"""Gives seconds since an arbitrary moment."""


class MatchingTime:
    """The time of all matches of a plan, on a clock that all its patterns share.

    Work of other threads, and waiting on a busy or suspended machine, does not count. Reading the thread's
    clock takes longer than most matches. The wall clock never shows less, so it alone is read as long as it
    shows that little time has passed, and nothing is judged by it.
    """

    def __init__(self, wall: Clock = time.perf_counter, processor: Clock = time.thread_time):
        self.clock = wall
        self.seconds = 0.0
        """What the matches have taken; of processor time, from the moment on at which that is measured."""
        self._processor = processor
        self._matches = 0
        self._most = 0

    @property
    def exact(self) -> bool:
        """Whether the clock shows processor time."""
        return self.clock is self._processor

    @property
    def limit(self) -> float:
        """Seconds that the matches so far may take: as many as those of one pattern alone, and few more."""
        if not self.exact:
            return UNMEASURED_SECONDS
        others = SECONDS_PER_MATCH_OF_OTHERS * (self._matches - self._most)
        return REGEX_SECONDS + SECONDS_PER_MATCH * self._most + others

    def begin(self, of_pattern: int) -> None:
        """Count a match. `of_pattern`: the number of matches of its pattern so far."""
        self._matches += 1
        self._most = max(self._most, of_pattern)

    def add(self, seconds: float) -> None:
        """Count the time of a match. Once it is too long for the wall clock, the other clock is read."""
        self.seconds += seconds
        if not self.exact and self.seconds > UNMEASURED_SECONDS:
            self.clock, self.seconds = self._processor, 0.0


class Watch:
    """Bounds the processor time of matches that belong together, such as those of one rule on all keys."""

    def __init__(self, matching: MatchingTime | None = None):
        """`matching`: the time of all matches of the plan, which is bounded too."""
        self._matching = matching or MatchingTime()
        self._seconds = 0.0
        self._matches = 0

    def fullmatch(self, pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
        """The match of the whole text, or None. Raises RecipeError when the time is used up."""
        self._matches += 1
        self._matching.begin(self._matches)
        if len(text) > quick_length(pattern):
            return self._timed(partial(pattern.fullmatch, text), text)
        started = self._matching.clock()
        found = pattern.fullmatch(text)
        self._add(self._matching.clock() - started, text)
        return found

    def sub(self, pattern: regex.Pattern[str], replacement: str, text: str) -> str:
        """The text with every match replaced. Raises RecipeError when the time is used up.

        Raises what `regex` raises for a replacement with groups that the pattern lacks.
        """
        self._matches += 1
        self._matching.begin(self._matches)
        replaced: str = self._timed(partial(pattern.sub, replacement, text), text)
        return replaced

    def _timed(self, search: Callable[..., T], text: str) -> T:
        """A match that might never end. The timeout of `regex` counts the processor time of all threads.

        It can therefore come too early; then the match is tried again with twice the time.
        """
        timeout = SHORTEST_TIMEOUT
        while True:
            timeout = max(2 * timeout, 1.1 * self._left())
            clock = self._matching.clock
            started = clock()
            try:
                found = search(timeout=timeout)
            except TimeoutError:
                if self._matching.exact:
                    self._check(clock() - started, text)
                else:
                    self._matching.add(clock() - started)
            else:
                self._add(clock() - started, text)
                return found

    def _add(self, seconds: float, text: str) -> None:
        """Count the time of a match that ended. Raises RecipeError if it was too long."""
        if self._matching.exact:
            self._check(seconds, text)
            self._seconds += seconds
        self._matching.add(seconds)

    def _left(self) -> float:
        """Seconds that the next match may take."""
        of_all = self._matching.limit - self._matching.seconds
        return min(of_all, self._limit() - self._seconds) if self._matching.exact else of_all

    def _limit(self) -> float:
        return REGEX_SECONDS + SECONDS_PER_MATCH * self._matches

    def _check(self, seconds: float, text: str) -> None:
        """Raise RecipeError if the matches take too long with one more that takes this long."""
        if self._seconds + seconds > self._limit():
            took = f"took more than {self._limit():.2g} s of processor time"
            raise RecipeError(
                f"the regular expression {took} {self._on(text)}", hint=_NESTED, code=Code.SLOW_PATTERN
            )
        limit = self._matching.limit
        if self._matching.seconds + seconds > limit:
            took = f"took more than {limit:.2g} s of processor time"
            this = f"this one {self._on(text)}"
            raise RecipeError(
                f"the regular expressions together {took}, {this}", hint=_NESTED, code=Code.SLOW_PATTERN
            )

    def _on(self, text: str) -> str:
        keys = f"{self._matches} keys, the last of them " if self._matches > 1 else ""
        return f"on {keys}`{shown(text)}`"


_NESTED = "Nested repeats such as (a+)+ take exponential time; write the pattern without nesting."
