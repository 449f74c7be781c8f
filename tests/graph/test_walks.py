"""Trees of nodes: specs, rounding, reads in order, and manifests without computation."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Array, Read, Series, applied, reads
from ckpt_surgery.functions.dtypes import Cast, Rounded
from ckpt_surgery.functions.joining import Concat, Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.masks import KthMagnitude, TopkMask
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.graph.walks import Spare, relinked, streams_of, with_shared_parts

NARROW = np.dtype(ml_dtypes.bfloat16)


def read(name: str, shape: tuple[int, ...] = (2, 3), dtype: Any = np.float32) -> Read:
    return Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(shape, np.dtype(dtype))))


def test_a_node_knows_its_spec_without_data() -> None:
    node = Apply(Transpose(), (read("a"),))
    assert node.spec == ArraySpec((3, 2), np.dtype(np.float32))


def test_narrow_floats_are_rounded_once_at_the_end() -> None:
    array = Array(read("a", dtype=NARROW), NARROW)
    assert array.settled() is array.node
    doubled = applied(Binary("*", None, 2), [array])
    assert (doubled.dtype, doubled.node.spec.dtype) == (NARROW, np.dtype(np.float32))
    assert doubled.spec == ArraySpec((2, 3), NARROW)
    settled = doubled.settled()
    assert isinstance(settled, Apply)
    assert settled.function == Rounded(NARROW, "inf")
    assert settled.inputs == (doubled.node,)


def test_functions_of_exact_inputs_get_them_rounded() -> None:
    wide = applied(Binary("*", None, 2), [Array(read("a", dtype=NARROW), NARROW)])
    cast = applied(Cast(np.dtype(np.float64)), [wide])
    assert isinstance(cast.node, Apply)
    assert cast.node.inputs == (wide.node,)


def test_shapes_are_checked_when_a_function_is_applied() -> None:
    with pytest.raises(FunctionError):
        applied(Concat(0), [Array(read("a"), NARROW), Array(read("b", (2, 4)), NARROW)])


def test_reads_come_depth_first_and_once() -> None:
    a, b, c = read("a"), read("b"), read("c")
    node = Apply(Stack(), (Apply(Concat(), (b, a)), Apply(Concat(), (c, a))))
    assert [r.leaf.key.text for r in reads(node)] == ["b", "a", "c"]
    assert list(reads(a)) == [a]
    seen: set[int] = set()
    assert list(reads(node.inputs[0], seen)) == [b, a]
    assert list(reads(node, seen)) == [c]


def test_a_series_is_complete_without_gaps() -> None:
    items = tuple(Array(read(name), NARROW) for name in "abc")
    assert Series(items, None).complete
    assert Series(items, (0, 1, 2)).complete
    assert not Series(items, (0, 1, 3)).complete
    assert not Series(items, (1, 2, 3)).complete


def test_nothing_is_relinked_that_has_no_stored_bytes() -> None:
    assert relinked(read("a"), Spare()) is None
    assert relinked(Apply(Transpose(), (read("a"),)), Spare()) is None
    assert relinked(Apply(Binary("+", None, 1), (read("a"),)), Spare()) is None


def test_a_function_gets_what_it_has_to_know_of_the_whole_as_a_further_input() -> None:
    array = Array(read("a"), np.dtype(np.float32))
    mask = applied(TopkMask(2), [array])
    assert isinstance(mask.node, Apply)
    first, second = mask.node.inputs
    assert first is array.node
    assert isinstance(second, Apply)
    assert (second.function, second.inputs) == (KthMagnitude(2), (array.node,))
    assert mask.dtype == np.bool_


def test_streams_come_after_those_that_they_need() -> None:
    norm = Apply(Norm(), (read("a"),))
    total = Apply(Sum(), (Apply(Binary("/"), (read("a"), norm)),))
    value = Apply(Binary("*"), (total, Apply(Sum(0), (read("a"),))))  # a sum over one axis is no stream
    assert streams_of(value) == (norm, total)


def test_what_an_expression_names_twice_becomes_one_part() -> None:
    def half(number: float) -> Apply:
        return Apply(Binary("*", None, number), (Apply(Norm(), (read("a"),)),))

    value = with_shared_parts(Apply(Stack(), (half(2), half(2), half(2.0), Apply(Norm(), (read("b"),)))))
    assert isinstance(value, Apply)
    one, two, other, _ = value.inputs
    assert one is two
    assert one is not other  # 2 is not 2.0: an integer keeps its dtype
    assert [node.inputs[0].leaf.key.text for node in streams_of(value)] == ["a", "b"]  # type: ignore[union-attr]
    plain = Apply(Stack(), (read("a"), read("a")))
    assert with_shared_parts(plain) is plain
