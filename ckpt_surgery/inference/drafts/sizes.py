"""Sizes in the expressions of a draft as params: `h=heads` with `heads: 32`, which `--set` changes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_SIZE = re.compile(r"\b(?P<axis>[hle])=(?P<number>\d+)(?=[,)])")
"""A length that a pattern is told: of heads, of layers, of experts."""
_LEAST = 3
"""Smaller numbers are halves and pairs, which are the same in models of all sizes."""
_NOUNS = {"h": "heads", "l": "layers", "e": "experts"}
_SHARED_HEADS = re.compile(r"(?<![a-z])(?:key|value|k|v|kv|wk|wv)(?![a-z])|[kv]_proj")
"""Keys of what groups of heads share."""
_QUERIES = re.compile(r"(?<![a-z])(?:query|q|wq|out|o|wo)(?![a-z])|[qo]_proj")

Rules = Sequence[Mapping[str, Any]]


def named_sizes(rules: Rules) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rules with names in place of lengths, and the numbers by name, in the order in which they occur."""
    names: dict[tuple[str, int], str] = {}
    for rule in rules:
        for axis, number in _sizes(rule):
            _name(_noun(axis, rule), number, names)
    return [_with_names(rule, names) for rule in rules], {name: number for (_, number), name in names.items()}


def _sizes(rule: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The axes of heads, layers and experts whose lengths the rule tells."""
    found = [match for text in _values(rule) for match in _SIZE.finditer(text)]
    return [(match["axis"], int(match["number"])) for match in found if int(match["number"]) >= _LEAST]


def _values(rule: Mapping[str, Any]) -> list[str]:
    several = rule.get("to")
    return [
        *(several.values() if isinstance(several, dict) else ()),
        *([rule["value"]] if "value" in rule else ()),
    ]


def _noun(axis: str, rule: Mapping[str, Any]) -> str:
    """What an axis counts: `kv_heads` where the rule is about keys and values alone."""
    keys = f"{rule.get('match', '')} {rule.get('to', '')}"
    shared = axis == "h" and _SHARED_HEADS.search(keys) is not None and _QUERIES.search(keys) is None
    return "kv_heads" if shared else _NOUNS[axis]


def _name(noun: str, number: int, names: dict[tuple[str, int], str]) -> str:
    """The name of a number: that of its noun, with a number of its own where there are several."""
    if (noun, number) not in names:
        taken = sum(one == noun for one, _ in names)
        names[noun, number] = noun if not taken else f"{noun}_{taken + 1}"
    return names[noun, number]


def _with_names(rule: Mapping[str, Any], names: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    def named(text: str) -> str:
        def put(match: re.Match[str]) -> str:
            name = names.get((_noun(match["axis"], rule), int(match["number"])))
            return match[0] if name is None else f"{match['axis']}={name}"

        return _SIZE.sub(put, text)

    changed = dict(rule)
    if "value" in changed:
        changed["value"] = named(changed["value"])
    if isinstance(changed.get("to"), dict):
        changed["to"] = {key: named(value) for key, value in changed["to"].items()}
    return changed
