r"""Key templates: `\1`, `\g<name>`, `${expression}`, `$$`, `\\`, `\/`, and `[0]` for a list index."""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import regex

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.expressions import Expression
from ckpt_surgery.language.scope import ExpressionError, Scope, TemplateError
from ckpt_surgery.language.values import MAX_STRING, told

_BRACED = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Component:
    """One component of a key that a template gives."""

    name: str
    index: bool
    """Whether it is written as a list index, `[0]`. Then `name` holds the digits."""
    origin: int | None
    """Offset in the matched text from which a group reference took this component as a whole, or None."""


@dataclass(frozen=True)
class PlainText:
    """Text that stands for itself. A `/` in it was written `\\/` and does not end a component."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Slash:
    """A `/` that ends a component."""

    start: int


@dataclass(frozen=True)
class GroupReference:
    """What a group of the regular expression matched."""

    group: int | str
    start: int
    end: int


@dataclass(frozen=True)
class Inserted:
    """`${expression}`."""

    expression: Expression
    start: int
    """Offset of the expression in the template, after `${`."""
    end: int
    """Offset of the `}`."""

    def group_of(self, pattern: regex.Pattern[str]) -> str | None:
        """The pattern's named group, if the expression is nothing but its name; otherwise None."""
        name = self.expression.single_name
        return name if name in pattern.groupindex else None


TextPiece = PlainText | GroupReference | Inserted
Piece = TextPiece | Slash


Outline = tuple[str, tuple[int | str, ...]]
"""A key with `%s` in place of each group, and the groups in order."""


class _Run(NamedTuple):
    """Text that one piece of a template gives, before it is split into components."""

    text: str
    origin: int | None
    """Offset of the text in the matched text, if a group gave it."""
    splits: bool
    """Whether a `/` in the text ends a component."""
    literal: bool
    """Whether the template itself has the text."""


@dataclass(frozen=True)
class Template:
    """A checked key template. Two templates are equal if their texts are."""

    text: str
    pieces: tuple[Piece, ...] = field(compare=False, repr=False)
    names: frozenset[str] = field(compare=False, repr=False)
    """All names that its expressions use."""

    def expand(self, match: regex.Match[str] | None, scope: Scope) -> tuple[Component, ...]:
        """The components of the key. A group that did not take part in the match gives no text.

        Raises ExpressionError, with offsets in the template, for an empty component and for expressions
        that fail.
        """
        components: list[Component] = []
        for segment in self.segments:
            if isinstance(segment, Component):
                components.append(segment)
            else:
                components.extend(_spelled(segment, match, scope))
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
        found = match.group(0, *groups)[1:] if groups else ()
        if None in found:
            return None
        spelled = text % found
        names = tuple(spelled.split(SEPARATOR))
        return None if "" in names or len(spelled) > MAX_STRING else names

    def names_beyond(self, pattern: regex.Pattern[str]) -> frozenset[str]:
        """The names that its expressions use, without groups that are inserted as they are (`${n}`)."""
        groups = [p for p in self.pieces if isinstance(p, Inserted) and p.group_of(pattern) is None]
        return frozenset(name for piece in groups for name in piece.expression.names)

    @cached_property
    def braced(self) -> tuple[str, ...]:
        """Words in braces without a dollar sign. They stand for themselves, which may be a mistake."""
        literals = [piece.text for piece in self.pieces if isinstance(piece, PlainText)]
        return tuple(dict.fromkeys(name for text in literals for name in _BRACED.findall(text)))

    @cached_property
    def keys(self) -> regex.Pattern[str]:
        """A pattern of all keys that the template may give."""
        segments = [[s] if isinstance(s, Component) else s for s in self.segments]
        texts = (
            "".join(
                regex.escape(p.name if isinstance(p, Component) else p.text)
                if isinstance(p, Component | PlainText)
                else ".*"
                for p in pieces
            )
            for pieces in segments
        )
        return regex.compile("/".join(texts), regex.DOTALL)

    @cached_property
    def segments(self) -> list[Component | list[TextPiece]]:
        """What stands between slashes: a component where it is text alone, otherwise its pieces."""
        segments: list[list[TextPiece]] = [[]]
        for piece in self.pieces:
            if isinstance(piece, Slash):
                segments.append([])
            else:
                segments[-1].append(piece)
        return [_spelled(s, None, _NO_NAMES)[0] if _is_text(s) else s for s in segments]


