"""Texts that need quotes in YAML, and what is wrong where its parser fails."""

import re
from collections.abc import Iterator
from contextlib import suppress

import yaml

from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.yaml.document import YamlDocument

_VALUE = re.compile(
    r"""(?:^[ \t]*(?:-[ \t]+)*|[{,][ \t]*)(?P<key>[\w.${}\\/-]+):[ \t]+(?=[^\s'"])"""
    r"""|^[ \t]*(?:-[ \t]+)+(?=[^\s'"])"""
)
"""The part of a line before a value without quotes: up to a key, or the dash of a list."""
_FLOW_END = re.compile(r"(?=,[ \t]*[\w.-]+:[ \t]|[ \t]*\}[ \t\]},]*$)")
"""The end of a value inside braces: before the next key, or the brace that closes the line."""
_PATTERNS = frozenset({"match", "fill"})
"""Fields that are texts always; a value of other fields can be a list or a mapping."""
_SIGNS = re.compile(r"[\[\]{},*&!%@`|>?#:-]")
"""Characters that have a meaning in YAML at the beginning of a value, or inside braces."""


def quoted(text: str) -> str:
    """The text in single quotes, as YAML has it."""
    return "'" + text.replace("'", "''") + "'"


def unquoted_at(text: str, index: int) -> tuple[int, str] | None:
    """Find the text that needs quotes, and its offset, near that of an error of YAML's parser.

    None unless quotes let the parser read on beyond that text.
    """
    begin = text.rfind("\n", 0, index) + 1
    end = (text + "\n").index("\n", index)
    for offset, value, key in _values(text[begin:end]):
        start, stop = begin + offset, begin + offset + len(value)
        if start <= index <= stop and _is_text(value, key):
            error = _first_error(f"{text[:start]}{quoted(value)}{text[stop:]}")
            if error is None or error > start + len(quoted(value)):
                return start, value
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


def syntax_problem(error: yaml.YAMLError, path: str, text: str) -> Problem:
    """The problem of a text that is not YAML, at the place where a person has to look."""
    whole = YamlDocument(path, text, None, {}, {})
    if isinstance(error, yaml.reader.ReaderError):
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return Problem(message, whole.at(error.position, error.position + 1))
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(f"{path} is not valid YAML")
    index = min(error.problem_mark.index, len(text))
    message, start, hint = _explained(error, text, index)
    return Problem(message, whole.at(start, start + 1), hint)


def _explained(error: yaml.MarkedYAMLError, text: str, index: int) -> tuple[str, int, str | None]:
    """Message, index of the character that it is about, and hint."""
    problem, opening = error.problem or "", error.context_mark
    if problem.startswith("found unknown escape character"):
        sign = shown(text[index : index + 1])
        message = f"in double quotes a backslash begins an escape, and `\\{sign}` is none"
        return message, max(index - 1, 0), "Put regular expressions in single quotes."
    if problem.startswith("found character '\\t'"):
        return "a tab cannot indent a line", index, "Indent with spaces."
    if problem == "found unexpected end of stream" and opening is not None:
        return "the quote that opens here is never closed", opening.index, None
    if (late := _closed_late(text, index)) is not None:
        start, line = late
        message = f"the quote that opens here is closed on line {line} only, by one that looks like another's"
        return message, start, "Close it on its own line."
    if (unquoted := unquoted_at(text, index)) is not None:
        start, value = unquoted
        message = "this text needs quotes: it has a sign with a meaning of its own in YAML"
        return message, start, f"Put it in single quotes: {quoted(value)}"
    if problem == "mapping values are not allowed here":
        hint = "Put the whole text in single quotes; or, if it is a field, check how its line is indented."
        return "`: ` is not allowed inside a text without quotes", index, hint
    return f"not valid YAML: {', '.join(part for part in (error.context, problem) if part)}", index, None


def _closed_late(text: str, index: int) -> tuple[int, int] | None:
    """Start of a quoted text of several lines that ends just before the index, and its last line."""
    with suppress(yaml.YAMLError):  # what comes after it is wrong, which is why somebody asks
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            start, end = token.start_mark, token.end_mark
            is_quoted = isinstance(token, yaml.ScalarToken) and token.style in ("'", '"')
            is_before = end.index <= index and not text[end.index : index].strip()
            if is_quoted and is_before and start.line < end.line:
                return start.index, end.line + 1
    return None
