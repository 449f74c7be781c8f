"""Every function's fields as JSON, and back: the same function, whatever its fields hold."""

import dataclasses
import math
import types
import typing
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ckpt_surgery.core.dtypes import ELEMENT_TYPES, dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Full, Init, Zeros
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.fields import fields_json, function_of
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Pad, Transpose
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.language.hooks import HookCall
from tests.functions.test_laws import CASES, Case, arrays_of
from tests.support.comparing import same
from tests.support.evaluation import evaluate

F32 = dtype_named("float32")


def through_json(function: Function) -> Function:
    document = msgspec.json.decode(msgspec.json.encode(fields_json(function)))
    assert document == fields_json(function)  # NaN is written as text, which is equal to itself
    return function_of(kinds()[function.kind], document, {})


# --- kinds ----------------------------------------------------------------------------------------


def every_class(cls: type = Function) -> set[type]:
    return {cls}.union(*(every_class(child) for child in cls.__subclasses__()))


def of_the_package() -> set[type[Function]]:
    return {cls for cls in every_class() if cls.__module__.startswith("ckpt_surgery.")}


def test_every_class_that_is_no_base_of_others_has_a_kind_of_its_own() -> None:
    found = of_the_package()
    without = {cls for cls in found if not cls.kind}
    assert {cls.__name__ for cls in without if cls.__name__[0] != "_"} == {
        "Function",
        "Elementwise",
        "ListReduction",
        "Reduction",
    }
    assert all(cls.__subclasses__() for cls in without)
    named = [cls.kind for cls in found - without]
    assert len(set(named)) == len(named)
    assert {*kinds(), HookCall.kind} == set(named)
    assert "leaf" not in named  # what saved plans call leaves


