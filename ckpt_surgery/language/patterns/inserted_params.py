"""Params in regular expressions: `${name}` stands for the param's value, taken literally."""

import re
from collections.abc import Mapping

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.regexes import MAX_PATTERN
from ckpt_surgery.language.expressions.scope import Constant, ExpressionError
from ckpt_surgery.language.expressions.values import told

_TOKEN = re.compile(
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
    for match in _TOKEN.finditer(text):
        parts.append(match[0] if match["param"] is None else _literal(match, params, left))
        left -= len(parts[-1])
    return "".join(parts)


class _InsertionError(ExpressionError):
    """A param cannot be inserted into a pattern."""

    code = Code.INSERTED_PARAM


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
    for item in values:
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise _InsertionError(f"a pattern takes text and integers, not {told(item)}", *span)
        length += len(item) if isinstance(item, str) else item.bit_length() // 4  # digits, or fewer
    if length > left:
        raise _InsertionError(f"with `{name}` the pattern has more than {MAX_PATTERN} characters", *span)
    return f"(?:{'|'.join(re.escape(str(item)) for item in values)})"
