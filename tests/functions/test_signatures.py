"""The parameters of functions, and the messages for calls that do not fit them."""

import typing
from collections.abc import Sequence
from typing import Any, Never

import pytest

from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.functions.base import LeafKey, Number, in_expressions
from ckpt_surgery.functions.signatures import (
    LISTS,
    call_problem,
    is_required,
    parameters_of,
    static_type,
    types_of,
    usage,
)


@in_expressions
def draw_(x: Array, /, p: Array | Number, *, seed: int = 0, leaf_key: LeafKey) -> Array:
    raise AssertionError(x, p, seed, leaf_key)


@in_expressions
def joined(first: str, *others: str) -> str:
    return "".join((first, *others))


@in_expressions
def summed(x: Array | Sequence[Array], axis: int | None = None, dtype: DType | None = None) -> Array:
    raise AssertionError(x, axis, dtype)


@in_expressions
def product(subscripts: str, *operands: Array, **lengths: int) -> Array:
    raise AssertionError(subscripts, operands, lengths)


@in_expressions
def stacked(xs: Sequence[Array] | Series, fill: Number | None = None) -> Array:
    raise AssertionError(xs, fill)


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


# --- signatures -------------------------------------------------------------------------------------


def names(function: Any) -> list[str]:
    return [p.name for p in parameters_of(function)]


def test_the_rule_gives_the_key_and_no_call_does() -> None:
    assert names(draw_) == ["x", "p", "seed"]
    assert (call_problem(draw_, 2, ("leaf_key",)) or "").startswith("`draw` has no argument `leaf_key`")
    assert "`draw` takes at most 2 arguments" in (call_problem(draw_, 3, ()) or "")


def test_annotations_say_what_is_taken() -> None:
    x, axis, _ = parameters_of(summed)
    assert types_of(x.annotation) == (Array, Sequence[Array])
    assert static_type(x.annotation) is Never
    assert (static_type(axis.annotation), is_required(x), is_required(axis)) == (int | None, True, False)
    xs, fill = parameters_of(stacked)
    assert LISTS & {*types_of(xs.annotation)} == {Sequence[Array]}
    assert typing.get_args(static_type(fill.annotation)) == (bool, int, float, type(None))  # in this order
    assert [p.annotation for p in parameters_of(undecorated)] == [Any]
    assert [p.annotation for p in parameters_of(pad)] == [Array, int, int | float]  # quoted there


def test_a_list_of_arrays_is_never_empty() -> None:
    assert [is_required(p) for p in parameters_of(product)] == [True, True]
    assert [is_required(p) for p in parameters_of(joined)] == [True, False]
    assert names(product) == ["subscripts", "operands"]


def test_how_functions_are_called() -> None:
    assert usage(summed) == "summed(x, [axis], [dtype])"
    assert usage(summed, "{}=…") == "summed(x, axis=…, dtype=…)"
    assert usage(draw_) == "draw(x, p, [seed])"
    assert usage(undecorated) == "undecorated(text)"


# --- calls ------------------------------------------------------------------------------------------


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
