r"""Key templates: `\1`, `\g<name>`, `${expression}`, `$$`, `\\`, `\/`, and `[0]` for a list index."""

import functools
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.language.expressions.parsing import Expression, check, check_group, parse
from ckpt_surgery.language.expressions.scope import (
    MAX_STRING,
    ExpressionError,
    Scope,
    TemplateError,
    Use,
    described,
)

_BRACED = re.compile(r"\{(\w+)\}")
OWN = -1  # Stands for an offset in the matched text where the template itself has the text
_INDEX = re.compile(r"\[([0-9]+)\]")


@dataclass(frozen=True)
class Component:
    """One component of a key that a template gives."""

    name: str
    index: bool  # Whether it is written as a list index, `[0]`. Then `name` holds the digits.
    origin: int | None
    """Offset in the matched text from which a group reference took this component as a whole, or None."""


@dataclass(frozen=True)
class Piece:
    """A part of a template between two slashes: text, a group of the match, or an expression."""

    start: int  # Offset of its first character; of an expression, that after `${`
    end: int  # Offset after its last character; of an expression, that of the `}`
    text: str | None = None
    """Text that stands for itself. A `/` in it was written `\\/` and does not end a component."""
    group: int | str | None = None  # Number or name of a group that is written `\1` or `\g<name>`
    expression: Expression | None = None

    def group_in(self, pattern: regex.Pattern[str]) -> int | str | None:
        """The group that it stands for, also if it is an expression that is nothing but the group's name."""
        name = None if self.expression is None else self.expression.single_name
        return name if name in pattern.groupindex else self.group


Segment = tuple[Piece, ...]  # The pieces between two slashes of a template


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
        text, groups = _outline(self, match.re)
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
def _outline(template: Template, pattern: regex.Pattern[str]) -> tuple[str, tuple[int | str, ...]]:
    """The keys that a template gives, with `%s` in place of each group, and the groups in order.

    No text if it has other expressions or escapes.
    """
    groups: list[int | str] = []
    outlines: list[str] = []
    for segment in template.segments:
        outlines.append("")
        for piece in segment:
            if (group := piece.group_in(pattern)) is not None:
                outlines[-1] += "%s"
                groups.append(group)
            elif piece.text is not None and not set(piece.text) & set("[" + SEPARATOR):
                outlines[-1] += piece.text.replace("%", "%%")
            else:
                return "", ()
    return SEPARATOR.join(outlines), tuple(groups)


def _spelled(segment: Segment, match: regex.Match[str] | None, scope: Scope) -> list[Component]:
    """The components of one segment; a `/` in a group or in an expression's value makes several of it.

    Empty text adds nothing to a component: where `${a}` is empty, `${a}${b}` is all of b.
    """
    # The texts of each component, with their offsets in the matched text, or OWN.
    components: list[list[tuple[str, int | None]]] = [[]]
    for piece in segment:
        text, origin = _expanded(piece, match, scope)
        for i, part in enumerate(text.split(SEPARATOR) if piece.text is None else [text]):
            if i:
                components.append([])
            if part:
                components[-1].append((part, origin))
            if origin is not None:
                origin += len(part) + len(SEPARATOR)
    if not all(components):
        raise TemplateError("the key would have an empty component", segment[0].start, segment[-1].end)
    made: list[Component] = []
    for texts in components:
        name, first, last = "".join(text for text, _ in texts), texts[0][1], texts[-1][1]
        index = _INDEX.fullmatch(name) if first == last == OWN else None  # brackets of the template's own
        if index is None:
            made.append(Component(name, False, first if len(texts) == 1 and first != OWN else None))
            continue
        digits, start = index[1], segment[0].start  # digits can be more than Python converts to an integer
        if digits[0] == "0" and digits != "0":
            raise TemplateError(f"the list index {name} has leading zeros", start, start + 1)
        made.append(Component(digits, True, None))
    return made


def _expanded(piece: Piece, match: regex.Match[str] | None, scope: Scope) -> tuple[str, int | None]:
    """The text of a piece, and its offset in the matched text if a group gave it; OWN for text of its own."""
    if piece.text is not None:
        return piece.text, OWN
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


MAX_TEXT = 4096  # Limit on the characters of a template
MOST_BRACES = 32  # Limit on the braces at which an expression in a template may end

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
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(text, at)
        if match["slash"] and segments[-1]:
            segments.append([])
        elif match["slash"]:
            break
        else:
            segments[-1].append(_piece(match))
        at = segments[-1][-1].end + 1 if match["open"] else match.end()
    if not segments[-1]:
        at = min(at, max(len(text) - 1, 0))
        raise TemplateError("the key has an empty component here", at, at + 1)
    template = Template(text, tuple(map(tuple, segments)))
    _ = template.fixed  # made now, so that flaws of components of text alone are found while parsing
    return template


def _stray(text: str, at: int) -> ExpressionError:
    if group := re.compile(r"\$(\d+)").match(text, at):
        return TemplateError(f"`{group[0]}` is not a group; write `\\{group[1]}`", at, group.end())
    if text[at] == "$":
        return TemplateError("a dollar sign is written `$$`; `${…}` inserts an expression", at, at + 1)
    escape = text[at : at + 2]
    message = f"`{escape}` means nothing in a template; a backslash is written `\\\\`"
    return TemplateError(message, at, at + len(escape))


def _piece(match: re.Match[str]) -> Piece:
    start, end = match.span()
    if match["open"]:
        return _inserted(match.string, end)
    name = match["number"] or match["name"]
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
            errors += check_group(Use(piece.group, piece.start, piece.end), pattern)
        elif piece.expression is not None:
            inner = check(piece.expression, known, sources, pattern)
            errors += [error.shifted(piece.start) for error in inner]
    return errors
