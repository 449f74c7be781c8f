"""Tests of many variants, some of which are run with every run of the tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], every: int = 2) -> list[Any]:
    """For `parametrize`: the first value and each `every`-th after it, and the others marked `slow`."""
    return [one if number % every == 0 else slow(one) for number, one in enumerate(values)]


def slow(one: Any) -> Any:
    """A value of `parametrize`, or a tuple of several, with which a test is run with the slow ones alone."""
    return pytest.param(*one if isinstance(one, tuple) else (one,), marks=pytest.mark.slow("one more case"))
