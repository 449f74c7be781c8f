"""Trees of functions as JSON, and back: the same values, each function written once."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arithmetic import Maximum
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Zeros
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.indexing import Flip
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.registry import kinds
from ckpt_surgery.graph import node_json
from ckpt_surgery.graph.node_json import DEEPEST, NodeReader, nodes_json
from ckpt_surgery.graph.nodes import Apply, Node, Read, functions_of
from tests.support.comparing import same
from tests.support.evaluation import evaluate

F32 = dtype_named("float32")
ARRAYS = {f"w/{i}": np.arange(9, dtype=np.float32).reshape(3, 3) + i for i in range(4)}
LEAVES = {text: Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec((3, 3), F32)) for text in ARRAYS}
NAME = Leaf(Key.parse("name"), LeafKind.STRING, string="hello")
LISTINGS = {"source": LEAVES | {"name": NAME}, "target": LEAVES}


def read(number: int, source: str = "source") -> Read:
    return Read(source, LEAVES[f"w/{number}"])


def back(shared: list[Any], values: list[Any]) -> list[Node]:
    reader = NodeReader(LISTINGS, kinds(), {})
    for document in shared:
        reader.share(document)
    return [reader.node(document) for document in values]


def there_and_back(nodes: list[Node]) -> list[Node]:
    shared, values = json.loads(json.dumps(nodes_json(nodes, kinds())))
    found = back(shared, values)
    assert nodes_json(found, kinds()) == (shared, values)
    return found


def value(node: Node, known: dict[int, np.ndarray]) -> np.ndarray:
    if isinstance(node, Read):
        return ARRAYS[node.leaf.key.text]
    if id(node) not in known:
        known[id(node)] = evaluate(node.function, [value(child, known) for child in node.inputs])
    return known[id(node)]


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
    one, other = back(shared, values)
    assert isinstance(other, Apply)
    assert other.inputs == (one,)


UNARY = [Transpose(), Flip(0), Unary("neg"), Binary("*", right=0.5), Cast(F32)]
BINARY = [Maximum(), Binary("-")]


@st.composite
def forests(draw: st.DrawFn) -> list[Node]:
    """Nodes that share what is below them."""
    nodes: list[Node] = [read(i) for i in range(4)]
    for _ in range(draw(st.integers(0, 12))):
        function = draw(st.sampled_from(UNARY + BINARY))
        count = 2 if function in BINARY else 1
        nodes.append(Apply(function, tuple(draw(st.sampled_from(nodes)) for _ in range(count))))
    return draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=5))


@settings(deadline=None)
@given(forests())
def test_any_trees(nodes: list[Node]) -> None:
    found = there_and_back(nodes)
    one: dict[int, np.ndarray] = {}
    other: dict[int, np.ndarray] = {}
    for before, after in zip(nodes, found, strict=True):
        assert before.spec == after.spec
        assert same(value(before, one), value(after, other))
    assert len(one) == len(other)  # what was one is one again


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
    shared, _ = nodes_json([node], kinds())
    assert len(shared) == 700 // DEEPEST
    [found] = there_and_back([node])
    depth = 0
    while isinstance(found, Apply):
        [found] = found.inputs
        depth += 1
    assert depth == 700


ADD = {"op": "+", "left": None, "right": None}
LEAF = ["leaf", "source", "w/0"]


def deep(levels: int) -> Any:
    document: Any = LEAF
    for _ in range(levels):
        document = ["transpose", {"axes": None}, document]
    return document


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (None, "a value must be"),
        ([], "a value must be"),
        ("leaf", "a value must be"),
        (True, "a value must be"),
        (["leaf", "source"], "a value must be"),
        (["leaf", "source", 3], "a value must be"),
        (["transpose", [], LEAF], "a value must be"),
        (0, "not a shared value: 0; 0 come before it"),
        (-1, "not a shared value: -1"),
        (["leaf", "sauce", "w/0"], "not a source: `sauce`; did you mean `source`?"),
        (["leaf", "source", "w/9"], "`source` has no leaf `w/9`"),
        (["transpoze", {}, LEAF], "not a function: `transpoze`; did you mean `transpose`?"),
        (["hook", {}, LEAF], "not a function: `hook`"),
        (["transpose", {"axes": None}], "`transpose` does not take 0 arrays"),
        (["transpose", {"axes": None}, LEAF, LEAF], "`transpose` does not take 2 arrays"),
        (["transpose", {"axes": [0]}, LEAF], "`transpose`: 1 axes given for an array of 2"),
        (["binary", ADD, LEAF, ["zeros", {"shape": [4], "dtype": "float32"}]], "do not broadcast"),
        (["binary", ADD, LEAF, ["leaf", "source", "name"]], "`name` is not an array"),
        (["unary", {"op": "cube", "x": None}, LEAF], "not an operator: `cube`"),
        (["quantize", {"dtype": "int8", "part": "whole"}, LEAF], "`quantize` has no part `whole`"),
        (["zeros", {"shape": [{"int": "1" * 4000}], "dtype": "int8"}], "the limit is 2^63 - 1"),
        (
            ["full", {"shape": [], "value": {"int": "1" * 4000}, "dtype": "float32"}],
            "float32 cannot represent",
        ),
        (["repeat", {"repeats": 2**70, "axis": 0}, LEAF], "the limit is 2^63 - 1"),
        (deep(DEEPEST + 1), f"functions are nested deeper than {DEEPEST} levels"),
        (deep(600), f"functions are nested deeper than {DEEPEST} levels"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_value(document: Any, says: str) -> None:
    with pytest.raises(FunctionError) as caught:
        NodeReader(LISTINGS, kinds(), {}).node(document)
    assert says in str(caught.value)


def test_a_short_table_is_not_a_value_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared value counts once in each output, however often it is used there."""
    reader = NodeReader(LISTINGS, kinds(), {})
    reader.share(["binary", ADD, LEAF, LEAF])
    for number in range(200):
        reader.share(["binary", ADD, number, number])
    assert functions_of(reader.node(200), frozenset()) == 3 * 201
    monkeypatch.setattr(node_json, "MOST_FUNCTIONS", 3 * 201 + 3 * 101)
    reader.node(100)
    with pytest.raises(FunctionError, match="more than 4,194,304 functions and their inputs"):
        reader.node(0)


def test_functions_that_are_not_the_one_of_their_kind_are_not_written() -> None:
    @dataclass(frozen=True)
    class OtherZeros(Zeros):
        kind: ClassVar[str] = "zeros"

    class Nameless(Function):
        pass

    for function in (OtherZeros(3, F32), Nameless()):
        with pytest.raises(FunctionError, match=r"cannot be saved in a plan: the kind `.*` is not its own"):
            nodes_json([Apply(function, ())], kinds())
