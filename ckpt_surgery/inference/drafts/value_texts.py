"""The values of formations as the text of a rule: holes filled with expressions, lists with look-ups."""

import re
import string
from collections.abc import Sequence

_XS = re.compile(r"\bxs\b(?:\[(\d+)\])?")
_X = re.compile(r"'[^']*'|\bx\b(?!\s*=[^=])")
_PLAIN = re.compile(r"[\w.]+|\w+\(\w+\)|\w+\[[^\[\]]*\]")
_AFTER = "]),:"
"""Characters after a hole that hold an expression together without parentheses."""


def gathers(text: str) -> bool:
    """Whether a value speaks of several leaves."""
    return _XS.search(text) is not None


def takes_apart(text: str) -> bool:
    """Whether a value speaks of several leaves one by one, as `xs[0]` and `xs[1]`."""
    found = _XS.findall(text)
    return bool(found) and all(found)


def with_holes(text: str, expressions: Sequence[str]) -> str:
    """The value with an expression for each of its holes."""
    found = ""
    parts = list(string.Formatter().parse(text))
    for at, (literal, field, _, _) in enumerate(parts):
        found += literal
        if field is None:
            continue
        following = parts[at + 1][0] if at + 1 < len(parts) else ""
        found += _held(found, expressions[int(field)], following)
    return found


def _held(before: str, expression: str, after: str) -> str:
    """The expression, in parentheses where its neighbours could tear it apart."""
    alone = not before or before[-1] in "[(,:=" or before.endswith(", ")
    ends = not after or after[0] in _AFTER
    return expression if _PLAIN.fullmatch(expression) or (alone and ends) else f"({expression})"


def with_sources(text: str, sources: Sequence[str]) -> str:
    """The value with an expression for each leaf of `xs`."""

    def replaced(match: re.Match[str]) -> str:
        return f"[{', '.join(sources)}]" if match[1] is None else sources[int(match[1])]

    return _XS.sub(replaced, text)


def read_alone(text: str, source: str) -> str:
    """The value with an expression for `x`; what stands in quotes, and names of arguments, are left alone."""
    return _X.sub(lambda match: source if match[0] == "x" else match[0], text)
