"""Discovery of functions: by their names in expressions."""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import pytest

from ckpt_surgery import functions
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.functions import text
from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import Function, expression_name, in_expressions
from ckpt_surgery.functions.dtypes import cast
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.registry import registry

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Make these values a module that another package registers; each call is one more such package."""
    entries: list[importlib.metadata.EntryPoint] = []

    def add(**values: Any) -> None:
        name = f"other_functions_{len(entries)}"
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
        entries.append(importlib.metadata.EntryPoint(name, name, "ckpt_surgery.functions"))

    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda *, group: [e for e in entries if e.group == group]
    )
    registry.cache_clear()
    yield add
    registry.cache_clear()


@dataclass(frozen=True)
class Rolled(Function):
    name: ClassVar[str] = "rolled"


@in_expressions
def half_(number: float) -> float:
    return number / 2


def unmarked(number: float) -> float:
    return number


def test_expressions_call_functions_by_their_name() -> None:
    assert registry()["cast"] is cast
    assert registry()["int"] is text.int_  # the name without the underscore
    assert Binary not in registry().values()
    for name, function in registry().items():
        assert type(function) is FunctionType
        assert expression_name(function) == name
        assert getattr(functions, name) is function
    assert functions.Array is Array
    assert functions.text is text
    with pytest.raises(AttributeError, match="no attribute 'half'"):
        _ = functions.half


def test_packages_add_functions_by_an_entry_point(install: Install) -> None:
    install(Rolled=Rolled, half=half_, unmarked=unmarked, Function=Function, limit=3, sum=functions.sum)
    install(again=half_)  # the same function in a second module is no second function
    assert registry()["half"] is half_
    assert registry().keys().isdisjoint({"", "rolled", "unmarked", "limit"})


def test_an_entry_point_without_functions_names_the_form_that_they_have(install: Install) -> None:
    install(Rolled=Rolled)
    with pytest.raises(UsageError, match="`other_functions_0` registers no function") as caught:
        registry()
    assert "@in_expressions" in (caught.value.problems[0].hint or "")


def test_two_functions_of_one_name_are_an_error_that_names_both_modules(install: Install) -> None:
    def half(text: str) -> str:
        return text

    install(half=half_)
    install(half=in_expressions(half))
    with pytest.raises(UsageError, match=f"two functions are called `half`: one in {__name__}"):
        registry()
