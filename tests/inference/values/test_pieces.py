"""Arrays that are put together of parts."""

import numpy as np
import pytest

from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.values.by_values import found_by_values
from ckpt_surgery.inference.values.pieces import MOST_SLICES, WindowPiece, sliced_pieces, whole_pieces
from ckpt_surgery.inference.values.stacks import StackedLeaves, single
from tests.inference.two_sides import Arrays, computed, fingerprint, normal, sides
from tests.support.comparing import same

A, B = normal(4, 6), normal(2, 6, seed=1)


def together(source: Arrays, wanted: np.ndarray) -> Formation | None:
    """What the wanted array is put together of; the expression has to give it."""
    for found in found_by_values(*sides(source, {"w": np.ascontiguousarray(wanted)})).formations:
        assert same(computed(found.value, {key: source[key] for key in found.sources}), wanted)
        return found
    return None


ROWS = [
    (np.vstack([B, A]), "b a", "concat(xs)", "parts along axis 0"),
    (np.hstack([A.T, B.T]), "a b", "concat([xs[0].T, xs[1].T], axis=1)", "parts along axis 1"),
    (np.pad(A, [(0, 0), (0, 2)]), "a", "pad(x, axis=1, to=8)", "one leaf along axis 1, and zeros"),
    (
        np.pad(np.vstack([A, B]), [(0, 1), (0, 0)]),
        "a b",
        "pad(concat(xs), axis=0, to=7)",
        "parts along axis 0, and zeros",
    ),
    (
        np.concatenate([A.reshape(2, 2, 6), B.reshape(2, 1, 6)], 1).reshape(6, 6),
        "a b",
        "reshape(concat([reshape(xs[0], (2, 2, 6)), reshape(xs[1], (2, 1, 6))], axis=1), (6, 6))",
        "parts along axis 0",
    ),
    (np.vstack([A[3], B[0], A[1]]), "a b", "stack([xs[0][3], xs[1][0], xs[0][1]])", "parts along axis 0"),
]


@pytest.mark.parametrize(("wanted", "keys", "value", "why"), ROWS, ids=[row[2] for row in ROWS])
def test_what_is_put_together(wanted: np.ndarray, keys: str, value: str, why: str) -> None:
    found = together({"a": A, "b": B}, wanted)
    assert found is not None
    assert (" ".join(found.sources), str(found.value), found.why) == (keys, value, why)


@pytest.mark.parametrize(
    "wanted",
    [
        np.vstack([A, normal(2, 6, seed=9)]),  # the rest is not known
        np.vstack([A, np.ones((2, 6), np.float32)]),  # the rest is not zero
        np.pad(A, [(1, 0), (0, 0)]),  # padded in front
    ],
    ids=["rest", "ones", "in front"],
)
def test_what_is_not_put_together(wanted: np.ndarray) -> None:
    assert together({"a": A, "b": B}, wanted) is None


def test_of_several_with_equal_sums_the_smallest_is_taken() -> None:
    one, two = (
        single("a", fingerprint(A)),
        StackedLeaves(("b", "c"), (2,), (fingerprint(A[:2]), fingerprint(A[2:]))),
    )
    assert whole_pieces({(24, one.total): [two, one]}) == {24: {one.total: one}}


def test_only_slices_that_tell_are_pieces() -> None:
    def places(array: np.ndarray) -> set[tuple[int, int]]:
        found = sliced_pieces([single("a", fingerprint(array))], lambda part: fingerprint(array))
        pieces = [piece for totals in found.values() for piece in totals.values()]
        return {(one.window.axis, one.window.start) for one in pieces if isinstance(one, WindowPiece)}

    rows = np.stack([A[0], A[1], A[0], np.zeros(6, np.float32)])
    assert places(rows) == {(0, 1), (0, 3), *((1, column) for column in range(6))}
    assert places(normal(5)) == set()  # single elements
    assert places(normal(MOST_SLICES + 1, 2)[:, :1]) == set()
    assert places(np.zeros((0, 3))) == set()
