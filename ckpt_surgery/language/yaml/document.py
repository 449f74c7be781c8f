"""A parsed document: plain values, and the place of each in the text."""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from ckpt_surgery.core.errors import Place, Problem
from ckpt_surgery.core.text import brief, is_unicode

DocumentPath = tuple[str | int, ...]
"""The keys and list indices that lead to a value: `("rules", 3, "value")`."""


@dataclass(frozen=True)
class Mark:
    """The place of a node of the document, as character offsets in the text. `stop` is exclusive."""

    start: int
    stop: int
    style: str | None = None
    """Style of a scalar: empty (plain), `'`, `"`, `|` or `>`. None for a list or a mapping."""
    value: str = ""  # Characters of a scalar, before they are converted to a number

    __repr__ = brief


@dataclass(frozen=True)
class YamlDocument:
    """A parsed document: plain values, and the place of each."""

    path: str  # Path of the file as the user gave it
    text: str
    value: Any  # None, bool, int, float, str, list, or dict with str or int keys
    marks: Mapping[DocumentPath, Mark]  # Place of each value
    key_marks: Mapping[DocumentPath, Mark]  # Place of the key of each value of a mapping
    problems: tuple[Problem, ...] = ()
    """Problems found. With any, parts of `value` that were refused are missing or a guess."""
    rules: Mapping[DocumentPath, str] | None = None
    """None for a text that somebody wrote. For one that stands for data, what rules were made of, by their
    paths, such as "transform `a/(.*)`": its places have no lines."""

    __repr__ = brief

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\n|\r", self.text))]

    def place(self, path: DocumentPath, start: int | None = None, end: int | None = None) -> Place:
        """The place of a value, or of the characters `start` to `end` of a scalar's value.

        For a path that is not in the document, such as a missing field, it is that of the nearest container.
        """
        if path in self.marks:
            return self._located(self.marks[path], path, start, end)
        nearest = (path[:n] for n in reversed(range(len(path))) if path[:n] in self.marks)
        return self._located(self.marks.get(next(nearest, ()), Mark(0, 0)), path, None, None)

    def key_place(self, path: DocumentPath, start: int | None = None, end: int | None = None) -> Place:
        """The place of the key of a value, or of some of the key's characters."""
        if path not in self.key_marks:
            return self.place(path, start, end)
        return self._located(self.key_marks[path], path, start, end)

    def _located(self, mark: Mark, path: DocumentPath, start: int | None, end: int | None) -> Place:
        if self.rules is not None:
            return self._in_data(mark, path, start, end)
        first, stop = mark.start, mark.stop
        if mark.style is None:
            stop = first + 1
        elif start is not None:
            offsets = value_offsets(self.text[mark.start : mark.stop], mark.style, mark.value)
            if offsets is not None:
                first = mark.start + offsets[min(start, len(mark.value))]
                stop = mark.start + offsets[min(start + 1 if end is None else end, len(mark.value))]
        return self.at(first, stop, path_text(path))

    def _in_data(self, mark: Mark, path: DocumentPath, start: int | None, end: int | None) -> Place:
        """The place of a value without a text around it."""
        first, rules = start or 0, self.rules or {}
        stop = len(mark.value) if start is None else start + 1 if end is None else end
        name = next((rules[path[:n]] for n in range(len(path), 0, -1) if path[:n] in rules), None)
        field = path_text(path[2:]) if name is not None else ""
        name = f"{name}, {field}" if field else name
        if name is not None and field != "match":  # an expression that nobody wrote
            return Place(self.path, path_text(path), None, 1, "", name=name)
        text = _on_one_line(mark.value)
        return Place(self.path, path_text(path), None, first + 1, text, max(1, stop - first), name)

    def lines(self, path: DocumentPath) -> list[tuple[int, str]]:
        """The lines that a value is written on, whole, each with its number from 1 on; none of data."""
        if self.rules is not None:
            return []
        held = (*self.marks.items(), *self.key_marks.items())
        # Marks of lists and mappings have only their beginning.
        stop = max(mark.stop for where, mark in held if where[: len(path)] == path)
        start, last = self.marks[path].start, len(self.text[:stop].rstrip()) - 1
        numbers = range(self.line(start), self.line(max(start, last)) + 1)
        return [(n, _on_one_line(self._line_text(n))) for n in numbers]

    def line(self, offset: int) -> int:
        """The number of the line of a character of the text, from 1."""
        return bisect_right(self._line_starts, offset)

    def at(self, start: int, stop: int, path: str = "") -> Place:
        """The place of the characters `start` to `stop` of the text. The caret stays on the first line."""
        line = self.line(start)
        before, shown = start - self._line_starts[line - 1], self._line_text(line)
        width = max(1, min(stop - start, len(shown) - before))
        return Place(self.path, path, line, before + 1, _on_one_line(shown), width)

    def _line_text(self, number: int) -> str:
        start, *following = self._line_starts[number - 1 : number + 1]
        return self.text[start : following[0] if following else None].rstrip("\r\n")


def _on_one_line(line: str) -> str:
    """The line with every character that would move the caret or the terminal replaced, one for one."""
    if line.isprintable():
        return line
    return "".join(" " if c == "\t" else c if c.isprintable() else "�" for c in line)


def path_text(path: DocumentPath) -> str:
    """The path as people write it: `rules[3].value`."""
    text = ""
    for part in path:
        if isinstance(part, str) and part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text


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

    Folding only changes white space, so all others are matched one by one. None if they do not match.
    """
    start, stop = (1, len(raw) - 1) if style in _TOKENS else (0, len(raw))
    if style in ("|", ">"):
        start = raw.find("\n") + 1 or len(raw)  # after the header
    # Each piece of the raw text that stands for one character, and the end.
    pieces = _TOKENS.get(style, _ANY_TOKEN).finditer(raw, start, stop)
    tokens = [(match.start(), _unescaped(match[0]) if style == '"' else match[0][0]) for match in pieces]
    tokens = [*filter(itemgetter(1), tokens), (stop, "")]
    offsets: list[int] = []
    at = 0
    for character in value:
        while tokens[at][1].isspace() and not character.isspace():
            at += 1
        if tokens[at][1] != character and not character.isspace():
            return None
        offsets.append(tokens[at][0])
        at += bool(tokens[at][1]) and character.isspace() == tokens[at][1].isspace()
    return [*offsets, tokens[at][0]]


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