@functools.lru_cache(maxsize=1024)
def _outline(template: Template, pattern: regex.Pattern[str]) -> Outline | None:
    """The outline of the keys that a template gives; None if it has other expressions or escapes."""
    parts: list[str] = []
    groups: list[int | str] = []
    for piece in template.pieces:
        group = piece.group_of(pattern) if isinstance(piece, Inserted) else None
        if isinstance(piece, GroupReference) or group is not None:
            parts.append("%s")
            groups.append(piece.group if isinstance(piece, GroupReference) else group or "")
        elif isinstance(piece, Slash):
            parts.append(SEPARATOR)
        elif isinstance(piece, PlainText) and not set(piece.text) & set("[" + SEPARATOR):
            parts.append(piece.text.replace("%", "%%"))
        else:
            return None
    return "".join(parts), tuple(groups)


_NO_NAMES = Scope({})


def _is_text(segment: Sequence[TextPiece]) -> bool:
    return all(isinstance(piece, PlainText) for piece in segment)


def _spelled(segment: Sequence[TextPiece], match: regex.Match[str] | None, scope: Scope) -> list[Component]:
    """The components of one segment; a `/` in a group or in an expression's value makes several of it."""
    runs = [_expanded(piece, match, scope) for piece in segment]
    if len(runs) == 1 and runs[0].splits:
        components = _split(runs[0])
    else:
        components = [_component(parts, segment[0].start) for parts in _cut(runs)]
    if not all(component.name for component in components):
        start, end = segment[0].start, segment[-1].end
        raise TemplateError("the key would have an empty component", start, end)
    return components


def _split(run: _Run) -> list[Component]:
    components: list[Component] = []
    origin = run.origin
    for part in run.text.split(SEPARATOR):
        components.append(Component(part, False, origin))
        if origin is not None:
            origin += len(part) + 1
    return components


def _cut(runs: Iterable[_Run]) -> list[list[_Run]]:
    """The parts of runs by component, without empty ones: where `${a}` is empty, `${a}${b}` is all of b."""
    components: list[list[_Run]] = [[]]
    for run in runs:
        offset = 0
        for i, part in enumerate(run.text.split(SEPARATOR) if run.splits else [run.text]):
            if i:
                components.append([])
            if part:
                origin = None if run.origin is None else run.origin + offset
                components[-1].append(_Run(part, origin, run.splits, run.literal))
            offset += len(part) + 1
    return components


def _component(parts: Sequence[_Run], start: int) -> Component:
    name = "".join(part.text for part in parts)
    if name and parts[0].literal and parts[-1].literal and name[0] == "[" and name[-1] == "]":
        return _bracketed(name, start)
    return Component(name, False, parts[0].origin if len(parts) == 1 else None)


def _bracketed(name: str, start: int) -> Component:
    digits = name[1:-1]
    if not (digits.isascii() and digits.isdigit()):
        return Component(name, False, None)
    if digits[0] == "0" and digits != "0":
        raise TemplateError(f"the list index {name} has leading zeros", start, start + 1)
    return Component(digits, True, None)


def _expanded(piece: TextPiece, match: regex.Match[str] | None, scope: Scope) -> _Run:
    if isinstance(piece, PlainText):
        return _Run(piece.text, None, splits=False, literal=True)
    if isinstance(piece, GroupReference):
        return _of_group(piece.group, match, piece)
    name = None if match is None else piece.group_of(match.re)
    if name is not None:
        return _of_group(name, match, piece)
    try:
        value = piece.expression.evaluate(scope)
    except ExpressionError as error:
        raise error.shifted(piece.start) from None
    if isinstance(value, bool) or not isinstance(value, str | int):
        message = f"a key is made of text and integers, not {told(value)}"
        raise TemplateError(message, piece.start, piece.end)
    return _Run(str(value), None, splits=True, literal=False)


def _of_group(group: int | str, match: regex.Match[str] | None, piece: GroupReference | Inserted) -> _Run:
    if match is None:
        message = f"no match could have a group {group!r}"
        raise TemplateError(message, piece.start, piece.end, code=Code.NO_GROUP)
    try:
        text, origin = match[group], match.start(group)
    except IndexError:
        message = f"the regular expression has no group {group!r}"
        raise TemplateError(message, piece.start, piece.end, code=Code.NO_GROUP) from None
    return _Run(text or "", origin, splits=True, literal=False)
