"""Regular expressions of recipes: Python's syntax, matched by `regex`, which can stop after a time.

What `re.compile` refuses is refused, and so is what the two libraries understand differently.
"""

import functools
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import regex

from ckpt_surgery.errors import RecipeError
from ckpt_surgery.keys import shown
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


_PLAIN = re.compile(r"(?:[\w/ :@%=,~-]|\\[./\[\](){}*+?^$|\\-])*", re.ASCII)
_OPTIONAL = ("*", "?", "+", "{")
"""What a count follows may be absent."""


@dataclass(frozen=True)
class Literals:
    """Text that is in every match, as far as it is easily told: a cheap test before the match."""

    prefix: str
    """What every match begins with."""
    inner: str
    """The longest run of plain characters after that, outside groups that may be absent."""


@functools.lru_cache(maxsize=1024)
def literals(pattern: regex.Pattern[str]) -> Literals:
    """The text that every match of a pattern has."""
    text = pattern.pattern
    if "|" in text or pattern.flags & (regex.IGNORECASE | regex.VERBOSE):
        return Literals("", "")
    prefix, end = _run(text, 0)
    return Literals(prefix, max(_runs(text, end), key=len, default=""))


def _run(text: str, start: int) -> tuple[str, int]:
    """The plain characters from `start` on that every match has there, and where they end."""
    found = _PLAIN.match(text, start)
    assert found is not None
    plain = re.findall(r"\\?.", found[0])
    if text.startswith(_OPTIONAL, found.end()):
        plain = plain[:-1]
    return "".join(token[-1] for token in plain), found.end()


_SIMPLE_GROUP = re.compile(r"\((?![?*])|\(\?:|\(\?P<\w+>", re.ASCII)
_WORD = re.compile(r"\\\w+", re.ASCII)
"""An escape that may take what follows with it, as `\\x41` does."""


def _runs(text: str, at: int) -> Iterator[str]:
    """The runs of plain characters from `at` on that every match has; none where groups are not simple."""
    groups: list[list[str]] = [[]]
    for token in _TOKEN.finditer(text):
        if token.start() < at:
            continue
        if token[0] == "(":
            opening = _SIMPLE_GROUP.match(text, token.start())
            if opening is None:
                return
            groups.append([])
            at = opening.end()
        elif token[0] == ")":
            found = groups.pop()
            groups[-1] += [] if text.startswith(_OPTIONAL, token.end()) else found
        else:
            run, end = _run(text, token.start())
            groups[-1].append(run)
            escape = _WORD.match(text, token.start())
            at = max(end, token.end(), escape.end() if escape else 0)
    yield from groups[0]


_NESTING = re.compile(r"\)[*+{]|\(\?[^:P]|\(\?P[=>]|\\[1-9gkKGpPX]|\|")
"""What could make a match take more steps than the places where its repeats can end."""
MOST_STEPS = 10**6


@functools.lru_cache(maxsize=1024)
def quick_length(pattern: regex.Pattern[str]) -> int:
    """How long a text may be for its match to take less than MOST_STEPS steps, milliseconds.

    Without nesting and alternatives, k repeats end at k of n places, in n^k / k! ways at most.
    """
    text = pattern.pattern
    if _NESTING.search(text) or pattern.flags & regex.VERBOSE:
        return 0
    repeats = sum(text.count(sign) for sign in "*+?{") - text.count("(?")
    return int((MOST_STEPS * math.factorial(repeats)) ** (1 / max(1, repeats)))


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
