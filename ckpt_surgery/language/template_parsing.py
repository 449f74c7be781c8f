"""Parsing of key templates, and the checks that need no match."""

import re
from collections.abc import Iterable, Sequence

import regex

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions import Expression, check, parse
from ckpt_surgery.language.scope import ExpressionError, TemplateError
from ckpt_surgery.language.templates import GroupReference, Inserted, Piece, PlainText, Slash, Template

MAX_TEXT = 4096
"""Limit on the characters of a template."""


_TOKEN = re.compile(
    r"\\(?:(?P<number>[1-9][0-9]?)|g<(?P<name>[^>]*)>|(?P<escaped>[\\/]))"
    r"|\$(?:(?P<dollar>\$)|(?P<open>\{))"
    r"|(?P<slash>/)"
    r"|(?P<text>[^\\$/]+)"
)


def parse_template(text: str) -> Template:
    """Parse a template. Raises ExpressionError with offsets in its text."""
    if len(text) > MAX_TEXT:
        raise TemplateError(f"a template of {len(text)} characters; the limit is {MAX_TEXT}", 0, 1)
    pieces: list[Piece] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(text, at)
        piece = _inserted(text, match.end()) if match["open"] else _simple_piece(match)
        pieces.append(piece)
        at = piece.end + 1 if isinstance(piece, Inserted) else match.end()
    _refuse_empty_components(text, pieces)
    template = Template(
        text,
        tuple(pieces),
        frozenset(name for p in pieces if isinstance(p, Inserted) for name in p.expression.names),
    )
    # Components of text alone are made now, so that their flaws are found while parsing.
    _ = template.segments
    return template


def _stray(text: str, at: int) -> ExpressionError:
    if text[at] == "$":
        group = re.match(r"\$(\d+)", text[at:])
        if group is not None:
            return TemplateError(f"`{group[0]}` is not a group; write `\\{group[1]}`", at, at + group.end())
        return TemplateError("a dollar sign is written `$$`; `${…}` inserts an expression", at, at + 1)
    escape = text[at : at + 2]
    return TemplateError(
        f"`{escape}` means nothing in a template; a backslash is written `\\\\`", at, at + len(escape)
    )


def _simple_piece(match: re.Match[str]) -> Piece:
    start, end = match.span()
    if match["number"] is not None:
        return GroupReference(int(match["number"]), start, end)
    if match["name"] is not None:
        return _named_group(match["name"], start, end)
    if match["slash"] is not None:
        return Slash(start)
    return PlainText(match["escaped"] or match["dollar"] or match["text"], start, end)


def _named_group(name: str, start: int, end: int) -> GroupReference:
    if name.isascii() and name.isdigit() and len(name) <= 4:
        return GroupReference(int(name), start, end)
    if not name.isidentifier():
        raise TemplateError(f"`\\g<{name}>` does not name a group", start, end)
    return GroupReference(name, start, end)


def _inserted(text: str, start: int) -> Inserted:
    end = _closing_brace(text, start)
    try:
        return Inserted(parse(text[start:end]), start, end)
    except ExpressionError as error:
        raise error.shifted(start) from None


def _closing_brace(text: str, start: int) -> int:
    """The offset of the `}` that closes the expression which begins at `start`."""
    depth, at = 0, start
    while at < len(text):
        character = text[at]
        if character in "'\"":
            at = _closing_quote(text, at)
        elif character in "([{":
            depth += 1
        elif character == "}" and depth == 0:
            return at
        elif character in ")]}":
            depth -= 1
        at += 1
    raise TemplateError("`${` is not closed by `}`", start - 2, start)


def _closing_quote(text: str, at: int) -> int:
    quote, start = text[at], at
    at += 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise TemplateError("the text is not closed by a quote", start, start + 1)
    return at


def _refuse_empty_components(text: str, pieces: Iterable[Piece]) -> None:
    """Raises ExpressionError for components that are written empty: `a//b`, `/a`, `a/`, or no text at all."""
    before_is_slash, last = True, -1
    for piece in pieces:
        if isinstance(piece, Slash) and before_is_slash:
            raise TemplateError("the key has an empty component here", piece.start, piece.start + 1)
        before_is_slash = isinstance(piece, Slash)
        last = piece.start
    if before_is_slash:
        raise TemplateError("the key has an empty component here", max(last, 0), max(last, 0) + 1)


def check_template(
    template: Template,
    known: Iterable[str],
    pattern: regex.Pattern[str] | None,
    sources: Sequence[str] = (),
) -> list[ExpressionError]:
    """The errors that show without a match: groups that `pattern` lacks, and those of the expressions.

    With no `pattern` there is no match, so that every group is an error.
    """
    names = frozenset(known)
    errors: list[ExpressionError] = []
    for piece in template.pieces:
        if isinstance(piece, GroupReference):
            errors += _check_group(piece.group, pattern, piece.start, piece.end)
        elif isinstance(piece, Inserted):
            inner = [*check(piece.expression, names, sources), *check_groups(piece.expression, pattern)]
            errors += [error.shifted(piece.start) for error in inner]
    return errors


def check_groups(expression: Expression, pattern: regex.Pattern[str] | None) -> list[ExpressionError]:
    """The errors of `g[…]`, such as `g[3]` where the regular expression has two groups."""
    return [e for use in expression.groups for e in _check_group(use.group, pattern, use.start, use.end)]


def _check_group(
    group: int | str, pattern: regex.Pattern[str] | None, start: int, end: int
) -> list[ExpressionError]:
    if pattern is None:
        message = f"no regular expression here could have a group {group!r}"
    elif group in pattern.groupindex or (isinstance(group, int) and 0 <= group <= pattern.groups):
        return []
    else:
        guess = did_you_mean(str(group), pattern.groupindex)
        message = f"the regular expression has no group {group!r}{guess}"
    return [ExpressionError(message, start, end, code=Code.NO_GROUP)]
