"""Nested dictionaries, and the same by key path: `{"a": {"b": 1}}` and `{"a/b": 1}`."""

from collections.abc import Mapping
from typing import Any


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A tree of dictionaries from values by key path."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, last = path.split("/")
        inner = tree
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return tree


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by key path from a tree of dictionaries; empty ones leave nothing."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= flattened(value, f"{prefix}{name}/") if isinstance(value, dict) else {prefix + name: value}
    return found
