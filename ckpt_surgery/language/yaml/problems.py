"""Explains the errors of YAML's parser to people who write recipes."""

import yaml

from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.yaml.document import YamlDocument
from ckpt_surgery.language.yaml.quoting import unquoted_at


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
    late = _closed_late(text, index)
    if late is not None:
        start, line = late
        message = f"the quote that opens here is closed on line {line} only, by one that looks like another's"
        return message, start, "Close it on its own line."
    unquoted = unquoted_at(text, index)
    if unquoted is not None:
        sign = _sign(unquoted.text)
        sign = "a backquote" if sign == "`" else f"`{sign}`"
        message = f"{sign} has a meaning of its own in YAML: this text needs quotes"
        return message, unquoted.start, unquoted.hint
    if problem == "mapping values are not allowed here":
        hint = "Put the whole text in single quotes; or, if it is a field, check how its line is indented."
        return "`: ` is not allowed inside a text without quotes", index, hint
    return f"not valid YAML: {', '.join(part for part in (error.context, problem) if part)}", index, None


def _sign(text: str) -> str:
    """The first character of a text that has a meaning in YAML there."""
    if text[0] in "[{*&!%@`|>?#-":
        return text[0]
    return next((character for character in text if character in "[]{},:"), text[0])


def _closed_late(text: str, index: int) -> tuple[int, int] | None:
    """Start of a quoted text of several lines that ends just before the index, and its last line."""
    quote = None
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if token.start_mark.index >= index:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                quote = token
    except yaml.YAMLError:
        pass  # what comes after it is wrong, which is why somebody asks
    if (
        quote is None
        or quote.start_mark.line == quote.end_mark.line
        or text[quote.end_mark.index : index].strip()
    ):
        return None
    return quote.start_mark.index, quote.end_mark.line + 1
