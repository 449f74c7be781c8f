"""Regular expressions of recipes: Python's syntax, matched by `regex`, which can stop after a time.

What `re.compile` refuses is refused, and so is what the two libraries understand differently.
"""

import functools
import math
import re
import warnings

import regex

from ckpt_surgery.errors import RecipeError
from ckpt_surgery.keys import shown
from ckpt_surgery.prefilters import quick_length
from ckpt_surgery.scope import ExpressionError

REGEX_TIMEOUT = 1.0
"""Seconds that one match may take."""
MAX_PATTERN = 2000
"""Characters."""
MAX_REPEATS = 100_000
"""How far counts such as `{64}` may multiply: `regex` unrolls them when it compiles."""


@functools.lru_cache(maxsize=1024)
def compile_pattern(text: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises ExpressionError, with the offset in the pattern, where it is refused."""
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
    """A warning of `re` means that a later version, or `regex`, reads the pattern differently."""
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
    """Refuse braces that are no counts (`regex` has other uses for them), and counts that grow too large.

    The bound is the product of all counts of groups times the sum of the others, so that nesting need
    not be followed. In verbose mode white space may hide a group before its count: all are taken for one.
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


def fullmatch(pattern: regex.Pattern[str], text: str) -> regex.Match[str] | None:
    """The match of the whole text, if there is one. Raises RecipeError after REGEX_TIMEOUT seconds."""
    if len(text) <= quick_length(pattern):
        return pattern.fullmatch(text)  # watching the time takes longer than most matches
    try:
        return pattern.fullmatch(text, timeout=REGEX_TIMEOUT)
    except TimeoutError:
        raise RecipeError(
            f"the regular expression took more than {REGEX_TIMEOUT:g} s on `{shown(text)}`",
            hint="Nested repeats such as (a+)+ take exponential time; write them without nesting.",
        ) from None
