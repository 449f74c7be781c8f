"""The parameters of functions, and the messages for calls that do not fit them."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ckpt_surgery.functions.base import Function, Operand, plain
from ckpt_surgery.functions.signatures import (
    Parameter,
    Signature,
    call_problem,
    signature_of,
    signature_problem,
)


@dataclass(frozen=True)
class Scaled(Function):
    """The default parameters: the array, then the fields that a call gives."""

    name: ClassVar[str] = "scaled"
    context: ClassVar[tuple[str, ...]] = ("leaf_key",)
    parts: ClassVar[tuple[str, ...]] = ("values", "scale")
    factor: float
    axis: int = 0
    leaf_key: str = ""
    part: str = "values"


@dataclass(frozen=True)
class Chosen(Function):
    name: ClassVar[str] = "chosen"
    parameters: ClassVar[tuple[str, ...] | None] = ("condition", "a", "b")
    a: Operand = None
    b: Operand = None


@dataclass(frozen=True)
class Joined(Function):
    name: ClassVar[str] = "joined"
    parameters: ClassVar[tuple[str, ...] | None] = ("pattern", "*arrays")
    pattern: str


@dataclass(frozen=True)
class Listed(Function):
    name: ClassVar[str] = "listed"
    parameters: ClassVar[tuple[str, ...] | None] = ("*xs", "axis")
    axis: int = 0


@dataclass(frozen=True)
class Averaged(Function):
    name: ClassVar[str] = "averaged"
    parameters: ClassVar[tuple[str, ...] | None] = ("*xs",)


@dataclass(frozen=True)
class Cut(Function):
    name: ClassVar[str] = "cut"
    parameters: ClassVar[tuple[str, ...] | None] = ("x", "pattern", "/")
    remaining: ClassVar[str | None] = "lengths"
    pattern: str
    lengths: tuple[tuple[str, int], ...] = ()


# --- signatures -------------------------------------------------------------------------------------


def test_a_call_gives_the_array_and_the_fields_that_the_rule_does_not_give() -> None:
    assert signature_of(Scaled, "scaled") == Signature(
        "scaled",
        (
            Parameter("x", "array", required=True),
            Parameter("factor", "static", required=True, annotation=float),
            Parameter("axis", "static", required=False, annotation=int),
        ),
    )


def test_an_operand_has_to_be_given_though_its_field_has_a_default() -> None:
    parameters = signature_of(Chosen, "chosen").parameters
    assert [(p.name, p.role, p.required) for p in parameters] == [
        ("condition", "array", True),
        ("a", "operand", True),
        ("b", "operand", True),
    ]


def test_a_list_of_arrays_collects_the_rest_only_as_the_last_of_several_parameters() -> None:
    joined, listed = signature_of(Joined, "joined"), signature_of(Listed, "listed")
    assert [(p.name, p.role) for p in joined.parameters] == [("pattern", "static"), ("arrays", "arrays")]
    assert joined.collects
    assert [(p.name, p.role) for p in listed.parameters] == [("xs", "arrays"), ("axis", "static")]
    assert not listed.collects
    assert not signature_of(Averaged, "averaged").collects


def test_parameters_before_the_slash_have_no_keyword() -> None:
    signature = signature_of(Cut, "cut")
    assert [p.name for p in signature.parameters] == ["x", "pattern"]
    assert signature.keywords == frozenset()
    assert signature_of(Scaled, "scaled").keywords == {"x", "factor", "axis"}


def test_keywords_with_free_names_have_the_type_of_the_field_that_collects_them() -> None:
    assert signature_of(Cut, "cut").free is int
    assert signature_of(Scaled, "scaled").free is None


def test_messages_call_the_function_what_the_caller_calls_it() -> None:
    assert signature_of(Scaled, "hooks.scaled").name == "hooks.scaled"


# --- calls ------------------------------------------------------------------------------------------

NOTHING = Signature("now", ())
ONE = Signature("len", (Parameter("x", "static", required=True),))
PAD = Signature(
    "pad",
    (
        Parameter("x", "array", required=True),
        Parameter("to", "static", required=True),
        Parameter("value", "static", required=False),
    ),
)
EINSUM = Signature(
    "einsum",
    (Parameter("subscripts", "static", required=True), Parameter("operands", "arrays", required=True)),
    collects=True,
)
REARRANGE = Signature(
    "rearrange",
    (
        Parameter("x", "array", required=True, by_name=False),
        Parameter("pattern", "static", required=True, by_name=False),
    ),
    free=int,
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


@plain
def shorten_(text: str, to: int = 3) -> str:
    return text[:to]


@plain
def joined(first: str, *others: str) -> str:
    return "".join((first, *others))


def undecorated(text: str) -> str:
    return text


def test_a_python_function_has_the_parameters_of_its_definition() -> None:
    assert signature_problem(shorten_, 1, ["to"]) is None
    assert signature_problem(shorten_, 0, []) == "`shorten` needs `text`: shorten(text, [to])"
    assert signature_problem(shorten_, 2, ["t"]) == "`shorten` has no argument `t`; did you mean `to`?"
    assert signature_problem(joined, 9, []) is None
    assert signature_problem(joined, 0, []) == "`joined` needs `first`: joined(first)"
    assert signature_problem(undecorated, 0, []) == "`undecorated` needs `text`: undecorated(text)"


def test_a_class_has_the_name_of_its_calls() -> None:
    assert signature_problem(Scaled, 2, ["axis"]) is None
    assert signature_problem(Scaled, 1, ["leaf_key"]) == "`scaled` has no argument `leaf_key`"
    assert signature_problem(Scaled, 1, []) == "`scaled` needs `factor`: scaled(x, factor, [axis])"
