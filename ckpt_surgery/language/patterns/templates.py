r"""Key templates: `\1`, `\g<name>`, `${expression}`, `$$`, `\\`, `\/`, and `[0]` for a list index."""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.language.expressions.parsing import Expression, check, check_group, parse
from ckpt_surgery.language.expressions.scope import (
    MAX_STRING,
    ExpressionError,
    GroupUse,
    Scope,
    TemplateError,
    described,
)

_BRACED = re.compile(r"\{(\w+)\}")
_INDEX = re.compile(r"\[([0-9]+)\]")


@dataclass(frozen=True)
class Component:
    """One component of a key that a template gives."""

    name: str
    index: bool
    """Whether it is written as a list index, `[0]`. Then `name` holds the digits."""
    origin: int | None
    """Offset in the matched text from which a group reference took this component as a whole, or None."""


@dataclass(frozen=True)
class Piece:
    """A part of a template between two slashes: text, a group of the match, or an expression."""

    start: int
    """Offset of its first character; of an expression, that after `${`."""
    end: int
    """Offset after its last character; of an expression, that of the `}`."""
    text: str | None = None
    """Text that stands for itself. A `/` in it was written `\\/` and does not end a component."""
    group: int | str | None = None
    """Number or name of a group that is written `\\1` or `\\g<name>`."""
    expression: Expression | None = None

    def group_in(self, pattern: regex.Pattern[str]) -> int | str | None:
        """The group that it stands for, also if it is an expression that is nothing but the group's name."""
        name = None if self.expression is None else self.expression.single_name
        return name if name in pattern.groupindex else self.group


Segment = tuple[Piece, ...]
"""The pieces between two slashes of a template."""

Outline = tuple[str, tuple[int | str, ...]]
"""A key with `%s` in place of each group, and the groups in order."""


class _Run(NamedTuple):
    """Text that one piece of a template gives to a component."""

    text: str
    origin: int | None
    """Offset of the text in the matched text, if a group gave it."""
    literal: bool
    """Whether the template itself has the text."""


@dataclass(frozen=True)
class Template:
    """A checked key template. Two templates are equal if their texts are."""

    text: str
    segments: tuple[Segment, ...] = field(compare=False, repr=False)

    def expand(self, match: regex.Match[str] | None, scope: Scope) -> tuple[Component, ...]:
        """The components of the key. A group that did not take part in the match gives no text.

        The template has passed `check_template`. Raises ExpressionError, with offsets in the template, for an
        empty component and for expressions that fail.
        """
        components: list[Component] = []
        for segment, fixed in zip(self.segments, self.fixed, strict=True):
            components += fixed or _spelled(segment, match, scope)
        if sum(len(component.name) for component in components) > MAX_STRING:
            raise TemplateError(f"the key is longer than {MAX_STRING} characters", 0, len(self.text))
        return tuple(components)

    def names_of(self, match: regex.Match[str]) -> tuple[str, ...] | None:
        """The names of the components that `expand` gives, or None for templates that have to be expanded.

        Most templates are made of text and groups alone, and their keys are split at every `/`.
        """
        outline = _outline(self, match.re)
        if outline is None:
            return None
        text, groups = outline
        texts = match.group(0, *groups)[1:] if groups else ()
        if None in texts:
            return None
        spelled = text % texts
        names = tuple(spelled.split(SEPARATOR))
        return None if "" in names or len(spelled) > MAX_STRING else names

    @cached_property
    def pieces(self) -> Segment:
        """All pieces, without the slashes between them."""
        return tuple(itertools.chain.from_iterable(self.segments))

    def names_beyond(self, pattern: regex.Pattern[str]) -> frozenset[str]:
        """The names that its expressions use, without groups that are inserted as they are (`${n}`)."""
        computed = [p.expression for p in self.pieces if p.expression and p.group_in(pattern) is None]
        return frozenset(name for expression in computed for name in expression.names)

    @cached_property
    def braced(self) -> tuple[str, ...]:
        """Words in braces without a dollar sign. They stand for themselves, which may be a mistake."""
        return tuple(dict.fromkeys(name for p in self.pieces for name in _BRACED.findall(p.text or "")))

    @cached_property
    def keys(self) -> regex.Pattern[str]:
        """A pattern of all keys that the template may give."""
        texts = (
            regex.escape(fixed[0].name)
            if fixed
            else "".join(".*" if piece.text is None else regex.escape(piece.text) for piece in segment)
            for segment, fixed in zip(self.segments, self.fixed, strict=True)
        )
        return regex.compile("/".join(texts), regex.DOTALL)

    @cached_property
    def fixed(self) -> list[list[Component] | None]:
        """The component of each segment that is text alone."""
        return [
            None if any(piece.text is None for piece in segment) else _spelled(segment, None, Scope({}))
            for segment in self.segments
        ]


