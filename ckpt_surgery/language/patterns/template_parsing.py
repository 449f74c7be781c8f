"""Parsing of key templates, and the checks that need no match."""

import itertools
import re
from collections.abc import Iterable, Sequence

import regex

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.language.expressions.parsing import Expression, check, parse
from ckpt_surgery.language.expressions.scope import ExpressionError, TemplateError
from ckpt_surgery.language.patterns.templates import Piece, Template

MAX_TEXT = 4096
"""Limit on the characters of a template."""
MOST_BRACES = 32
"""Limit on the braces at which an expression in a template may end."""

_TOKEN = re.compile(
    r"\\(?:(?P<number>[1-9][0-9]?)|g<(?P<name>[^>]*)>|(?P<escaped>[\\/]))"
    r"|\$(?:(?P<dollar>\$)|(?P<open>\{))"
    r"|(?P<slash>/)"
    r"|(?P<text>[^\\$/]+)"
)

_MISPLACED_END = re.compile("unterminated|was never closed|'}'")
"""What Python says of an expression that ends elsewhere: at another brace."""


def parse_template(text: str) -> Template:
    """Parse a template. Raises ExpressionError with offsets in its text."""
    if len(text) > MAX_TEXT:
        raise TemplateError(f"a template of {len(text)} characters; the limit is {MAX_TEXT}", 0, 1)
    segments: list[list[Piece]] = [[]]
    slashes: list[int] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(text, at)
        at = match.end()
        if match["slash"]:
            slashes.append(match.start())
            segments.append([])
        elif match["open"]:
            segments[-1].append(_inserted(text, at))
            at = segments[-1][-1].end + 1
        else:
            segments[-1].append(_simple_piece(match))
    for segment, end in zip(segments, [*slashes, max(len(text) - 1, 0)], strict=True):
        if not segment:
            raise TemplateError("the key has an empty component here", end, end + 1)
    template = Template(text, tuple(map(tuple, segments)))
    _ = template.fixed  # made now, so that flaws of components of text alone are found while parsing
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
    name = match["name"]
    if match["number"] is not None:
        return Piece(start, end, group=int(match["number"]))
    if name is None:
        return Piece(start, end, match["escaped"] or match["dollar"] or match["text"])
    if name.isascii() and name.isdigit() and len(name) <= 4:
        return Piece(start, end, group=int(name))
    if not name.isidentifier():
        raise TemplateError(f"`\\g<{name}>` does not name a group", start, end)
    return Piece(start, end, group=name)


def _inserted(text: str, start: int) -> Piece:
    """The expression that begins at `start`: it ends at the first `}` that has an expression before it."""
    errors: list[ExpressionError] = []
    for brace in itertools.islice(re.finditer("}", text[start:]), MOST_BRACES):
        end = start + brace.start()
        try:
            return Piece(start, end, expression=parse(text[start:end]))
        except ExpressionError as error:
            errors.append(error)
    if not errors:
        raise TemplateError("`${` is not closed by `}`", start - 2, start)
    wrong = (error for error in errors if not _MISPLACED_END.search(error.message))
    raise next(wrong, errors[0]).shifted(start)


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
        if piece.group is not None:
            errors += _check_group(piece.group, pattern, piece.start, piece.end)
        elif piece.expression is not None:
            inner = check(piece.expression, names, sources)
            inner += check_groups(piece.expression, pattern) if "g" in names else ()
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
