"""What the base class of functions answers where a subclass says nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.selections import Selection
from ckpt_surgery.functions.base import Function, Specs, in_expressions

F32 = np.dtype(np.float32)
INS = [ArraySpec((4, 6), F32)]


class Named(Function):
    name: ClassVar[str] = "named"


class OfElements(Function):
    """The elements at twice the index of the first axis."""

    def uses(self, selection: Selection, ins: Specs) -> list[tuple[int, Selection]]:
        return [(0, (np.array([2 * i for i in selection[0]]), *selection[1:]))]


class OfBoxes(Function):
    def needs(self, region: Region, ins: Specs) -> list[tuple[int, Region]]:
        return [(0, Region((0, *region.starts[1:]), (4, *region.stops[1:])))]


@dataclass(frozen=True)
class Two(Function):
    elementwise: ClassVar[bool] = True
    name: ClassVar[str] = "two"


def test_regions_are_the_boxes_of_elements() -> None:
    assert OfElements().needs(Region((0, 1), (2, 3)), INS) == [(0, Region((0, 1), (3, 3)))]


def test_elements_are_all_of_a_region() -> None:
    assert OfBoxes().uses((range(1, 2), range(2, 5, 2)), INS) == [(0, (range(4), range(2, 5)))]


def test_a_function_defines_one_of_the_two() -> None:
    with pytest.raises(NotImplementedError):
        Named().needs(Region((0,), (1,)), INS)


def test_elementwise_functions_use_the_elements_at_the_same_index() -> None:
    ins = [ArraySpec((4, 6), F32), ArraySpec((6,), F32)]
    selected = (range(1, 3), range(5))
    assert Two().uses(selected, ins) == [(0, selected), (1, (range(5),))]
    assert Two().input_axis(1, ins) is None  # of two inputs


def test_nothing_else_is_promised() -> None:
    function = Named()
    assert function.window(INS) is None
    assert function.input_axis(0, INS) is None
    assert function.relink([]) is None
    assert function.declared_dtype(F32, [np.dtype(np.int8)]) == F32


def test_a_plain_function_has_the_name_without_the_underscore_that_python_needs() -> None:
    def int_(text: Sequence[str]) -> int:
        return len(text)

    assert in_expressions(int_) is int_
    assert int_.expression_name == "int"  # type: ignore[attr-defined]
