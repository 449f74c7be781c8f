"""Texts that need quotes in YAML: where they are, and how they are written."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

_VALUE = re.compile(
    r"""(?:^[ \t]*(?:-[ \t]+)*|[{,][ \t]*)(?P<key>[\w.${}\\/-]+):[ \t]+(?=[^\s'"])"""
    r"""|^[ \t]*(?:-[ \t]+)+(?=[^\s'"])"""
)
"""What comes before a value without quotes: a key, or the dash of a list."""
_FLOW_END = re.compile(r"(?=,[ \t]*[\w.-]+:[ \t]|[ \t]*\}[ \t\]},]*$)")
"""What follows a value inside braces: the next key, or the brace that closes the line."""
_PATTERNS = frozenset({"match", "fill"})
"""Fields that are texts always; a value of other fields can be a list or a mapping."""
_SIGNS = re.compile(r"[\[\]{},*&!%@`|>?#:-]")
"""Characters that have a meaning in YAML at the beginning of a value, or inside braces."""


class Unquoted(NamedTuple):
    """A text that needs quotes."""

    start: int
    """Offset of its first character in the document."""
    text: str

    @property
    def hint(self) -> str:
        """What to write instead."""
        return f"Put it in single quotes: {quoted(self.text)}"


def quoted(text: str) -> str:
    """The text in single quotes, as YAML has it."""
    return "'" + text.replace("'", "''") + "'"


def unquoted_at(text: str, index: int) -> Unquoted | None:
    """Find the text that needs quotes, near the offset of an error of YAML's parser.

    None unless quotes let the parser read on beyond that text.
    """
    begin = text.rfind("\n", 0, index) + 1
    end = (text + "\n").index("\n", index)
    for offset, value, key in _values(text[begin:end]):
        start, stop = begin + offset, begin + offset + len(value)
        if start <= index <= stop and _is_text(value, key):
            error = _first_error(f"{text[:start]}{quoted(value)}{text[stop:]}")
            if error is None or error > start + len(quoted(value)):
                return Unquoted(start, value)
    return None


def value_at(text: str, start: int) -> str:
    """The text without quotes that begins here, up to the end of its line or of its entry inside braces."""
    begin = text.rfind("\n", 0, start) + 1
    line = text[begin : (text + "\n").index("\n", start)]
    return next(
        (value for offset, value, _ in _values(line) if begin + offset == start), line[start - begin :]
    )


def _values(line: str) -> Iterator[tuple[int, str, str | None]]:
    """Offset, text and key of each value without quotes of a line, the last one first."""
    line = re.sub(r"[ \t]+#.*|[ \t]+$", "", line)
    for start in reversed(list(_VALUE.finditer(line))):
        rest = line[start.end() :]
        ends = [end.start() for end in _FLOW_END.finditer(rest)] if "{" in line[: start.end()] else []
        value = next((rest[:end] for end in ends if _balanced(rest[:end])), rest)
        if value:
            yield start.end(), value, start["key"]


def _is_text(value: str, key: str | None) -> bool:
    """Whether a value is meant as text: a list or a mapping ends with its bracket."""
    if not _SIGNS.search(value) or not _balanced(value) or ": " in value:
        return False
    if value[0] not in "[{" or key in _PATTERNS:
        return True
    closed = value.find("]" if value[0] == "[" else "}")
    return 0 < closed < len(value) - 1 and value[closed + 1] not in " ,]}"


def _balanced(value: str) -> bool:
    return all(value.count(opening) == value.count(closing) for opening, closing in ("[]", "{}"))


def _first_error(text: str) -> int | None:
    """Offset of the first error of a document; None where it is YAML."""
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        return 0 if error.problem_mark is None else error.problem_mark.index
    except yaml.YAMLError:
        return 0
    return None
