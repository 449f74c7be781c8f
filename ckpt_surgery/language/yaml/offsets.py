"""The offsets of a scalar's characters in the text of the document."""

import re
from collections.abc import Iterator, Mapping, Sequence

from ckpt_surgery.core.text import is_unicode

_TOKENS: Mapping[str, re.Pattern[str]] = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(
        r"\\(?:\r\n|[\r\n])[ \t]*"  # an escaped line break stands for nothing
        r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}|\\.|.",
        re.DOTALL,
    ),
}
_ANY_TOKEN = re.compile(r".", re.DOTALL)
_ESCAPED = dict(zip("0abtnvfreN_LP", "\0\a\b\t\n\v\f\r\x1b\x85\xa0\u2028\u2029", strict=True))
"""Meaning of single letters after a backslash (YAML 1.1, section 5.7). All others mean themselves."""


def value_offsets(raw: str, style: str, value: str) -> list[int] | None:
    """The offset in the raw text of each character of a scalar's value, and of its end.

    Folding only changes white space, so all other characters are matched one by one in order. None if they do
    not match.
    """
    tokens = list(_tokens(raw, style))
    offsets: list[int] = []
    at = 0
    for character in value:
        if not character.isspace():
            at = _next_visible(tokens, at)
            if at == len(tokens) or tokens[at][1] != character:
                return None
        offsets.append(tokens[at][0] if at < len(tokens) else _end(raw, style))
        if at < len(tokens) and character.isspace() == tokens[at][1].isspace():
            at += 1
    return [*offsets, tokens[at][0] if at < len(tokens) else _end(raw, style)]


def _tokens(raw: str, style: str) -> Iterator[tuple[int, str]]:
    """The offset and the character of each piece of the raw text that stands for one character."""
    start, stop = (1, len(raw) - 1) if style in _TOKENS else (0, len(raw))
    if style in ("|", ">"):
        start = raw.find("\n") + 1 or len(raw)  # after the header
    for match in _TOKENS.get(style, _ANY_TOKEN).finditer(raw, start, stop):
        character = _unescaped(match[0]) if style == '"' else match[0][0]
        if character:
            yield match.start(), character


def _unescaped(token: str) -> str:
    """The character that a piece of a double-quoted scalar stands for; empty for an escaped line break."""
    if token[0] != "\\":
        return token
    if token[1] in "\r\n":
        return ""
    if token[1] in "xuU" and len(token) > 2:
        return paired("".join(chr(int(digits, 16)) for digits in re.findall(r"\\[xuU]([0-9a-fA-F]+)", token)))
    return _ESCAPED.get(token[1], token[1])


def paired(text: str) -> str:
    """The text with each surrogate pair made one character, and each half of a pair U+FFFD.

    JSON writes characters beyond U+FFFF as such pairs.
    """
    if is_unicode(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _end(raw: str, style: str) -> int:
    return len(raw) - 1 if style in _TOKENS else len(raw)


def _next_visible(tokens: Sequence[tuple[int, str]], at: int) -> int:
    while at < len(tokens) and tokens[at][1].isspace():
        at += 1
    return at
