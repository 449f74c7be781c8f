"""Walks over graphs: streams, shared parts, and manifests without computation."""

from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Read
from ckpt_surgery.functions.joining import Stack
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.reductions import Norm, Sum
from ckpt_surgery.graph.walks import Spare, relinked, streams_of, with_shared_parts

NARROW = np.dtype(ml_dtypes.bfloat16)


def read(name: str, shape: tuple[int, ...] = (2, 3), dtype: Any = np.float32) -> Read:
    return Read("source", Leaf(Key.parse(name), LeafKind.ARRAY, ArraySpec(shape, np.dtype(dtype))))


def test_nothing_is_relinked_that_has_no_stored_bytes() -> None:
    assert relinked(read("a"), Spare()) is None
    assert relinked(Apply(Transpose(), (read("a"),)), Spare()) is None
    assert relinked(Apply(Binary("+", None, 1), (read("a"),)), Spare()) is None


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
