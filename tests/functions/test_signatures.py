"""The messages for calls that do not fit the parameters of functions."""

from typing import Any

import pytest

from ckpt_surgery.functions.arrays import Array
from ckpt_surgery.functions.base import in_expressions
from ckpt_surgery.language.expressions.calls import call_problem


@in_expressions
def joined(first: str, *others: str) -> str:
    return "".join((first, *others))


@in_expressions
def product(subscripts: str, *operands: Array, **lengths: int) -> Array:
    raise AssertionError(subscripts, operands, lengths)


@in_expressions
def undecorated(text):  # type: ignore[no-untyped-def]
    return text


@in_expressions
def now() -> str:
    raise AssertionError


@in_expressions
def pad(x: "Array", to: int, value: "int | float" = 0) -> Array:
    raise AssertionError(x, to, value)


@in_expressions
def cut(x: Array, pattern: str, /, **lengths: int) -> Array:
    raise AssertionError(x, pattern, lengths)


@pytest.mark.parametrize(
    ("function", "positional", "keywords"),
    [
        (now, 0, []),
        (pad, 2, []),
        (pad, 3, []),
        (pad, 1, ["value", "to"]),
        (pad, 0, ["to", "x"]),
        (product, 2, []),
        (product, 9, []),
        (cut, 2, ["h", "w"]),
        (cut, 2, ["x"]),  # a free name, for `x` is given by position and has no keyword
        (joined, 9, []),
    ],
)
def test_calls_that_fit(function: Any, positional: int, keywords: list[str]) -> None:
    assert call_problem(function, positional, tuple(keywords)) is None


@pytest.mark.parametrize(
    ("function", "positional", "keywords", "message"),
    [
        (now, 1, [], "`now` takes no arguments, 1 given: now()"),
        (undecorated, 2, [], "`undecorated` takes at most one argument, 2 given: undecorated(text)"),
        (pad, 4, [], "`pad` takes at most 3 arguments, 4 given: pad(x, to, [value])"),
        (pad, 1, [], "`pad` needs `to`: pad(x, to, [value])"),
        (pad, 0, ["to"], "`pad` needs `x`: pad(x, to, [value])"),
        (pad, 2, ["to"], "`pad`: `to` is given twice"),
        (pad, 2, ["valu"], "`pad` has no argument `valu`; did you mean `value`?"),
        (pad, 2, ["zzz"], "`pad` has no argument `zzz`"),
        (pad, 2, ["input"], "`pad` has no argument `input`; did you mean `x`?"),
        (product, 1, [], "`product` needs `operands`: product(subscripts, operands)"),
        (product, 1, ["operands"], "`operands` has to be given by position"),
        (cut, 1, ["pattern"], "`cut`: `pattern` has to be given by position: cut(x, pattern)"),
        (cut, 1, ["h"], "`cut` needs `pattern`: cut(x, pattern)"),
        (joined, 0, [], "`joined` needs `first`: joined(first, [others])"),
    ],
)
def test_calls_that_do_not_fit(function: Any, positional: int, keywords: list[str], message: str) -> None:
    assert message in (call_problem(function, positional, tuple(keywords)) or "")
