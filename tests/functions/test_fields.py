"""Every function's fields as text: equal for equal functions, and for no others."""

import dataclasses
import math
import types
import typing
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ckpt_surgery.core.dtypes import ELEMENT_TYPES, dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Full
from ckpt_surgery.functions.fields import fields_text
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.language.hooks import HookCall

F32 = dtype_named("float32")


# --- kinds ----------------------------------------------------------------------------------------


def every_class(cls: type = Function) -> set[type]:
    return {cls}.union(*(every_class(child) for child in cls.__subclasses__()))


def of_the_package() -> set[type[Function]]:
    """Those that values of plans can have."""
    wings = ("ckpt_surgery.functions.", "ckpt_surgery.language.", "ckpt_surgery.planner.")
    return {cls for cls in every_class() if cls.__module__.startswith(wings)}


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
    assert "leaf" not in named  # what digests call leaves


def test_a_kind_is_the_name_where_nothing_else_is_said() -> None:
    assert {cls.name for cls in kinds().values() if cls.kind == cls.name} >= {"cast", "stack", "sum", "abs"}
    assert [cls.kind for cls in (Index, Binary, *kinds().values()) if not cls.name] != []  # type: ignore[attr-defined]


# --- all fields of all functions ------------------------------------------------------------------


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
    made = []
    for _ in range(2):
        fields = {f.name: data.draw(values(hints[f.name])) for f in dataclasses.fields(cls)}
        if "op" in fields:
            fields["op"] = data.draw(st.sampled_from(["+", "<=", "neg", "sqrt"]))
        try:
            made.append(cls(**fields))
        except FunctionError:
            assume(False)
    one, other = made
    assert fields_text(dataclasses.replace(one)) == fields_text(one)
    # Their repr tells 0.0 from -0.0, 1 from True and from 1.0.
    assert (fields_text(one) == fields_text(other)) == (repr(one) == repr(other))


NUMBERS = (0.0, -0.0, 1, 1.0, True, 2**64, -(2**63) - 1, 1e300, 5e-324, 1e22, 0.1, math.inf, -math.inf)


def test_numbers_are_told_apart() -> None:
    numbers = [*NUMBERS, math.nan, math.copysign(math.nan, -1)]
    assert len({fields_text(Full((), number, F32)) for number in numbers}) == len(numbers)


# --- what is wrong --------------------------------------------------------------------------------


def test_what_fields_do_not_hold() -> None:
    with pytest.raises(FunctionError, match="`full` cannot be saved in a plan: it holds 3j"):
        fields_text(Full((), 3j, F32))  # type: ignore[arg-type]


def test_dtypes_of_other_byte_orders_are_others() -> None:
    swapped = np.dtype(">f4")
    assert swapped.name == F32.name
    assert fields_text(Full((3,), 0, swapped)) != fields_text(Full((3,), 0, F32))


def test_external_fields_are_left_out() -> None:
    @dataclasses.dataclass(frozen=True)
    class Here(Function):
        kind: ClassVar[str] = "here"
        external: ClassVar[tuple[str, ...]] = ("handle",)
        handle: object
        shift: int = 0

    assert fields_text(Here(object(), 3)) == fields_text(Here(None, 3)) != fields_text(Here(None, 4))
