"""Arrays that are put together of parts."""

from typing import Any

import numpy as np
import pytest

from ckpt_surgery.inference.expressions.formations import Formation
from ckpt_surgery.inference.values.pieces import MOST_SLICES, FoundParts, sliced_pieces, whole_pieces
from ckpt_surgery.inference.values.stacks import StackedLeaves, single, singles
from ckpt_surgery.inference.values.windows import Window
from tests.inference.two_sides import (
    Arrays,
    assert_equal,
    computed,
    fingerprint,
    normal,
    side,
    sides,
    text_of,
)
from tests.support.comparing import same

A, B = normal(4, 6), normal(2, 6, seed=1)
F32 = np.dtype(np.float32)


def together(source: Arrays, wanted: np.ndarray, sliced: bool = False) -> Formation | None:
    """What the wanted array is put together of; the expression has to give it."""
    one, other = sides(source, {"w": wanted})
    known = {key: fingerprint(array) for key, array in source.items()}
    groups = list(singles(known))
    by_sums: dict[tuple[int, int], list[StackedLeaves]] = {}
    for group in groups:
        by_sums.setdefault((group.size, group.total), []).append(group)
    pieces = sliced_pieces(groups) if sliced else whole_pieces(by_sums)
    found = FoundParts(one, other, wanted.dtype).put_together(single("w", fingerprint(wanted)), pieces)
    if found is not None:
        leaves = {key: source[key] for key in found.sources}
        assert same(computed(found.value, leaves), wanted)
    return found


ROWS = [
    ({"a": A, "b": B}, np.vstack([B, A]), "b a", "concat(xs)", "parts along axis 0"),
    (
        {"a": A, "b": B},
        np.hstack([A.T, B.T]),
        "a b",
        "concat([xs[0].T, xs[1].T], axis=1)",
        "parts along axis 1",
    ),
    ({"a": A}, np.pad(A, [(0, 0), (0, 2)]), "a", "pad(x, axis=1, to=8)", "one leaf along axis 1, and zeros"),
    (
        {"a": A, "b": B},
        np.pad(np.vstack([A, B]), [(0, 1), (0, 0)]),
        "a b",
        "pad(concat(xs), axis=0, to=7)",
        "parts along axis 0, and zeros",
    ),
]


@pytest.mark.parametrize(("source", "wanted", "keys", "value", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_whole_leaves(source: Arrays, wanted: np.ndarray, keys: str, value: str, why: str) -> None:
    found = together(source, wanted)
    assert found is not None
    assert (" ".join(found.sources), str(found.value), found.why) == (keys, value, why)


def test_what_is_joined_by_groups() -> None:
    wanted = np.concatenate([A.reshape(2, 2, 6), B.reshape(2, 1, 6)], 1).reshape(6, 6)
    found = together({"a": A, "b": B}, wanted)
    assert found is not None
    assert found.sources == ("a", "b")
    assert str(found.value).startswith("reshape(concat([")


@pytest.mark.parametrize(
    "wanted",
    [
        np.vstack([A, normal(2, 6, seed=9)]),  # the rest is not known
        np.vstack([A, np.ones((2, 6), np.float32)]),  # the rest is not zero
        np.pad(A, [(1, 0), (0, 0)]),  # padded in front
        A,  # a leaf alone is nothing put together
    ],
    ids=["rest", "ones", "in front", "alone"],
)
def test_what_is_not_put_together(wanted: np.ndarray) -> None:
    assert together({"a": A, "b": B}, wanted) is None


def test_slices_of_leaves() -> None:
    found = together({"a": A, "b": B}, np.vstack([A[3], B[0], A[1]]), sliced=True)
    assert found is not None
    assert found.sources == ("a", "b")
    assert str(found.value).count("xs[0]") == 2
    assert found.why == "parts along axis 0"


def test_of_several_with_equal_sums_the_smallest_is_taken() -> None:
    one, two = (
        single("a", fingerprint(A)),
        StackedLeaves(("b", "c"), (2,), (fingerprint(A[:2]), fingerprint(A[2:]))),
    )
    found = whole_pieces({(24, one.total): [two, one]})
    assert list(found) == [24]
    assert found[24][one.total].group is one


def test_only_slices_that_tell_are_pieces() -> None:
    rows = np.stack([A[0], A[1], A[0], np.zeros(6, np.float32)])
    found = sliced_pieces([single("a", fingerprint(rows))])
    places = {
        (p.window.axis, p.window.start) for totals in found.values() for p in totals.values() if p.window
    }
    assert {start for axis, start in places if axis == 0} == {1, 3}
    assert {start for axis, start in places if axis == 1} == set(range(6))
    assert sliced_pieces([single("a", fingerprint(normal(5)))]) == {}  # single elements
    assert sliced_pieces([single("a", fingerprint(normal(MOST_SLICES + 1, 2)[:, :1]))]) == {}
    assert sliced_pieces([single("a", fingerprint(np.zeros((0, 3))))]) == {}


def test_parts_of_stacks_are_read_once() -> None:
    arrays = {f"l/{i}/{j}": normal(4, 3, seed=3 * i + j) for i in range(2) for j in range(3)}
    reads: list[str] = []
    one = side(arrays)
    assert one.read is not None
    read = one.read

    def counted(leaf: Any, region: Any) -> np.ndarray:
        reads.append(leaf.key.text)
        return read(leaf, region)

    counting = type(one)(one.leaves, one.fingerprints, counted)
    group = StackedLeaves(tuple(arrays), (2, 3), tuple(fingerprint(array) for array in arrays.values()))
    parts = FoundParts(counting, side({}), F32)
    part = parts.of_source(group, Window(2, 1, 1, 2))
    assert text_of(part.array) == "rearrange(stack(xs)[:, 1:3], '(l e) a b -> l e a b', l=2)"
    stacked = np.stack(list(arrays.values())).reshape(2, 3, 4, 3)
    assert_equal(part.fingerprint, fingerprint(stacked[:, :, 1:3]))
    assert sorted(reads) == sorted(arrays)
    assert parts.of_source(group, Window(2, 1, 1, 2)) is part
    assert len(reads) == len(arrays)
