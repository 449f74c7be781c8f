"""JSON that any reader understands alike: UTF-8 text of one object, in which no name is repeated."""

import json
from collections.abc import Iterable
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.text import shown
from ckpt_surgery.storage.failures import DAMAGED


def strict_json(text: bytes) -> dict[str, Any]:
    """A JSON object without repeated names, in UTF-8. Raises SourceError for anything else."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"not valid JSON: {shown(str(error)[:200])}", hint=DAMAGED) from error
    if not isinstance(value, dict):
        raise SourceError(f"a JSON {type(value).__name__} where an object belongs", hint=DAMAGED)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise SourceError(f"the name `{shown(_first_repeated(pairs)[:200])}` comes twice", hint=DAMAGED)
    for name in found:
        if not name.isascii():
            name.encode()  # a lone surrogate is a ValueError
    return found


def _first_repeated(pairs: Iterable[tuple[str, Any]]) -> str:
    """The first name that was there before; the caller knows that there is one."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            break
        seen.add(name)
    return name
