"""The parameters of functions, and the messages for calls that do not fit them."""

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from ckpt_surgery.core.dtypes import DType
from ckpt_surgery.functions.arrays import Array, Series
from ckpt_surgery.functions.base import LeafKey, Number, in_expressions
from ckpt_surgery.functions.signatures import Parameter, Signature, call_problem, signature_of, usage_of


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


def undecorated(text):  # type: ignore[no-untyped-def]
    return text


# --- signatures -------------------------------------------------------------------------------------


def test_the_rule_gives_the_key_and_no_call_does() -> None:
    signature = signature_of(draw_)
    assert signature.name == "draw"
    assert [p.name for p in signature.parameters] == ["x", "p", "seed"]
    assert [p.name for p in signature.places] == ["x", "p"]
    assert signature.keywords == {"p", "seed"}
    assert signature.leaf_key == "leaf_key"
    problem = "`draw` has no argument `leaf_key`"
    assert (call_problem(signature, 2, ("leaf_key",)) or "").startswith(problem)
    assert "`draw` takes at most 2 arguments" in (call_problem(signature, 3, ()) or "")


def test_annotations_say_what_is_taken() -> None:
    x, axis, dtype = signature_of(summed).parameters
    assert (x.takes_array, x.takes_arrays, x.takes_series, x.required) == (True, True, False, True)
    assert (axis.takes_array, axis.static, axis.required) == (False, int | None, False)
    assert (dtype.takes_dtype, axis.takes_dtype) == (True, False)
    xs, fill = signature_of(stacked).parameters
    assert (xs.takes_array, xs.takes_arrays, xs.takes_series) == (False, True, True)
    assert fill.static == bool | int | float | None
    assert signature_of(undecorated).parameters == (Parameter("text", Any),)


def test_parameters_that_collect_the_rest() -> None:
    signature = signature_of(product)
    _, operands = signature.parameters
    assert (operands.takes_arrays, operands.takes_array, operands.required) == (True, False, True)
    assert signature.free is not None
    assert signature.free.annotation is int
    assert signature_of(joined).collects
    assert not signature_of(joined).parameters[1].required
    assert not signature_of(summed).collects


def test_how_functions_are_called() -> None:
    assert usage_of(signature_of(summed)) == "summed(x, axis=…, dtype=…)"
    assert usage_of(signature_of(draw_)) == "draw(x, p, seed=…)"


# --- calls ------------------------------------------------------------------------------------------

NOTHING = Signature("now", ())
ONE = Signature("len", (Parameter("x"),))
PAD = Signature(
    "pad",
    (
        Parameter("x"),
        Parameter("to"),
        Parameter("value", default=0),
    ),
)
EINSUM = Signature(
    "einsum",
    (Parameter("subscripts"), Parameter("operands", Array, inspect.Parameter.VAR_POSITIONAL)),
)
REARRANGE = Signature(
    "rearrange",
    (
        Parameter("x", Array, inspect.Parameter.POSITIONAL_ONLY),
        Parameter("pattern", str, inspect.Parameter.POSITIONAL_ONLY),
    ),
    free=Parameter("axes", int, inspect.Parameter.VAR_KEYWORD),
)


@pytest.mark.parametrize(
    ("signature", "positional", "keywords"),
    [
        (NOTHING, 0, ()),
        (PAD, 2, ()),
        (PAD, 3, ()),
        (PAD, 1, ("value", "to")),
        (PAD, 0, ("to", "x")),
        (EINSUM, 2, ()),
        (EINSUM, 9, ()),
        (REARRANGE, 2, ("h", "w")),
        (REARRANGE, 2, ("x",)),  # a free name, for `x` is given by position and has no keyword
    ],
)
def test_calls_that_fit(signature: Signature, positional: int, keywords: tuple[str, ...]) -> None:
    assert call_problem(signature, positional, keywords) is None


@pytest.mark.parametrize(
    ("signature", "positional", "keywords", "message"),
    [
        (NOTHING, 1, (), "`now` takes no arguments, 1 given: now()"),
        (ONE, 2, (), "`len` takes at most one argument, 2 given: len(x)"),
        (PAD, 4, (), "`pad` takes at most 3 arguments, 4 given: pad(x, to, [value])"),
        (PAD, 1, (), "`pad` needs `to`: pad(x, to, [value])"),
        (PAD, 0, ("to",), "`pad` needs `x`: pad(x, to, [value])"),
        (PAD, 2, ("to",), "`pad`: `to` is given twice"),
        (PAD, 2, ("valu",), "`pad` has no argument `valu`; did you mean `value`?"),
        (PAD, 2, ("zzz",), "`pad` has no argument `zzz`"),
        (EINSUM, 1, (), "`einsum` needs `operands`: einsum(subscripts, operands)"),
        (
            REARRANGE,
            1,
            ("pattern",),
            "`rearrange`: `pattern` has to be given by position: rearrange(x, pattern)",
        ),
        (REARRANGE, 1, ("h",), "`rearrange` needs `pattern`: rearrange(x, pattern)"),
    ],
)
def test_calls_that_do_not_fit(
    signature: Signature, positional: int, keywords: tuple[str, ...], message: str
) -> None:
    assert call_problem(signature, positional, keywords) == message


def test_a_python_function_has_the_parameters_of_its_definition() -> None:
    assert call_problem(signature_of(joined), 9, ()) is None
    assert call_problem(signature_of(joined), 0, ()) == "`joined` needs `first`: joined(first, [others])"
    assert call_problem(signature_of(undecorated), 1, ()) is None
