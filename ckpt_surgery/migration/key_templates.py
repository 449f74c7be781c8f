"""Keys of other programs' rules: recognize plain ones, check patterns, translate replacements."""

import re
from collections.abc import Callable, Mapping
from itertools import count, islice, pairwise
from types import MappingProxyType

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.regexes import MAX_PATTERN, compile_pattern
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.patterns.templates import parse_template

SOURCE = "source"
NO_NAMES: Mapping[str, str] = MappingProxyType({})


def literal(pattern: str) -> str | None:
    """The only text that a regular expression matches, if it has no special characters; else None."""
    if re.search(r"(?<!\\)(?:\\\\)*(?:[.^$*+?{}\[\]|()]|\\[A-Za-z0-9])", pattern):
        return None
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


_BRACE = re.compile(
    r"(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])"  # an escape, a character class
    r"|\{(?!(?:[0-9]+(?:,[0-9]*)?|,[0-9]*)\})",
    re.DOTALL,
)


def with_plain_braces(pattern: str) -> str:
    """Escape each `{` that Python reads as the character itself."""
    return _BRACE.sub(lambda match: match["other"] or "\\{", pattern)


def check_pattern(pattern: str, about: str, longest: int = MAX_PATTERN, hint: str | None = None) -> None:
    """Raise UsageError for a regex that recipes do not accept. `about`: what it is. `hint`: another hint."""
    try:
        compile_pattern(pattern, longest)
    except ExpressionError as error:
        raise UsageError(f"{about}: {error.message}", hint=hint or error.hint) from None


def with_free_names(pattern: str) -> tuple[str, Mapping[str, str]]:
    """Rename groups whose names recipes do not accept: `x` becomes `x_`. Returns the regex and new names."""
    reserved = {SOURCE: "a source"}
    groups = re.compile(pattern).groupindex
    names = {name: f"{name}_" for name in groups if name_problem(name, reserved) and f"{name}_" not in groups}
    for old, new in names.items():
        for start, end in (("(?P<", ">"), ("(?P=", ")"), ("(?(", ")")):
            pattern = pattern.replace(f"{start}{old}{end}", f"{start}{new}{end}")
    return pattern, names


def template_of(replacement: str, pattern: str, about: str, renamed: Mapping[str, str] = NO_NAMES) -> str:
    """Translate a replacement, as `re.Match.expand` reads it, to a template of recipes.

    Python expands it, with a unique mark for each group. `about`: what the replacement is, for messages.
    `renamed`: other names that groups have in the recipe. Raises UsageError.
    """
    groups = re.compile(pattern)
    names = {number: name for name, number in groups.groupindex.items()}
    unused = (chr(code) for code in count(0xF0000) if chr(code) not in pattern + replacement)
    start, *marks, end = islice(unused, groups.groups + 2)
    marked = [f"(?P<{names[n]}>{mark})" if n in names else f"({mark})" for n, mark in enumerate(marks, 1)]
    match = re.fullmatch(f"{start}{''.join(marked)}{end}", f"{start}{''.join(marks)}{end}")
    assert match is not None
    try:
        expanded = match.expand(replacement).replace(match[0], start)
    except (re.error, IndexError) as error:
        raise UsageError(f"{about} is not a replacement: {error}") from None
    references = {start: "0"} | {
        mark: renamed.get(names[n], names[n]) if n in names else str(n) for n, mark in enumerate(marks, 1)
    }
    spelled = (_spelled(*pair, references) for pair in pairwise(f"{expanded}/"))
    template = without_indices("".join(spelled))
    try:
        parse_template(template)
    except ExpressionError as error:
        raise UsageError(f"{about}: {error.message}", hint=error.hint) from None
    return template


def _spelled(character: str, following: str, references: Mapping[str, str]) -> str:
    """Write a character of an expanded replacement for a template. `following`: the character after it."""
    group = references.get(character)
    if group is None:
        return {"\\": "\\\\", "$": "$$"}.get(character, character)
    is_short = group.isdecimal() and group != "0" and len(group) <= 2 and not following.isdecimal()
    return f"\\{group}" if is_short else rf"\g<{group}>"


def without_indices(template: str) -> str:
    """Quote parts of a template such as `[0]`, which would be an index of a list."""
    quoted: Callable[[re.Match[str]], str] = lambda match: "${'" + match[0] + "'}"  # noqa: E731
    return re.sub(r"(?:(?<=/)|^)\[[0-9]+\](?=/|$)", quoted, template)
