"""JSON documents in files of a checkpoint, read so that every flaw is a SourceError with the path."""

import json
import math
from collections import Counter
from typing import Any, TypeVar

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED, damaged, with_path
from ckpt_surgery.storage.reading import read_file

_T = TypeVar("_T")


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file."""
    text = read_file(path)
    with with_path(path):
        return parse_object(text)


def read_form(path: str, form: type[_T]) -> _T:
    """The JSON document in a file as a msgspec type: types are checked, members without a field ignored.

    Takes half the time and memory of `read_json` for documents with a record for each leaf.
    """
    import msgspec

    text = read_file(path)
    try:
        return msgspec.json.decode(text, type=form)
    except (ValueError, RecursionError):
        # Python accepts more as JSON (NaN, lone surrogates), and its messages are clearer.
        with with_path(path):
            document = parse_object(text)
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise malformed(path, error) from error


def malformed(path: str, error: Exception) -> SourceError:
    """The error to raise for a JSON document whose members are not what they should be."""
    return damaged(f"{shown(path)} is malformed: {shown(str(error))}")


def parse_object(text: bytes, strict: bool = False, hint: str = DAMAGED) -> dict[str, Any]:
    """A JSON object, whose flaws are SourceErrors without a path and with this hint.

    `strict`: only what every reader understands alike, in UTF-8, without repeated names, lone surrogates in
    names, NaN and infinities.
    """
    try:
        value = json.loads(text.decode("utf-8"), **_STRICT) if strict else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not valid JSON: {shown(str(error)[:200])}", hint=hint) from error
    if not isinstance(value, dict):
        raise SourceError(f"a JSON {type(value).__name__} where an object belongs", hint=hint)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name `{repeated[:100]}` comes twice")
    "".join(members).encode()  # a lone surrogate is a ValueError
    return members


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is not a number in JSON, or beyond what a float holds")
    return value


_STRICT: dict[str, Any] = {"object_pairs_hook": _distinct, "parse_constant": _finite, "parse_float": _finite}
