"""Calls of functions with evaluated arguments."""

from typing import Any

import pytest

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, Array, Series
from ckpt_surgery.functions.create import Init
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.registry import registry
from ckpt_surgery.language.expressions.calls import called
from ckpt_surgery.language.expressions.configs import Entries
from ckpt_surgery.language.expressions.scope import Scope
from tests.support.lazy_arrays import ArrayLeaves, lazy

X = lazy((2, 3))
WHOLE = Series((X, X), (0, 1))
GAPS = Series((X, X), (0, 2))


def call(name: str, *arguments: Any, **keywords: Any) -> Any:
    return called(registry()[name], arguments, keywords, Scope({}, "out/key"))


def function(value: Any) -> Any:
    assert isinstance(value, Array)
    assert isinstance(value.node, Apply)
    return value.node.function


def test_array_functions_give_lazy_arrays() -> None:
    assert function(call("stack", WHOLE)) == Stack(places=(0, 1))
    assert function(call("concat", [X, X])) == Concat(0)
    assert [array.spec.shape for array in call("quantize", X, "int8", 0)] == [(2, 3), (1, 3)]


def test_the_key_of_the_output_is_a_part_of_the_context() -> None:
    made = function(call("init", "normal", (2,), "float32", seed=1))
    assert isinstance(made, Init)
    assert made.leaf_key == "out/key"


def test_places_with_a_gap_need_a_filler() -> None:
    assert function(call("stack", GAPS, fill=0.0)) == Stack(fill=0.0, places=(0, 2))
    with pytest.raises(FunctionError, match="no leaf is at place 1"):
        call("stack", GAPS)
    with pytest.raises(FunctionError, match="no leaf is at place 1"):
        call("concat", GAPS)


def test_plain_functions_are_called_at_once() -> None:
    assert call("sqrt", 16) == 4.0
    assert call("replace", "a.b", ".", "/") == "a/b"
    assert call("len", Entries("config", {"a": 1})) == 1
    assert call("len", WHOLE) == 2


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("str", (X,), "`str` takes text, numbers and lists, not an array float32[2,3]"),
        ("transpose", (ArrayLeaves({}),), "a source cannot be an argument"),
        ("range", (2, 1, 0), "`range`: the step cannot be 0"),
        ("int", ("x",), "`int`: 'x' is not an integer"),
    ],
)
def test_refusals(name: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        call(name, *arguments)
    assert str(caught.value) == message