@functools.lru_cache(maxsize=1024)
def _outline(template: Template, pattern: regex.Pattern[str]) -> Outline | None:
    """The outline of the keys that a template gives; None if it has other expressions or escapes."""
    groups: list[int | str] = []
    outlines: list[str] = []
    for segment in template.segments:
        outline = ""
        for piece in segment:
            group = piece.group_in(pattern)
            if group is not None:
                outline += "%s"
                groups.append(group)
            elif piece.text is not None and not set(piece.text) & set("[" + SEPARATOR):
                outline += piece.text.replace("%", "%%")
            else:
                return None
        outlines.append(outline)
    return SEPARATOR.join(outlines), tuple(groups)


def _spelled(segment: Segment, match: regex.Match[str] | None, scope: Scope) -> list[Component]:
    """The components of one segment; a `/` in a group or in an expression's value makes several of it.

    Empty text adds nothing to a component: where `${a}` is empty, `${a}${b}` is all of b.
    """
    components: list[list[_Run]] = [[]]
    for piece in segment:
        text, origin = _expanded(piece, match, scope)
        for i, part in enumerate(text.split(SEPARATOR) if piece.text is None else [text]):
            if i:
                components.append([])
            if part:
                components[-1].append(_Run(part, origin, piece.text is not None))
            if origin is not None:
                origin += len(part) + len(SEPARATOR)
    if not all(components):
        raise TemplateError("the key would have an empty component", segment[0].start, segment[-1].end)
    return [_component(runs, segment[0].start) for runs in components]


def _component(runs: Sequence[_Run], start: int) -> Component:
    """The component that these texts make; a list index, if its brackets are the template's own."""
    name = "".join(run.text for run in runs)
    index = _INDEX.fullmatch(name) if runs[0].literal and runs[-1].literal else None
    if index is None:
        return Component(name, False, runs[0].origin if len(runs) == 1 else None)
    digits = index[1]
    if digits[0] == "0" and digits != "0":
        raise TemplateError(f"the list index {name} has leading zeros", start, start + 1)
    return Component(digits, True, None)


def _expanded(piece: Piece, match: regex.Match[str] | None, scope: Scope) -> tuple[str, int | None]:
    """The text of a piece, and its offset in the matched text if a group gave it."""
    if piece.text is not None:
        return piece.text, None
    if match is not None and (group := piece.group_in(match.re)) is not None:
        return match[group] or "", match.start(group)
    assert piece.expression is not None, "groups that a match lacks were refused by `check_template`"
    try:
        value = piece.expression.evaluate(scope)
    except ExpressionError as error:
        raise error.shifted(piece.start) from None
    if isinstance(value, bool) or not isinstance(value, str | int):
        message = f"a key is made of text and integers, not {described(value)}"
        raise TemplateError(message, piece.start, piece.end)
    return str(value), None


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
"""Python's errors for an expression that ends elsewhere: at another brace."""


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
    sources: Sequence[str] = (),
    pattern: regex.Pattern[str] | None = None,
) -> list[ExpressionError]:
    """The errors that show without a match: groups that `pattern` lacks, and those of the expressions.

    With no `pattern` there is no match, so that every group is an error.
    """
    errors: list[ExpressionError] = []
    for piece in template.pieces:
        if piece.group is not None:
            errors += check_group(GroupUse(piece.group, piece.start, piece.end), pattern)
        elif piece.expression is not None:
            inner = check(piece.expression, known, sources, pattern)
            errors += [error.shifted(piece.start) for error in inner]
    return errors
