"""Rules that are given on the command line, without a file: `-e`."""

import re
from collections.abc import Sequence
from typing import Any

from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.keys import text_of
from ckpt_surgery.core.text import shown

FORMS = (
    "`s|REGEX|TEMPLATE|`, `s|REGEX|TEXT|g`, `drop:REGEX`, `keep:REGEX`, `KEY = EXPRESSION` or "
    "`add:TEMPLATE = EXPRESSION`"
)
KEEP = "keep:"
EVERYWHERE = "g"
"""Follows a substitution that is made inside keys, wherever the regular expression matches, as in sed."""
_ASSIGNMENT = re.compile(
    r"(?:(?P<add>add:)|(?!add:))(?P<key>[^=]*[^=\s])\s+=\s+(?P<value>.*\S)\s*", re.DOTALL
)
"""A key, an equals sign between blanks, an expression."""
_SUBSTITUTION = re.compile(r"s(?P<sign>[^\w\s\\]).*", re.DOTALL)


def document_of(rules: Sequence[str]) -> dict[str, Any]:
    """The recipe that consists of these rules, in their order, as data.

    `s|REGEX|TEMPLATE|` renames, with any sign in place of `|`, and a backslash before that sign where it is
    meant itself; `s|REGEX|TEXT|g` replaces every match inside keys; `drop:REGEX` leaves leaves out; `KEY =
    EXPRESSION` gives a leaf another value, and
    `add:TEMPLATE = EXPRESSION` adds one. `keep:REGEX` comes after all other rules, wherever it stands: of the
    leaves that no other rule claims, those that match stay and the rest is dropped. Raises UsageError for
    anything else.
    """
    ordered = in_order(rules)
    keeping = [rule for rule in ordered if rule.startswith(KEEP)]
    others = [_rule(rule) for rule in ordered if not rule.startswith(KEEP)]
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
    try:
        if "to" not in document_of([rule])["rules"][0] or not _SUBSTITUTION.fullmatch(rule):
            return None
        document_of([rule + EVERYWHERE])
    except UsageError:
        return None
    return rule + EVERYWHERE


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
    assignment, substitution = _ASSIGNMENT.fullmatch(text), _SUBSTITUTION.fullmatch(text)
    if substitution and (assignment is None or text.endswith(substitution["sign"])):
        return _substitution(text, substitution["sign"])
    if assignment is None:
        blanks = " The sign = stands between blanks." if "=" in text else ""
        raise UsageError(f"not a rule: `-e {shown(text)}`", hint=f"Write {FORMS}.{blanks}")
    if assignment["add"]:
        return {"add": assignment["key"].strip(), "value": assignment["value"]}
    return {"match": _literal(assignment["key"].strip()), "value": assignment["value"]}


def _match(text: str, pattern: str) -> dict[str, Any]:
    return {"match": _given(text, pattern, "regular expression")}


def _substitution(text: str, sign: str) -> dict[str, Any]:
    parts = re.split(rf"(?<!\\){re.escape(sign)}", text[2:])
    if len(parts) == 3 and parts[2] == EVERYWHERE:
        return _inside_keys(text, *(part.replace(f"\\{sign}", sign) for part in parts[:2]))
    if len(parts) != 3 or parts[2]:
        form = f"s{sign}REGEX{sign}TEMPLATE{sign}"
        if len(parts) < 3:
            hint = f"The sign `{sign}` stands before, between and after the two, so also at the end."
        elif len(parts) == 3:
            hint = f"Only `g` can follow the last `{sign}`: leave out `{shown(parts[2])}`."
        else:
            other = "," if sign == "|" else "|"
            hint = (
                f"It has the sign `{sign}` {len(parts)} times instead of 3. Where `{sign}` is part of the "
                f"regular expression take another sign: `s{other}REGEX{other}TEMPLATE{other}`."
            )
        raise UsageError(f"`-e {shown(text)}` is not of the form `{form}`", hint=hint)
    pattern, template = (part.replace(f"\\{sign}", sign) for part in parts[:2])
    return _match(text, pattern) | {"to": _given(text, template, "template")}


def _inside_keys(text: str, pattern: str, replacement: str) -> dict[str, Any]:
    """The rule of `s|REGEX|TEXT|g`. TEXT can be empty, and has the groups `\\1` and `\\g<name>`."""
    pattern = _given(text, pattern, "regular expression")
    for foreign, meant in (("${", "groups are `\\1` and `\\g<name>`"), ("&", "the match is `\\g<0>`")):
        if foreign in replacement:
            raise UsageError(
                f"`-e {shown(text)}`: `{foreign}` has no meaning in what replaces parts of keys",
                hint=f"With `g`, {meant}.",
            )
    part = pattern if pattern == re.escape(pattern) else f"(?:{pattern})"
    return {"match": f".*{part}.*", "to": f"${{sub(key, {pattern!r}, {replacement!r})}}"}


def _given(text: str, part: str, what: str) -> str:
    if not part:
        raise UsageError(f"`-e {shown(text)}`: the {what} is empty", hint=f"Write {FORMS}.")
    return part


def _literal(key: str) -> str:
    """A regular expression for this very key, as a person would write it."""
    return re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", text_of(key))
