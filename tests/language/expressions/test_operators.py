"""Operators, comparisons and formats, called without an expression around them."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, Array, Series
from ckpt_surgery.functions.contractions import product
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.language.expressions.operators import binary, compared, formatted, truth, unary
from ckpt_surgery.language.expressions.scope import Table
from tests.support.lazy_arrays import lazy

X = lazy()


def function(value: Any) -> Any:
    assert isinstance(value, Array)
    assert isinstance(value.node, Apply)
    return value.node.function


def message(call: Any, *arguments: Any) -> tuple[str, str | None]:
    with pytest.raises(FunctionError) as caught:
        call(*arguments)
    (problem,) = caught.value.problems
    return problem.message, problem.hint


def test_arrays_stay_lazy() -> None:
    assert function(binary("+", X, 2)) == Binary("+", None, 2)
    assert function(binary("-", 2, X)) == Binary("-", 2, None)
    assert function(binary("@", X, lazy((6, 2)))) == product(2, 2)
    assert function(compared("<", X, 0)) == Binary("<", None, 0)
    assert function(unary("-", X)) == Unary("neg")
    assert function(unary("~", compared("<", X, 0))) == Unary("not")
    assert unary("+", X) is X


def test_plain_values_are_computed() -> None:
    assert binary("**", 2, 10) == 1024
    assert binary("+", "a", "b") == "ab"
    assert binary("+", range(2), (5,)) == [0, 1, 5]
    assert unary("~", True) is False
    assert compared("==", (1, 2), [1, 2]) is True
    assert compared("in", 2, range(3)) is True
    assert compared("not in", "q", Table("t", {"k": 1})) is True


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        (binary, ("+", "1", 1), "`+` does not take the text '1' and the number 1"),
        (binary, ("@", X, 2), "`@` takes two arrays, not a number"),
        (binary, ("/", 1, 0), "1 / 0 divides by zero"),
        (binary, ("**", 2, 300), "2 ** 300 is too large: the limit is 128 bits"),
        (binary, ("**", -1, 0.5), "-1 ** 0.5 is not a real number"),
        (binary, ("*", 1e200, 1e200), None),
        (binary, ("**", 10.0, 400), "10.0 ** 400 is beyond what a float holds"),
        (compared, ("<", 1, None), "`<` cannot compare the number 1 with None"),
        (compared, ("in", 1, "abc"), "`in` cannot look for the number 1 in the text 'abc'"),
        (unary, ("-", "a"), "`-` does not take the text 'a'"),
        (truth, (X,), "an array float32[4,6] is neither true nor false"),
        (formatted, (None, ""), "None cannot be part of a text"),
        (formatted, (float("inf"), ""), "inf cannot be part of a text"),
        (formatted, (1, ">1000"), "the format '>1000' is not accepted"),
    ],
)
def test_refusals(call: Any, arguments: tuple[Any, ...], expected: str | None) -> None:
    if expected is None:
        assert call(*arguments) == float("inf")
    else:
        assert message(call, *arguments)[0] == expected


def test_hints_say_what_to_write() -> None:
    assert message(binary, "+", "1", 1)[1] == (
        "A group of the regular expression is text; int(…) makes a number of text, str(…) the reverse."
    )
    assert message(binary, "+", Series((X,), None), 1)[1] == (
        "stack(xs), concat(xs), mean(xs) and sum(xs) make one array of it."
    )
    assert message(truth, X)[1] == "For conditions on elements, use where(…), `&` and `|`."


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, False), (0.5, True), ("", False), ([], False), (range(1), True), (None, False)],
)
def test_truth(value: Any, expected: bool) -> None:
    assert truth(value) is expected


def test_formats_are_python_s() -> None:
    assert formatted(7, "03d") == "007"
    assert formatted(0.125, ".2f") == "0.12"
    assert formatted("q", ">3") == "  q"
    assert message(formatted, "q", "d")[0].startswith("the format 'd' does not fit the text 'q'")


def test_a_comparison_of_arrays_is_an_array_of_bools() -> None:
    assert compared("==", X, X).dtype == np.dtype(bool)
