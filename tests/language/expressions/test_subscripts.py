"""Subscripts and attributes, called without an expression around them."""

from typing import Any

import pytest
import regex

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, Series
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.language.expressions.scope import Groups, Table
from ckpt_surgery.language.expressions.subscripts import attribute, key_text, subscripted
from tests.support.lazy_arrays import ArrayLeaves, lazy

X = lazy((4, 6))
SOURCE = ArrayLeaves({"a/b": X})


def test_each_kind_of_value_has_its_elements() -> None:
    match = regex.compile("(.)(.)").fullmatch("ab")
    assert match is not None
    assert subscripted(SOURCE, "a/b") is X
    assert subscripted(Table("t", {"q": 1}), "q") == 1
    assert subscripted(Groups(match), 2) == "b"
    assert subscripted(Series((X,), None), 0) is X
    assert subscripted("text", slice(1, 3)) == "ex"
    assert subscripted(range(10), -1) == 9


@pytest.mark.parametrize(
    ("index", "items"),
    [
        (0, (0,)),
        ((..., None), (..., None)),
        (slice(1, None), ((1, None, None),)),
        ((slice(None), 2), ((None, None, None), 2)),
    ],
)
def test_arrays_are_indexed_lazily(index: Any, items: tuple[Any, ...]) -> None:
    node = subscripted(X, index).node
    assert isinstance(node, Apply)
    assert node.function == Index(items)
    assert node.inputs == (X.node,)


@pytest.mark.parametrize(
    ("value", "index", "message"),
    [
        (X, "a", "an array is not indexed with the text 'a'"),
        (X, slice(0.5, None), "the bounds of a slice have to be integers, not the number 0.5"),
        (SOURCE, 3, "the key in `source[…]` has to be text, not the number 3"),
        (SOURCE, "a/c", "`source` has no leaf 'a/c'; did you mean `a/b`?"),
        ([1], 1, "index 1 is out of bounds for a list of 1 values"),
        ([1], True, "a list of 1 values is indexed with an integer, not True"),
        (3, 0, "the number 3 has no elements"),
    ],
)
def test_refusals(value: Any, index: Any, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        subscripted(value, index)
    assert caught.value.problems[0].message == message


def test_attributes_of_arrays() -> None:
    assert (attribute(X, "shape"), attribute(X, "dtype")) == ((4, 6), "float32")
    assert (attribute(X, "ndim"), attribute(X, "size")) == (2, 24)
    assert attribute(X, "T").node.function == Transpose()
    with pytest.raises(FunctionError, match=r"`\.ndim` is for arrays, not the number 1"):
        attribute(1, "ndim")


def test_keys_are_text() -> None:
    assert key_text(SOURCE, "a") == "a"
    with pytest.raises(FunctionError, match=r"the key in `source\[…\]` has to be text, not a slice"):
        key_text(SOURCE, slice(None))
