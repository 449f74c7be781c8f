"""Trees of functions as JSON, each function written once."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Zeros
from ckpt_surgery.functions.indexing import Flip
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.graph.node_json import DEEPEST, nodes_json
from ckpt_surgery.graph.nodes import Apply, Node, Read

F32 = dtype_named("float32")
ARRAYS = {f"w/{i}": np.arange(9, dtype=np.float32).reshape(3, 3) + i for i in range(4)}
LEAVES = {text: Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec((3, 3), F32)) for text in ARRAYS}
NAME = Leaf(Key.parse("name"), LeafKind.STRING, string="hello")
LISTINGS = {"source": LEAVES | {"name": NAME}, "target": LEAVES}


def read(number: int, source: str = "source") -> Read:
    return Read(source, LEAVES[f"w/{number}"])


def test_what_it_looks_like() -> None:
    turned = Apply(Transpose(), (read(0),))
    both = Apply(Stack(), (turned, read(1, "target")))
    assert nodes_json([both, read(2)], kinds()) == (
        [],
        [
            [
                "stack",
                {"axis": 0, "fill": None, "count": None, "places": None},
                ["transpose", {"axes": None}, ["leaf", "source", "w/0"]],
                ["leaf", "target", "w/1"],
            ],
            ["leaf", "source", "w/2"],
        ],
    )


def test_what_values_share_is_written_once() -> None:
    turned = Apply(Transpose(), (read(0),))
    shared, values = nodes_json([turned, Apply(Flip(0), (turned,))], kinds())
    assert shared == [["transpose", {"axes": None}, ["leaf", "source", "w/0"]]]
    assert values == [0, ["flip", {"axis": 0}, 0]]


def test_a_tree_with_many_paths_is_as_long_as_it_has_functions() -> None:
    node: Node = read(0)
    for _ in range(15):
        node = Apply(Binary("+"), (node, node))
    shared, values = nodes_json([node], kinds())
    assert len(shared) == 14
    assert values == [["binary", {"op": "+", "left": None, "right": None}, 13, 13]]


def test_a_deep_tree_is_cut() -> None:
    node: Node = read(0)
    for _ in range(700):
        node = Apply(Unary("neg"), (node,))
    shared, values = nodes_json([node], kinds())
    assert len(shared) == 700 // DEEPEST
    assert json.dumps([shared, values]).count('"unary"') == 700


def test_functions_that_are_not_the_one_of_their_kind_are_not_written() -> None:
    @dataclass(frozen=True)
    class OtherZeros(Zeros):
        kind: ClassVar[str] = "zeros"

    class Nameless(Function):
        pass

    for function in (OtherZeros(3, F32), Nameless()):
        with pytest.raises(FunctionError, match=r"cannot be saved in a plan: the kind `.*` is not its own"):
            nodes_json([Apply(function, ())], kinds())
