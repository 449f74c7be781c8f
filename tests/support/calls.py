"""What is called while a test runs, beside what the call does."""

from collections.abc import Callable
from typing import Any

import pytest


def noted(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, note: Callable[..., Any]) -> list[Any]:
    """Calls of a method, or of a module's function, from now on: what `note` makes of their arguments."""
    calls: list[Any] = []
    real = getattr(place, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(note(*arguments))
        return real(*arguments, **options)

    monkeypatch.setattr(place, name, counted)
    return calls
