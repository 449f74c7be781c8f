"""The values of unquoted scalars, without those that YAML readers disagree about."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.text import abridged

MAX_NUMBER = 40
"""Limit on the characters of a number."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS: Mapping[str, bool | None] = {"": None, "null": None, "true": True, "false": False}
_DISPUTED: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), "write it in quotes, or true/false"),
    (re.compile(r"true|false|null", re.IGNORECASE), "write it in quotes, or in lower case"),
    (re.compile(r"~"), "write it in quotes, or null"),
    (re.compile(r"[-+]?0[0-9_]+(?:\.[0-9_]*)?"), "write it in quotes, or without leading zeros"),
    (re.compile(r"[-+]?0(?:[xX][0-9a-fA-F_]+|[oO][0-7_]+|[bB][01_]+)"), "write it in quotes, or in decimal"),
    (
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"),
        "write it in quotes, or as a plain decimal number such as 0.5",
    ),
    (re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE), "write it in quotes"),
    (re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "write it in quotes"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?"), "write it in quotes"),
)


PlainValue = bool | int | float | str | None


@dataclass(frozen=True)
class Disputed:
    """An unquoted scalar that is refused, and the message."""

    message: str


def plain_value(text: str) -> PlainValue | Disputed:
    """The value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if (match := _NUMBER.fullmatch(text)) is not None:
        return _number(text, whole=match[1] is None and match[2] is None)
    for pattern, advice in _DISPUTED:
        if pattern.fullmatch(text):
            return Disputed(f"`{text[:60]}` means different things to different YAML readers; {advice}")
    return text


def _number(text: str, whole: bool) -> int | float | Disputed:
    if len(text) > MAX_NUMBER:
        return Disputed(f"a number of {len(text)} characters is too long; the limit is {MAX_NUMBER}")
    if whole:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else Disputed(f"{text} is beyond what a float holds")


def yaml_word(value: Any) -> str:
    """Describe a value of a document in the words of YAML."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return abridged(value)
