"""What tests of refused conversions share."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

Shapes = Mapping[str, tuple[int, ...]]


def half_slow(cases: Sequence[Any]) -> list[Any]:
    """Every second of the cases is run with the slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=slow if i % 2 else ()) for i, case in enumerate(cases)]


def edited(shapes: Shapes, edits: Mapping[str, tuple[int, ...] | None]) -> dict[str, tuple[int, ...]]:
    """The listing without the keys that are None, and with the others."""
    assert all(key in shapes for key, shape in edits.items() if shape is None)
    whole = dict(shapes) | {key: shape for key, shape in edits.items() if shape}
    return {key: shape for key, shape in whole.items() if edits.get(key, shape)}
