"""Recipes without a file: data or text that a program gives, and rules on the command line, `-e`."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ckpt_surgery.core import keys
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.text import abridged, shown
from ckpt_surgery.language.yaml.document import DocumentPath, Mark, YamlDocument

INDENT = "  "


@dataclass(frozen=True)
class TracedFunction:
    """The user's function that a recipe was traced from."""

    name: str
    """Its name, as messages print it: "`surgery`"."""
    place: str
    """File and line of its definition, as `surgery.py:12`; the name again where it has none."""
    keys: frozenset[str]
    """Texts of the keys of the leaves that it returns."""
    warnings: tuple[str, ...] = ()
    """Sentences about what it computes in another way than the plan."""
    unwritable: tuple[str, ...] = ()
    """Keys of dicts, in place of a list of the source, that the recipe's text makes list indices."""
    rebuilt: Callable[[Mapping[str, Any]], Any] | None = field(default=None, compare=False, repr=False)
    """Makes a tree of the containers that it returns, with these values by key."""

    def check_written(self) -> None:
        """Raise UsageError if the recipe's text makes another tree than the recipe."""
        if self.unwritable:
            raise UsageError(
                f"{self.label} returns a dict with numbers as keys, such as `{shown(self.unwritable[0])}`, "
                "where the source has a list: in the text of a recipe they are indices of that list",
                hint="Give the function itself to `ckpt_surgery.restore` or `ckpt_surgery.apply`, or return "
                "other keys, such as `layer_0`.",
            )

    @property
    def label(self) -> str:
        """Name and place, for sentences."""
        return self.name if self.place == self.name else f"{self.name} ({self.place})"

    def __getstate__(self) -> dict[str, Any]:
        """The state for other processes, which hand no tree back."""
        return {**self.__dict__, "rebuilt": None}


def is_text(recipe: str) -> bool:
    """Whether a text is a recipe itself rather than the path of one: it has more than one line."""
    return "\n" in recipe


def text_of(recipe: Mapping[str, Any]) -> str:
    """A recipe that is given as data, as indented JSON: the text that its messages show.

    Keys that are integers, as tables have them, stay integers, which YAML allows. Raises UsageError for
    values that no recipe can have.
    """
    return _written(recipe, "", "") + "\n"


def data_document(value: Any, path: str, rules: Mapping[DocumentPath, str]) -> YamlDocument:
    """The document of data that a program of ours made: JSON's types, of any size.

    `path`: what messages call it. `rules`: see `YamlDocument`.
    """
    parts = dict(_parts(value, ()))
    marks = {
        where: Mark(0, 0, '"', part) if isinstance(part, str) else Mark(0, 0) for where, part in parts.items()
    }
    keys = {where: Mark(0, 0, '"', str(where[-1])) for where in marks if where and isinstance(where[-1], str)}
    return YamlDocument(path, text_of(value), value, marks, keys, rules=rules)


def _parts(value: Any, where: DocumentPath) -> Iterator[tuple[DocumentPath, Any]]:
    """Parts of a document with their paths, containers before their content."""
    yield where, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _parts(part, (*where, name))


