"""Keys of Orbax's transforms: recognize plain keys, and translate `original_key` to a template of recipes."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.language.expressions.naming import name_problem
from ckpt_surgery.language.expressions.regexes import MAX_PATTERN, compile_pattern
from ckpt_surgery.language.expressions.scope import ExpressionError
from ckpt_surgery.language.patterns.template_parsing import parse_template

SOURCE = "source"
NO_NAMES: Mapping[str, str] = MappingProxyType({})
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
"""Characters for a backslash and a letter in a template of `re`."""
_TOKEN = re.compile(
    r"\\(?:g<(?P<name>[^>]*)>|(?P<octal>0[0-7]{0,2}|[0-3][0-7]{2})|(?P<number>[1-9][0-9]?)|(?P<letter>.))"
    r"|(?P<text>[^\\]+)",
    re.DOTALL,
)


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


def check_pattern(pattern: str, longest: int = MAX_PATTERN) -> None:
    """Raise UsageError for a regular expression that recipes do not accept, or read differently."""
    try:
        compile_pattern(pattern, longest)
    except ExpressionError as error:
        raise UsageError(
            f"the transform `{shown(pattern)}`: {error.message}",
            hint="Write its key in a way that Python's `re` reads without doubt; `\\` before a character "
            "stands for itself.",
        ) from None


def with_free_names(pattern: str) -> tuple[str, Mapping[str, str]]:
    """Rename groups whose names recipes do not accept; returns the regular expression and the new names.

    The pattern is one that `check_pattern` accepts. Groups called `x` or `key`, for example, get a `_`.
    """
    reserved = {SOURCE: "a source"}
    groups = re.compile(pattern).groupindex
    names = {name: f"{name}_" for name in groups if name_problem(name, reserved) and f"{name}_" not in groups}
    for old, new in names.items():
        for start, end in (("(?P<", ">"), ("(?P=", ")"), ("(?(", ")")):
            pattern = pattern.replace(f"{start}{old}{end}", f"{start}{new}{end}")
    return pattern, names


def template_of(original_key: object, pattern: str, names: Mapping[str, str] = NO_NAMES) -> str:
    """Translate an `original_key`, as `re.Match.expand` reads it, to a template of recipes.

    `names`: other names that groups have in the recipe. Raises UsageError.
    """
    about = f"the transform `{shown(pattern)}`: `original_key`"
    if not isinstance(original_key, str):
        raise UsageError(f"{about} has to be text with `/` between its parts, not {original_key!r}")
    pieces = []
    at = 0
    while at < len(original_key):
        match = _TOKEN.match(original_key, at)
        if match is None:
            raise UsageError(f"{about} ends in a backslash")
        pieces.append(_piece(match, re.compile(pattern), about, names))
        at = match.end()
    template = without_indices("".join(pieces))
    try:
        parse_template(template)
    except ExpressionError as error:
        raise UsageError(f"{about} {shown(original_key)!r}: {error.message}") from None
    return template


def _piece(match: re.Match[str], pattern: re.Pattern[str], about: str, names: Mapping[str, str]) -> str:
    group = match["name"] or match["number"]
    if match["text"] is not None:
        return _plain(match["text"])
    if match["octal"] is not None:
        return _plain(chr(int(match["octal"], 8)))
    if match["name"] is not None or match["number"] is not None:
        if group not in pattern.groupindex and not (group.isdigit() and int(group) <= pattern.groups):
            raise UsageError(f"{about} names the group `{shown(group)}`, which the key does not have")
        followed = match.string[match.end() : match.end() + 1].isdigit()
        return f"\\g<{names.get(group, group)}>" if match["name"] is not None or followed else f"\\{group}"
    letter = match["letter"]
    if letter in _ESCAPES:
        return _plain(_ESCAPES[letter])
    if letter.isascii() and letter.isalpha():
        raise UsageError(f"{about} has the escape `\\{letter}`, which means nothing there")
    return _plain("\\" + letter)


def _plain(text: str) -> str:
    """Write a text as a template that expands to it; a `/` separates the parts of a key."""
    return text.replace("\\", "\\\\").replace("$", "$$")


def without_indices(template: str) -> str:
    """Quote parts of a template such as `[0]`, which would be an index of a list."""
    quoted: Callable[[re.Match[str]], str] = lambda match: "${'" + match[0] + "'}"  # noqa: E731
    return re.sub(r"(?:(?<=/)|^)\[[0-9]+\](?=/|$)", quoted, template)
