"""`rearrange` against einops, and the patterns that it refuses."""

import einops
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Apply, inputs_first
from ckpt_surgery.functions.layout import rearrange
from tests.support.calling import result_of
from tests.support.comparing import same
from tests.support.effort import examples
from tests.support.lazy_arrays import lazy


def test_rearrange_is_einops() -> None:
    for pattern, shape, axes in (
        ("d (h k) -> d h k", (3, 8), {"k": 2}),
        ("(l e) o i -> l e i o", (6, 2, 3), {"e": 3}),
        ("... a b -> ... b a", (4, 5), {}),  # an ellipsis of nothing
        ("... -> ...", (), {}),
        ("a ... b -> a (... b)", (2, 3, 4, 5), {}),
        ("a 1 b -> b a", (2, 1, 3), {}),
        ("a () b -> () b (a 1) 1", (2, 1, 3), {}),
        (" ( a b )( c d )->( a c ) (b d) ", (4, 6), {"a": 2, "d": 3}),
        ("a b -> a b", (0, 3), {}),
        ("(a b) -> b a", (0,), {"a": 2}),
    ):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        expected = np.asarray(einops.rearrange(array, pattern, **axes))
        assert same(result_of(rearrange, array, pattern=pattern, **axes), expected)


@examples(50)
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
    assert same(result_of(rearrange, array, pattern=pattern, **lengths), expected)


def _grouped(data: st.DataObject, names: list[str]) -> list[list[str]]:
    groups: list[list[str]] = [[]]
    for name in names:
        groups[-1].append(name)
        if data.draw(st.booleans()):
            groups.append([])
    return groups if groups[-1] else groups[:-1]


REFUSED: list[tuple[str, dict[str, int], tuple[int, ...], str]] = [
    ("a b", {}, (3, 5), "'a b' needs exactly one `->`"),
    ("a b => b a", {}, (3, 5), "'a b => b a' needs exactly one `->`"),
    ("a a -> a", {}, (3, 5), "`a` stands twice on one side"),
    ("(a ...) -> a ...", {}, (3, 5), "cannot have `...` in parentheses on the left"),
    ("a (b -> a b", {}, (3, 5), "a parenthesis in 'a (b -> a b' is not closed"),
    ("((a b)) -> a b", {}, (15,), "do not match, or are nested"),
    ("a 2 -> a 2", {}, (3, 2), "`2` in 'a 2 -> a 2' is not an axis name"),
    ("a b c -> c b a", {}, (3, 5), "is for 3 axes, the array has 2: [3, 5]"),
    ("a (b c) -> a b c", {}, (3, 6), "give the length of `b` or `c`"),
    ("a 1 -> a", {}, (3, 5), "an axis of 5 does not split into 1"),
    ("head b -> b head", {"heads": 4}, (3, 5), "no axis `heads` in 'head b -> b head'; did you"),
    ("(a b) -> b a", {"a": 0}, (0,), "the length of `a` should be positive, not 0"),
]


def test_what_is_refused_before_any_data() -> None:
    for pattern, axes, shape, message in REFUSED:
        with pytest.raises(FunctionError) as caught:
            rearrange(lazy(shape), pattern, **axes)
        assert message in str(caught.value)


def test_splitting_an_axis_reads_only_its_part() -> None:
    value = rearrange(lazy((1000, 4096)), "d (h k) -> h d k", k=128)
    region, node = Region((3, 0, 0), (5, 1000, 128)), value.node
    while isinstance(node, Apply):
        [(_, region)] = node.function.needs(region, [child.spec for child in node.inputs])
        [node] = node.inputs
    assert region == Region((0, 384), (1000, 640))


def test_steps_that_change_nothing_are_left_out() -> None:
    for pattern, axes, functions in (
        ("d (h k) -> h d k", {"k": 2}, ["Reshape", "Transpose"]),
        ("a b -> b a", {}, ["Transpose"]),
        ("a b -> (b a)", {}, ["Transpose", "Reshape"]),
        ("a b -> (a b)", {}, ["Reshape"]),
        ("(a c) b -> (c a) b", {"c": 3}, ["Reshape", "Transpose", "Reshape"]),
        ("... -> ...", {}, []),
    ):
        made = inputs_first([rearrange(lazy((6, 4)), pattern, **axes).node])
        assert [type(node.function).__name__ for node in made] == functions
