"""Digests of values: equal for the same functions of the same leaves, and for no others."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.text import abridged
from ckpt_surgery.functions.arrays import Apply, Node, inputs_first
from ckpt_surgery.functions.base import Function

LEAF = "leaf"
"""What a leaf has in place of the text of a function."""


def value_digests(values: Sequence[Node]) -> list[str]:
    """SHA-256, hexadecimal, of each value: of its function, and of its inputs.

    Raises FunctionError for a function whose fields have no text.
    """
    digests: dict[Node, str] = {}

    def digest(node: Node) -> str:
        if isinstance(node, Apply):
            return digests[node]
        return _sha256(LEAF, node.source, node.leaf.key.text)

    for node in inputs_first(values):
        digests[node] = _sha256(function_text(node.function), *map(digest, node.inputs))
    return [digest(value) for value in values]


def _sha256(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def function_text(function: Function) -> str:
    """Text that only equal functions have: module, name, and the fields that are compared.

    Raises FunctionError for a field with something else than None, bools, numbers, texts, dtypes, `...`, and
    tuples of those.
    """
    cls = type(function)
    fields = [field for field in dataclasses.fields(function) if field.compare]  # type: ignore[arg-type]
    given = ", ".join(f"{field.name}={_text_of(getattr(function, field.name), function)}" for field in fields)
    return f"{cls.__module__}.{cls.__qualname__}({given})"


def _text_of(value: Any, function: Function) -> str:
    if type(value) is tuple:
        return f"({''.join(f'{_text_of(item, function)}, ' for item in value)})"
    if isinstance(value, float) and math.isnan(value):
        return f"{math.copysign(1, value)} nan"
    if value is None or value is ... or isinstance(value, bool | int | float | str | np.dtype):
        return repr(value)
    raise FunctionError(f"`{function.called()}` cannot be saved in a plan: it holds {abridged(value)}")
