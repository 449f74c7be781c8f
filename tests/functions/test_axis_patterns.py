"""Patterns of `rearrange`: their sides, and what they do to a shape."""

from ckpt_surgery.functions.axis_patterns import ELLIPSIS, MERGED, Rearrangement, parse, rearrangement


def test_both_sides_of_a_pattern() -> None:
    assert parse("d (h k) 1 -> d h () k") == ((("d",), ("h", "k"), ()), (("d",), ("h",), (), ("k",)))
    assert parse("b ...->(... b)") == ((("b",), (ELLIPSIS,)), ((MERGED, "b"),))


def test_a_reshape_a_transpose_and_a_reshape() -> None:
    found = rearrangement("d (h k) -> h (d k)", (("k", 2),), (3, 8))
    assert found == Rearrangement(split=(3, 4, 2), permutation=(1, 0, 2), merged=(4, 6))


def test_an_ellipsis_stands_for_the_axes_that_the_shape_has() -> None:
    for middle in ((), (5,), (5, 6)):
        found = rearrangement("a ... b -> b (...) a", (), (2, *middle, 3))
        assert found.split == (2, *middle, 3)
        assert found.permutation == (len(middle) + 1, *range(1, len(middle) + 1), 0)
        assert found.merged == (3, {0: 1, 1: 5, 2: 30}[len(middle)], 2)
