"""Layout functions against NumPy and einops, and what they refuse."""

from typing import Any

import einops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.indexing import ExpandDims, Flip, Index, Repeat, Squeeze, Take, Tile
from ckpt_surgery.functions.layout import Pad, Reshape, Transpose
from ckpt_surgery.functions.rearranging import Rearrange
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate

F32 = np.dtype(np.float32)
ARRAY = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def items_of(subscript: Any) -> tuple[Any, ...]:
    """A subscript as `Index` has it."""
    items = subscript if isinstance(subscript, tuple) else (subscript,)
    return tuple((i.start, i.stop, i.step) if isinstance(i, slice) else i for i in items)


@pytest.mark.parametrize(
    "subscript",
    [
        np.s_[1],
        np.s_[-1, ..., -5],
        np.s_[:, 1:3],
        np.s_[..., ::2],
        np.s_[::-1, :, 4:0:-2],
        np.s_[None, 0, :, None, -3:],
        np.s_[3:],  # nothing, but within bounds
        np.s_[2:1],
        np.s_[...],
        np.s_[:, :, :],
        np.s_[0, 0, 0],
        np.s_[..., None],
    ],
)
def test_subscripts_are_numpys(subscript: Any) -> None:
    assert same(evaluate(Index(items_of(subscript)), [ARRAY]), ARRAY[subscript])


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 6), st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.integers(-3, 3))
def test_slices_are_numpys_or_out_of_bounds(
    length: int, start: int | None, stop: int | None, step: int
) -> None:
    array = np.arange(length)
    item = (start, stop, step or None)
    inside = all(
        bound is None or -length <= bound <= length - (step < 0 and bound is start) for bound in (start, stop)
    )
    if inside:
        assert same(evaluate(Index((item,)), [array]), array[slice(*item)])
    else:
        with pytest.raises(FunctionError, match=f"is out of bounds for axis 0 of length {length}"):
            evaluate(Index((item,)), [array])


def test_a_subscript_reads_only_what_it_takes() -> None:
    spec = ArraySpec((100, 100), F32)
    result = Index(((10, 90, 10), (None, None, -1)))
    assert result.needs(Region((2, 0), (4, 3)), [spec]) == [(0, Region((30, 97), (41, 100)))]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Transpose(), ARRAY.T),
        (Transpose((2, 0, 1)), ARRAY.transpose(2, 0, 1)),
        (Transpose((-1, 0, 1)), ARRAY.transpose(2, 0, 1)),
        (Reshape((5, -1)), ARRAY.reshape(5, -1)),
        (Reshape(-1), ARRAY.reshape(-1)),
        (Flip(), np.flip(ARRAY)),
        (Flip((0, -1)), np.flip(ARRAY, (0, -1))),
        (Take((2, 2, -4), -2), np.take(ARRAY, [2, 2, -4], -2)),
        (Repeat(2, -1), np.repeat(ARRAY, 2, -1)),
        (Tile((2, 1)), np.tile(ARRAY, (2, 1))),
        (Squeeze(), ARRAY),
        (ExpandDims((0, 2)), np.expand_dims(ARRAY, (0, 2))),
        (ExpandDims(-1), np.expand_dims(ARRAY, -1)),
        (Pad(1, 6), np.pad(ARRAY, ((0, 0), (0, 2), (0, 0)))),
        (Pad(-1, 7, 1.5), np.pad(ARRAY, ((0, 0), (0, 0), (0, 2)), constant_values=1.5)),
    ],
    ids=repr,
)
def test_functions_are_numpys(function: Function, expected: np.ndarray) -> None:
    assert same(evaluate(function, [ARRAY]), expected)


