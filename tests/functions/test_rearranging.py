"""`rearrange` against einops, and the patterns that it refuses."""

import einops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.rearranging import Rearrange
from tests.support.comparing import same
from tests.support.evaluation import evaluate

F32 = np.dtype(np.float32)


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


def test_splitting_an_axis_reads_only_its_part() -> None:
    spec = ArraySpec((1000, 4096), F32)
    function = Rearrange("d (h k) -> h d k", (("k", 128),))
    needed = function.needs(Region((3, 0, 0), (5, 1000, 128)), [spec])
    assert needed == [(0, Region((0, 384), (1000, 640)))]
