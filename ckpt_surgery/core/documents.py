"""What all JSON documents of this package have in common: the schema's version, specs, numbers."""

import json
import math
from collections.abc import Mapping
from typing import Any

from ckpt_surgery.core.leaves import Leaf

JSON_SCHEMA = 1


def spec_json(leaf: Leaf) -> dict[str, Any]:
    if leaf.spec is None:
        return {"shape": None, "dtype": None}
    return {"shape": list(leaf.spec.shape), "dtype": leaf.spec.dtype.name}


def json_text(document: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """One JSON document in ASCII, ending in a line break; NaN and infinities, unknown to JSON, as strings."""
    return json.dumps(_plain(document), indent=indent, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    """The same value of JSON's types only; what has no such form, as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return (
            value
            if math.isfinite(value)
            else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        )
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