@pytest.mark.parametrize(
    ("pattern", "shape", "axes"),
    [
        ("d (h k) -> d h k", (3, 8), {"k": 2}),
        ("d (h k) -> d h k", (3, 8), {"h": 4, "k": 2}),
        ("(l e) o i -> l e i o", (6, 2, 3), {"e": 3}),
        ("n o i -> n i o", (2, 3, 4), {}),
        ("... a b -> ... b a", (2, 3, 4, 5), {}),
        ("... a b -> ... b a", (4, 5), {}),  # an ellipsis of nothing
        ("a ... -> (a ...)", (2, 3, 4), {}),
        ("a ... b -> a (... b)", (2, 3, 4, 5), {}),
        ("... -> (...)", (2, 3), {}),
        ("... -> ...", (), {}),
        ("a 1 b -> b a", (2, 1, 3), {}),
        ("a () b -> () b (a 1) 1", (2, 1, 3), {}),
        (" ( a b )( c d )->( a c ) (b d) ", (4, 6), {"a": 2, "d": 3}),
        ("(a b c) -> c (b a)", (24,), {"a": 2, "b": 3}),
        ("a b -> a b", (0, 3), {}),
        ("(a b) -> b a", (0,), {"a": 2}),
        ("layer_0 H2 -> H2 layer_0", (2, 3), {}),
    ],
)
def test_rearrange_is_einops(pattern: str, shape: tuple[int, ...], axes: dict[str, int]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    expected = np.ascontiguousarray(einops.rearrange(array, pattern, **axes)).reshape(
        einops.rearrange(array, pattern, **axes).shape
    )
    assert same(evaluate(Rearrange(pattern, tuple(axes.items())), [array]), expected)


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_rearrange_is_einops_for_any_groups(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from("abcde"), unique=True, min_size=1, max_size=5))
    lengths = {name: data.draw(st.integers(1, 3)) for name in names}
    left, right = _grouped(data, names), _grouped(data, data.draw(st.permutations(names)))
    array = np.arange(np.prod(list(lengths.values()))).reshape(
        [int(np.prod([lengths[name] for name in group])) for group in left]
    )
    pattern = " -> ".join(" ".join(f"({' '.join(group)})" for group in side) for side in (left, right))
    expected = einops.rearrange(array, pattern, **lengths)
    assert same(evaluate(Rearrange(pattern, tuple(lengths.items())), [array]), expected)