def _written(value: Any, indent: str, where: str) -> str:
    if isinstance(value, Mapping):
        members = []
        for name, item in value.items():
            if not isinstance(name, str | int) or isinstance(name, bool):
                inside = f" in `{where}`" if where else ""
                key = f"the key {abridged(name)}{inside}"
                raise UsageError(f"the recipe has {key}: keys are texts or integers")
            written = _written(item, indent + INDENT, f"{where}.{name}".lstrip("."))
            members.append(f"{json.dumps(name, ensure_ascii=False)}: {written}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        members = [_written(item, indent + INDENT, f"{where}[{i}]") for i, item in enumerate(value)]
    elif value is None or isinstance(value, str | bool | int | float):
        return json.dumps(value, ensure_ascii=False)
    else:
        what = f"{abridged(value)}, of type {type(value).__name__}"
        hint = "A recipe consists of mappings, lists, texts, numbers, true, false and nothing."
        raise UsageError(f"the recipe's `{where}` is {what}, which no recipe can hold", hint=hint)
    begin, end = "{}" if isinstance(value, Mapping) else "[]"
    lines = ",".join(f"\n{indent}{INDENT}{member}" for member in members)
    return f"{begin}{lines}\n{indent}{end}" if members else f"{begin}{end}"


FORMS = (
    "`s|REGEX|TEMPLATE|`, `s|REGEX|TEXT|g`, either also with ` = EXPRESSION` behind it, `drop:REGEX`, "
    "`keep:REGEX`, `KEY = EXPRESSION` or `add:TEMPLATE = EXPRESSION`"
)
KEEP = "keep:"
SIGNS = "|,;:!#%@~"  # Signs that substitutions are written with, the usual one first
BLANKS = "The sign = stands between blanks."
EVERYWHERE = "g"
"""Follows a substitution that is made inside keys, wherever the regular expression matches, as in sed."""
_ASSIGNMENT = re.compile(
    r"(?:(?P<add>add:)|(?!add:))(?P<key>[^=]*[^=\s])\s+=\s+(?P<value>.*\S)\s*", re.DOTALL
)
"""A key, an equals sign between blanks, an expression."""
_SUBSTITUTION = re.compile(r"s(?P<sign>[^\w\s\\]).*", re.DOTALL)
_VALUE = re.compile(
    r"(?P<flags>[^\s=]*)(?:\s+=\s+(?P<value>\S.*?)(?:\s+for\s+(?P<name>\w+)\s+in\s+(?P<range>range\([^'\"]*\)))?)?\s*",
    re.DOTALL,
)
"""Flags of a substitution, and perhaps an expression and the values of a variable in it."""


def document_of(rules: Sequence[str]) -> dict[str, Any]:
    """The recipe that consists of these rules, in their order, as data.

    `s|REGEX|TEMPLATE|` renames, with any sign in place of `|`, and a backslash before that sign where it is
    meant itself; `s|REGEX|TEXT|g` replaces every match inside keys. Both give the leaves another value where
    ` = EXPRESSION` follows, or for each value of a variable one more leaf: ` = x[i] for i in range(4)`.
    `drop:REGEX` leaves leaves out; `KEY = EXPRESSION` gives a leaf another value, and
    `add:TEMPLATE = EXPRESSION` adds one. `keep:REGEX` comes after all other rules, wherever it stands: of the
    leaves that no other rule claims, those that match stay and the rest is dropped. Raises UsageError for
    anything else.
    """
    keeping = [rule for rule in rules if rule.startswith(KEEP)]
    others = [_rule(rule) for rule in rules if not rule.startswith(KEEP)]
    if not keeping:
        return {"version": 1, "rules": others}
    # A rename may well claim everything that is to stay: `s|params/(.*)|\\1|` with `keep:params/.*`.
    optional = {"optional": True} if any("match" in rule and "drop" not in rule for rule in others) else {}
    kept = [_match(rule, rule.removeprefix(KEEP)) | optional for rule in keeping]
    return {"version": 1, "unmatched": "drop", "rules": [*others, *kept]}


def in_order(rules: Sequence[str]) -> list[str]:
    """The rules in the order that they have in the recipe: those that keep leaves come last."""
    return sorted(rules, key=lambda rule: rule.startswith(KEEP))


def inside_keys(rule: str) -> str | None:
    """The rule that replaces inside keys what this one replaces as whole keys; None for other rules.

    Also None where its template would mean something else there.
    """
    with suppress(UsageError):
        substitution = _substitution(rule)
        if substitution is not None and (end := substitution[1]) is not None:
            inside = f"{rule[:end]}{EVERYWHERE}{rule[end:]}"
            document_of([inside])
            return inside
    return None


def one_liner_of(rule: Mapping[str, Any]) -> str | None:
    """The text for the command line that is this `match` rule; None where none is.

    Quotes of its expression may change.
    """
    if set(rule) == {"match", "drop"}:
        return f"drop:{rule['match']}"
    pattern, to, value = rule.get("match"), rule.get("to", "${key}"), rule.get("value")
    if not isinstance(pattern, str) or not isinstance(to, str) or set(rule) - {"match", "to", "for", "value"}:
        return None
    meant, more = {**rule, "to": to}, ""
    if value is not None:
        value = meant["value"] = value if '"' in value or "\\" in value else value.replace("'", '"')
        loops = [f" for {name} in {values}" for name, values in rule.get("for", {}).items()]
        more = "".join([f" = {value}", *loops])
    signs = (sign for sign in SIGNS if sign not in pattern + to)
    texts = (f"s{sign}{pattern}{sign}{to}{sign}{more}" for sign in signs)
    return next((text for text in texts if document_of([text])["rules"] == [meant]), None)


def selection_of(match: str | None, under: str | None) -> dict[str, Any]:
    """The recipe that keeps the leaves which `inspect` shows with these options, and drops all others.

    `match`: regular expression for whole keys. `under`: first components of keys, such as `params/decoder`.
    """
    below = None if under is None else f"{_literal(under.rstrip('/'))}(?:/.*)?"
    kept = [{"match": pattern} for pattern in (below, match) if pattern is not None]
    return {"version": 1, "passes": [{"unmatched": "drop", "rules": [rule]} for rule in kept]}


def _rule(text: str) -> dict[str, Any]:
    if text.startswith("drop:"):
        return _match(text, text.removeprefix("drop:")) | {"drop": True}
    substitution = _substitution(text)
    if substitution is not None:
        return substitution[0]
    assignment = _ASSIGNMENT.fullmatch(text)
    if assignment is None:
        raise UsageError(f"not a rule: `-e {shown(text)}`", hint=f"Write {FORMS}. {BLANKS}")
    if assignment["add"]:
        return {"add": assignment["key"].strip(), "value": assignment["value"]}
    return {"match": _literal(assignment["key"].strip()), "value": assignment["value"]}


def _match(text: str, pattern: str) -> dict[str, Any]:
    return {"match": _given(text, pattern, "regular expression")}


def _substitution(text: str) -> tuple[dict[str, Any], int | None] | None:
    """The rule of a substitution, and its length up to the last sign unless it replaces inside keys.

    None where the text is another rule. Raises UsageError for a wrong one.
    """
    begun, assignment = _SUBSTITUTION.fullmatch(text), _ASSIGNMENT.fullmatch(text)
    if begun is None:
        return None
    sign = begun["sign"]
    signs = [match.start() for match in re.finditer(rf"(?<!\\){re.escape(sign)}", text)]
    if assignment is not None and not text.endswith(sign):
        before = [at for at in signs if at < assignment.end("key")]
        if len(before) != 3 or text[before[2] + 1 : assignment.end("key")] not in ("", EVERYWHERE):
            return None  # the key of a leaf, which has the sign in it
    tail = _VALUE.fullmatch(text, signs[2] + 1) if len(signs) > 2 else None
    if tail is None or tail["flags"] not in ("", EVERYWHERE):
        form = f"`s{sign}REGEX{sign}TEMPLATE{sign}`"
        hint = (
            f"The sign `{sign}` stands before, between and after the two. Behind the last one only `g` and "
            f"` = EXPRESSION` can follow. {BLANKS} Take another sign where `{sign}` is part of the two."
        )
        raise UsageError(f"`-e {shown(text)}` is not of the form {form}", hint=hint)
    pattern, template = (text[a + 1 : b].replace(f"\\{sign}", sign) for a, b in pairwise(signs[:3]))
    more: dict[str, Any] = {} if tail["name"] is None else {"for": {tail["name"]: tail["range"]}}
    if tail["value"] is not None:
        more["value"] = tail["value"]
    if tail["flags"] == EVERYWHERE:
        return _inside_keys(text, pattern, template) | more, None
    to = _given(text, template, "template")
    return _match(text, pattern) | {"to": to} | more, signs[2] + 1


def _inside_keys(text: str, pattern: str, replacement: str) -> dict[str, Any]:
    """The rule of `s|REGEX|TEXT|g`. TEXT can be empty, and has the groups `\\1` and `\\g<name>`."""
    pattern = _given(text, pattern, "regular expression")
    for foreign, meant in (("${", "groups are `\\1` and `\\g<name>`"), ("&", "the match is `\\g<0>`")):
        if foreign in replacement:
            message = f"`-e {shown(text)}`: `{foreign}` has no meaning in what replaces parts of keys"
            raise UsageError(message, hint=f"With `g`, {meant}.")
    part = pattern if pattern == re.escape(pattern) else f"(?:{pattern})"
    return {"match": f".*{part}.*", "to": f"${{sub(key, {pattern!r}, {replacement!r})}}"}


def _given(text: str, part: str, what: str) -> str:
    if not part:
        raise UsageError(f"`-e {shown(text)}`: the {what} is empty", hint=f"Write {FORMS}.")
    return part


def _literal(key: str) -> str:
    """A regular expression for this very key, as a person would write it."""
    return re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", keys.text_of(key))
