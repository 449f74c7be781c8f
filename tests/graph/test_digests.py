"""Digests of values: equal for the same functions of the same leaves, and for no others."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Node, Read
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Full
from ckpt_surgery.functions.indexing import Take
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.graph.digests import value_digests

F32 = dtype_named("float32")


def read(name: str, source: str = "source") -> Read:
    return Read(source, Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec((3, 3), F32)))


def digests(*values: Node) -> list[str]:
    return value_digests(values, kinds())


def test_other_functions_fields_inputs_and_leaves_are_told_apart() -> None:
    a, b = read("a"), read("b")
    others = [
        *(a, b, read("a", "target"), Apply(Transpose(), (a,)), Apply(Transpose((1, 0)), (a,))),
        *(
            Apply(Take((0,), 0), (a,)),
            Apply(Take((0,), 1), (a,)),
            Apply(Stack(), (a, b)),
            Apply(Stack(), (b, a)),
        ),
        *(
            Apply(Stack(), (a,)),
            Apply(Stack(), (a, Apply(Take((0,), 0), (b,)))),
            Apply(Full((3,), 0, F32), ()),
        ),
    ]
    assert len(set(digests(*others))) == len(others)
    assert digests(*others) == [digests(value)[0] for value in others]


def test_what_values_share_makes_no_difference() -> None:
    shared = Apply(Transpose(), (read("a"),))
    twice = Apply(Binary("+"), (shared, shared))
    apart = Apply(Binary("+"), (shared, Apply(Transpose(), (read("a"),))))
    assert digests(twice) == digests(apart)


def test_trees_with_many_paths_and_deep_ones() -> None:
    node: Node = read("a")
    for _ in range(60):
        node = Apply(Binary("+"), (node, node))
    for _ in range(3000):
        node = Apply(Unary("neg"), (node,))
    assert len(digests(node)[0]) == 64


def test_functions_that_are_not_the_one_of_their_kind_have_none() -> None:
    @dataclass(frozen=True)
    class OtherFull(Full):
        kind: ClassVar[str] = "full"

    class Nameless(Function):
        pass

    for function in (OtherFull((3,), 0, F32), Nameless()):
        with pytest.raises(FunctionError, match=r"cannot be saved in a plan: the kind `.*` is not its own"):
            digests(Apply(function, ()))