def _grouped(data: st.DataObject, names: list[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for name in names:
        groups[-1].append(name)
        if data.draw(st.booleans()):
            groups.append([])
    return groups if groups[-1] else groups[:-1]


REFUSED: list[tuple[Function, tuple[int, ...], str]] = [
    (Index((3,)), (3,), "index 3 is out of bounds for axis 0 of length 3"),
    (Index((0, -6)), (3, 5), "index -6 is out of bounds for axis 1 of length 5"),
    (Index(((2048, 9999, None),)), (2560,), "slice 2048:9999 is out of bounds for axis 0 of length 2560"),
    (
        Index(((None, None, None), (6, None, -1))),
        (3, 5),
        "slice 6::-1 is out of bounds for axis 1",
    ),
    (Index((0, 0)), (3,), "a subscript with 2 items for an array of 1 axes"),
    (Transpose((0, 0)), (3, 5), "`transpose`: an axis is given twice in (0, 0)"),
    (Transpose((0,)), (3, 5), "`transpose`: 1 axes given for an array of 2"),
    (Transpose((0, 2)), (3, 5), "`transpose`: there is no axis 2 in an array of 2 axes"),
    (Reshape((4, 4)), (3, 5), "`reshape`: [3,5] has 15 elements, [4,4] has 16"),
    (Reshape((4, -1)), (3, 5), "`reshape`: [3,5] has 15 elements, [4,-1] has 4 times the length given as -1"),
    (Reshape((-1, -1)), (3, 5), "[-1,-1] has a negative length"),
    (Reshape((-2,)), (3, 5), "[-2] has a negative length"),
    (Reshape((0, -1)), (0, 5), "[0,-1] has 0 times the length given as -1"),
    (Flip(2), (3, 5), "`flip`: there is no axis 2"),
    (Take((5,), 1), (3, 5), "`take`: index 5 is out of bounds for axis 1 of length 5"),
    (Repeat(-1, 0), (3,), "repeats should be 0 or more, not -1"),
    (Tile((2, 2)), (3,), "`tile`: 2 reps for an array of 1 axes"),
    (Tile(-2), (3,), "reps should be 0 or more"),
    (Squeeze(0), (3, 1), "`squeeze`: axis 0 of float32[3,1] does not have length 1"),
    (ExpandDims(3), (3,), "`expand_dims`: there is no axis 3 in an array of 2 axes"),
    (Pad(0, 2), (3,), "`pad`: axis 0 of float32[3] is already longer than 2"),
    (Rearrange("a b"), (3, 5), "'a b' needs exactly one `->`"),
    (Rearrange("a -> a -> a"), (3,), "needs exactly one `->`"),
    (Rearrange("a b -> a"), (3, 5), "`b` is on only one side of 'a b -> a'"),
    (Rearrange("a ... -> a"), (3, 5), "`...` is on only one side"),
    (Rearrange("a a -> a"), (3, 5), "`a` stands twice on one side"),
    (Rearrange("(a ...) -> a ..."), (3, 5), "cannot have `...` in parentheses on the left"),
    (Rearrange("a (b -> a b"), (3, 5), "a parenthesis in 'a (b -> a b' is not closed"),
    (Rearrange("a b) -> a b"), (3, 5), "parentheses in 'a b) -> a b' do not match, or are nested"),
    (Rearrange("((a b)) -> a b"), (15,), "do not match, or are nested"),
    (Rearrange("a 2 -> a 2"), (3, 2), "`2` in 'a 2 -> a 2' is not an axis name"),
    (Rearrange("a _b -> a _b"), (3, 2), "`_b` in"),
    (Rearrange("a b c -> c b a"), (3, 5), "is for 3 axes, the array has 2: [3, 5]"),
    (Rearrange("a b c ... -> c b a ..."), (3, 5), "is for at least 3 axes, the array has 2: [3, 5]"),
    (Rearrange("a (b c) -> a b c"), (3, 6), "give the length of `b` or `c`"),
    (Rearrange("a (b c) -> a b c", (("b", 4),)), (3, 6), "an axis of 6 does not split into b=4"),
    (
        Rearrange("a (b c) -> a b c", (("b", 2), ("c", 2))),
        (3, 6),
        "an axis of 6 does not split into b=2 c=2",
    ),
    (Rearrange("a 1 -> a"), (3, 5), "an axis of 5 does not split into 1"),
    (Rearrange("a b -> b a", (("a", 4),)), (3, 5), "an axis of 3 does not split into a=4"),
    (
        Rearrange("head b -> b head", (("heads", 4),)),
        (3, 5),
        "no axis `heads` in 'head b -> b head'; did you",
    ),
    (Rearrange("(a b) -> b a", (("a", 0),)), (0,), "the length of `a` should be positive, not 0"),
]


@pytest.mark.parametrize(("function", "shape", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_refused_before_any_data(function: Function, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        function.infer([ArraySpec(shape, F32)])
    assert message in str(caught.value)


def test_subscripts_that_are_refused_for_any_array() -> None:
    with pytest.raises(FunctionError, match="can have only one"):
        Index((..., 0, ...))
    with pytest.raises(FunctionError, match="step of a slice cannot be 0"):
        Index(((None, None, 0),))


def test_padding_takes_a_value_that_the_dtype_has() -> None:
    with pytest.raises(FunctionError, match="300 is out of range of int8"):
        Pad(0, 9, 300).infer([ArraySpec((3,), np.dtype(np.int8))])


def test_layout_leaves_every_dtype_and_bit_alone() -> None:
    array = np.array([0x7FA1, 0xFFC1, 0x8000, 0x0001], np.uint16).view(numbers("bfloat16[1]").dtype)
    twice = evaluate(Flip(), [evaluate(Flip(), [array])])
    assert same(twice, array)  # NaN payloads and the sign of zero included


def test_splitting_an_axis_reads_only_its_part() -> None:
    spec = ArraySpec((1000, 4096), F32)
    function = Rearrange("d (h k) -> h d k", (("k", 128),))
    needed = function.needs(Region((3, 0, 0), (5, 1000, 128)), [spec])
    assert needed == [(0, Region((0, 384), (1000, 640)))]