def test_a_kind_is_the_name_where_nothing_else_is_said() -> None:
    assert {cls.name for cls in kinds().values() if cls.kind == cls.name} >= {"cast", "stack", "sum", "abs"}
    assert [cls.kind for cls in (Index, Binary, *kinds().values()) if not cls.name] != []  # type: ignore[attr-defined]


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_function_gives_what_it_gave(case: Case) -> None:
    function, arrays = case[0], arrays_of(case)
    again = through_json(function)
    assert type(again) is type(function)
    assert repr(again) == repr(function)
    assert same(evaluate(again, arrays), evaluate(function, arrays))


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this annotation may hold."""
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values, members))
    if origin is np.dtype:
        return st.sampled_from(sorted(ELEMENT_TYPES)).map(dtype_named)
    if origin is tuple and members[-1:] == (...,):
        return st.lists(values(members[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, members))
    if origin is Literal:
        return st.sampled_from(members)
    return {
        int: st.integers() | st.integers(-(2**200), 2**200),
        float: st.floats() | st.just(-0.0),
        bool: st.booleans(),
        str: st.text() | st.just("\ud800\0"),
        types.NoneType: st.none(),
        types.EllipsisType: st.just(...),
    }[annotation]


@given(data=st.data())
def test_any_fields_of_any_function(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(sorted(kinds().values(), key=lambda cls: cls.kind)))
    hints = typing.get_type_hints(cls)
    fields = {f.name: data.draw(values(hints[f.name])) for f in dataclasses.fields(cls)}
    if "op" in fields:
        fields["op"] = data.draw(st.sampled_from(["+", "<=", "neg", "sqrt"]))
    try:
        function = cls(**fields)
    except FunctionError:
        assume(False)
    document = fields_json(function)
    again = function_of(cls, document, {})
    assert repr(again) == repr(function)  # which tells 0.0 from -0.0, 1 from True and from 1.0
    assert fields_json(again) == document
    try:
        text = msgspec.json.encode(document)
    except UnicodeEncodeError:
        return  # a half of a surrogate pair: whoever writes a file knows what to do
    assert repr(function_of(cls, msgspec.json.decode(text), {})) == repr(function)


NUMBERS = (0.0, -0.0, 1, 1.0, True, 2**64, -(2**63) - 1, 1e300, 5e-324, 1e22, 0.1, math.inf, -math.inf)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_stay_what_they_are(number: float) -> None:
    again = through_json(Full((), number, F32))
    assert isinstance(again, Full)
    assert (type(again.value), repr(again.value)) == (type(number), repr(number))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_not_a_number_keeps_its_sign(sign: float) -> None:
    again = through_json(Full((), math.copysign(math.nan, sign), F32))
    assert isinstance(again, Full)
    assert math.isnan(again.value)
    assert math.copysign(1, again.value) == sign


def test_what_it_looks_like() -> None:
    index = Index(((None, -1, 2), ..., 0, None))
    assert fields_json(index) == {"items": [[None, -1, 2], {"ellipsis": True}, 0, None]}
    assert fields_json(Pad(0, 2**70, math.nan)) == {
        "axis": 0,
        "to": {"int": "1180591620717411303424"},
        "value": {"float": "nan"},
    }
    assert fields_json(Cast(dtype_named("bfloat16"))) == {"dtype": "bfloat16", "on_overflow": "error"}


# --- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "fields", "says"),
    [
        (Transpose, {"axis": 1}, "`transpose` has no field `axis`; did you mean `axes`?"),
        (Transpose, {"axes": "x"}, "`axes` of `transpose` has to be a list of integers or None, not 'x'"),
        (Transpose, {"axes": [0, True]}, "`axes` of `transpose` has to be"),
        (Cast, {}, "`cast` needs the field `dtype`"),
        (Cast, {"dtype": "bfloat17"}, "unknown dtype `bfloat17`; did you mean `bfloat16`?"),
        (Cast, {"dtype": 3}, "`dtype` of `cast` has to be the name of a dtype, not 3"),
        (Cast, {"dtype": "int8", "on_overflow": "explode"}, "on_overflow should be 'error'"),
        (Binary, {"op": "^"}, "not an operator: `^`"),
        (Binary, {"op": "+", "left": "1"}, "`left` of `binary` has to be"),
        (Pad, {"axis": 0, "to": {"int": "many"}}, "`to` of `pad` has to be an integer"),
        (Pad, {"axis": 0, "to": {"int": "9" * 5000}}, "`to` of `pad` has to be an integer"),
        (Pad, {"axis": 0, "to": {"int": "1", "float": "nan"}}, "`to` of `pad` has to be an integer"),
        (Pad, {"axis": 0, "to": 1, "value": {"float": "huge"}}, "`value` of `pad` has to be a number"),
        (Index, {"items": [[None, None]]}, "`items` of `index` has to be a list"),
        (Index, {"items": [{"ellipsis": 1}]}, "`items` of `index` has to be a list"),
        (Stack, {"places": [0.0]}, "`places` of `stack` has to be a list of integers or None"),
    ],
)
def test_what_no_function_has(cls: type[Function], fields: dict[str, Any], says: str) -> None:
    with pytest.raises(FunctionError) as caught:
        function_of(cls, fields, {})
    assert says in str(caught.value)


def test_what_cannot_be_written() -> None:
    swapped = np.dtype(">f4")
    assert swapped.name == F32.name
    with pytest.raises(FunctionError, match=r"`zeros` cannot be saved in a plan: it holds dtype\('>f4'\)"):
        fields_json(Zeros(3, swapped))


def test_external_fields_are_left_out_and_given_again() -> None:
    @dataclasses.dataclass(frozen=True)
    class Here(Function):
        kind: ClassVar[str] = "here"
        external: ClassVar[tuple[str, ...]] = ("handle",)
        handle: object
        shift: int = 0

    handle = object()
    assert fields_json(Here(handle, 3)) == {"shift": 3}
    assert function_of(Here, {"shift": 3}, {"handle": handle, "other": 1}) == Here(handle, 3)
    with pytest.raises(FunctionError, match="`here` has no field `handle`"):
        function_of(Here, {"handle": 1}, {"handle": handle})


# --- numbers of inputs ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_how_many_inputs_a_function_takes(case: Case) -> None:
    function, specs = case
    lists = any(p[0] == "*" for p in type(function).parameters or ())
    assert function.takes(len(specs))
    assert function.takes(len(specs) + 1) == lists
    assert not function.takes(0 if specs else 1)


def test_keys_of_random_values_are_kept() -> None:
    function = Init("normal", (2, 3), F32, "a/b", 3, (("stddev", 0.5), ("axis", (0, 1))))
    assert through_json(function) == function
