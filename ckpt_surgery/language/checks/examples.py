"""Makes an example of the texts that a regular expression matches."""

import functools
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import regex

from ckpt_surgery.language.expressions.regexes import safe_length

ANY = "x"
"""Stands where any character will do."""
LONGEST = 64
"""Limit on the characters of a repeated part; a pattern that needs more of them has no example."""


@functools.lru_cache(maxsize=1024)
def example(pattern: regex.Pattern[str]) -> str | None:
    """A short text that the pattern fully matches.

    None where conditions in it rule out the first guess, or matching could take long.
    """
    text = _text(parser.parse(pattern.pattern))
    return text if len(text) <= safe_length(pattern) and pattern.fullmatch(text) else None


def _text(items: Iterable[Any]) -> str:
    """A text for a sequence of parts."""
    return "".join(_PARTS[kind](value) if kind in _PARTS else "" for kind, value in items)


def _repeat(value: tuple[int, int, Any]) -> str:
    least, most, inside = value
    return (_text(inside) * min(max(least, 1), most, LONGEST))[:LONGEST]


def _one_of(items: Iterable[Any]) -> str:
    """A character of a class: the first that it names, or one that it does not exclude."""
    (kind, value), *others = items
    if kind is kinds.NEGATE:
        excluded = {chr(code) for name, code in others if name is kinds.LITERAL}
        return next(letter for letter in "xyz0" if letter not in excluded or letter == "0")
    if kind is kinds.RANGE:
        return chr(value[0])
    return _text([(kind, value)])


_CATEGORIES = {kinds.CATEGORY_DIGIT: "0", kinds.CATEGORY_SPACE: " ", kinds.CATEGORY_NOT_WORD: "-"}

_PARTS: Mapping[Any, Callable[[Any], str]] = {
    kinds.LITERAL: chr,
    kinds.NOT_LITERAL: lambda code: "y" if chr(code) == ANY else ANY,
    kinds.ANY: lambda _: ANY,
    kinds.CATEGORY: lambda category: _CATEGORIES.get(category, ANY),
    kinds.IN: _one_of,
    kinds.SUBPATTERN: lambda value: _text(value[-1]),
    kinds.ATOMIC_GROUP: _text,
    kinds.BRANCH: lambda value: _text(value[1][0]),
    kinds.MAX_REPEAT: _repeat,
    kinds.MIN_REPEAT: _repeat,
    kinds.POSSESSIVE_REPEAT: _repeat,
}
