"""Params in regular expressions: `${name}` stands for the param's value, taken literally."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.patterns import MAX_PATTERN
from ckpt_surgery.language.scope import Constant, ExpressionError
from ckpt_surgery.language.values import told

_TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"  # an escape, a character class: no param stands there
    r"|(?P<param>\$\{(?P<name>[^\W\d]\w*)\})"
    r"|[^\\\[$]+|.",
    re.DOTALL,
)


class _Part(NamedTuple):
    """A part of the written pattern, and what the pattern that is compiled has in its place."""

    start: int
    """Offset of the part in the written pattern."""
    written: str
    inserted: str


def with_params(text: str, params: Mapping[str, Constant | None]) -> tuple[str, "Origins"]:
    """The pattern with the values of params in place of their names, and where its characters come from.

    `params`: the value of each param by name; None for one that the config of a checkpoint may give, which
    is not known yet. A list stands for any one of its values. Raises ExpressionError, with offsets in the
    written pattern, for unknown names and for values that are neither text nor integers.
    """
    parts: list[_Part] = []
    left = MAX_PATTERN
    for match in _TOKEN.finditer(text):
        inserted = match[0] if match["param"] is None else _literal(match, params, left)
        parts.append(_Part(match.start(), match[0], inserted))
        left -= len(inserted)
    return "".join(part.inserted for part in parts), Origins(parts)


class _InsertionError(ExpressionError):
    """A param cannot be inserted into a pattern."""

    code = Code.INSERTED_PARAM


class Origins:
    """Where the characters of a pattern with params come from in the written one."""

    def __init__(self, parts: Sequence[_Part]):
        self._parts = parts

    def located(self, error: ExpressionError) -> ExpressionError:
        """The same error, pointing at the written pattern."""
        spans = list(self._spans(error.start, max(error.start + 1, error.end)))
        start, end = (spans[0][0], spans[-1][1]) if spans else (error.start, error.end)
        return error.at(start, end)

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The written characters, part by part, that characters of the whole pattern come from."""
        offset = 0
        for part in self._parts:
            low, high = max(start - offset, 0), min(end - offset, len(part.inserted))
            if low < high:
                as_written = part.inserted == part.written
                span = (low, high) if as_written else (0, len(part.written))
                yield part.start + span[0], part.start + span[1]
            offset += len(part.inserted)


def _literal(match: re.Match[str], params: Mapping[str, Constant | None], left: int) -> str:
    """The regular expression that matches the param's value and nothing else.

    `left`: the number of characters up to the limit of a pattern.
    """
    name, span = match["name"], match.span("param")
    if name not in params:
        guess = did_you_mean(name, params) or "; a pattern can insert params only"
        raise _InsertionError(f"unknown param `{name}`{guess}", *span)
    value = params[name]
    if value is None:
        message = f"the config may give `{name}`, and patterns are read before any config"
        raise _InsertionError(message, *span, "Insert a param without `config:`, or compare in `when:`.")
    values = value if isinstance(value, tuple) else (value,)
    length = 0
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int):
            raise _InsertionError(f"a pattern takes text and integers, not {told(one)}", *span)
        length += len(one) if isinstance(one, str) else one.bit_length() // 4  # digits, or fewer
    if length > left:
        raise _InsertionError(f"with `{name}` the pattern has more than {MAX_PATTERN} characters", *span)
    return f"(?:{'|'.join(re.escape(str(one)) for one in values)})"
