"""Record calls while a test runs; they do what they did."""

from collections.abc import Callable
from typing import Any

import pytest


def record_calls(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, note: Callable[..., Any]
) -> list[Any]:
    """Record the calls of a method, or of a module's function: what `note` makes of their arguments."""
    calls: list[Any] = []
    real = getattr(place, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(note(*arguments))
        return real(*arguments, **options)

    monkeypatch.setattr(place, name, counted)
    return calls
