"""Exact expressions of a target in terms of a source, from sums of hashes."""

from typing import Any

import einops
import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.inference.expressions.formations import Evidence, Formation
from ckpt_surgery.inference.values.by_values import ByValues, match_by_values
from tests.inference.two_sides import Arrays, computed, normal, sides
from tests.support.comparing import same

BF16 = np.dtype(ml_dtypes.bfloat16)


def matched(source: Arrays, target: Arrays) -> dict[str, Formation]:
    """Match leaves by values, and compute every expression to confirm it."""
    formations = match_by_values(*sides(source, target)).formations
    for one in formations:
        leaves = {f"{i}": source[key] for i, key in enumerate(one.sources)}
        assert same(computed(one.value, leaves), target[one.target]), one
        assert one.evidence == Evidence.VALUES
    assert len({one.target for one in formations}) == len(formations)
    return {one.target: one for one in formations}


def said(source: Arrays, target: Arrays) -> dict[str, tuple[str, str]]:
    """Sources and expression of each matched leaf."""
    return {key: (" ".join(one.sources), str(one.value)) for key, one in matched(source, target).items()}


A, B, C = (normal(4, 6, seed=i) for i in range(3))
LAYERS = {f"l/{i}": normal(4, 6, seed=10 + i) for i in range(3)}
GRID = {f"l/{i}/e/{j}": normal(2, 5, seed=20 + 3 * i + j) for i in range(2) for j in range(3)}
ALL = list(LAYERS.values())
HEADS = "(h d) e -> e h d"
PERIODS = normal(3, 6, 4)

ROWS: list[tuple[str, Arrays, Arrays, dict[str, tuple[str, str]]]] = [
    ("another name", {"a": A}, {"b": A}, {"b": ("a", "x")}),
    ("a transpose", {"a": A}, {"b": A.T}, {"b": ("a", "x.T")}),
    (
        "heads",
        {"a": A},
        {"b": einops.rearrange(A, HEADS, h=2)},
        {"b": ("a", "rearrange(x, '(h d) a -> a h d', h=2)")},
    ),
    ("a cast", {"a": A}, {"b": A.astype(BF16)}, {"b": ("a", "cast(x, 'bfloat16')")}),
    ("a wider type", {"a": A}, {"b": A.astype("f8").T}, {"b": ("a", "cast(x.T, 'float64')")}),
    ("a stack", LAYERS, {"s": np.stack(ALL)}, {"s": ("l/0 l/1 l/2", "stack(xs)")}),
    ("along axis 1", LAYERS, {"s": np.stack(ALL, 1)}, {"s": ("l/0 l/1 l/2", "stack(xs, axis=1)")}),
    (
        "transposed in a stack",
        LAYERS,
        {"s": np.stack([one.T for one in ALL])},
        {"s": ("l/0 l/1 l/2", "rearrange(stack(xs), 'l a b -> l b a')")},
    ),
    ("an odd order", LAYERS, {"s": np.stack([ALL[2], ALL[0]])}, {"s": ("l/2 l/0", "stack(xs)")}),
    (
        "experts in layers",
        GRID,
        {"s": np.stack(list(GRID.values())).reshape(2, 3, 2, 5)},
        {"s": (" ".join(GRID), "rearrange(stack(xs), '(l e) a b -> l e a b', l=2)")},
    ),
    (
        "the experts of each layer",
        GRID,
        {f"s/{i}": np.stack([GRID[f"l/{i}/e/{j}"] for j in range(3)]) for i in range(2)},
        {f"s/{i}": (f"l/{i}/e/0 l/{i}/e/1 l/{i}/e/2", "stack(xs)") for i in range(2)},
    ),
    (
        "layers of a stack",
        {"s": np.stack(ALL, 1)},
        LAYERS,
        {f"l/{i}": ("s", f"x[:, {i}]") for i in range(3)},
    ),
    (
        "one behind the other",
        {"q": A, "k": B},
        {"f": np.concatenate([A, B])},
        {"f": ("q k", "concat(xs)")},
    ),
    (
        "of unequal parts",
        {"q": A, "k": B[:2]},
        {"f": np.concatenate([A, B[:2]])},
        {"f": ("q k", "concat(xs)")},
    ),
    (
        "of parts that are transposed",
        {"q": A, "k": B[:2]},
        {"f": np.concatenate([A, B[:2]]).T},
        {"f": ("q k", "concat([xs[0].T, xs[1].T], axis=1)")},
    ),
    ("a half", {"f": np.concatenate([A, B])}, {"q": A}, {"q": ("f", "x[:4]")}),
    (
        "both halves",
        {"f": np.concatenate([A, B], 1)},
        {"q": A, "k": B.T},
        {"q": ("f", "x[:, :6]"), "k": ("f", "x[:, 6:].T")},
    ),
    ("every second row", {"f": A}, {"even": A[::2]}, {"even": ("f", "x[::2]")}),
    ("padding", {"a": A}, {"b": np.pad(A, [(0, 2), (0, 0)])}, {"b": ("a", "pad(x, axis=0, to=6)")}),
    ("of columns", {"a": A}, {"b": np.pad(A, [(0, 0), (0, 2)])}, {"b": ("a", "pad(x, axis=1, to=8)")}),
    (
        "parts and padding",
        {"a": A, "b": B[:2]},
        {"c": np.pad(np.vstack([A, B[:2]]), [(0, 1), (0, 0)])},
        {"c": ("a b", "pad(concat(xs), axis=0, to=7)")},
    ),
    (
        "parts by turns",
        {"a": A, "b": B[:2]},
        {"c": np.concatenate([A.reshape(2, 2, 6), B[:2].reshape(2, 1, 6)], 1).reshape(6, 6)},
        {
            "c": (
                "a b",
                "reshape(concat([reshape(xs[0], (2, 2, 6)), reshape(xs[1], (2, 1, 6))], axis=1), (6, 6))",
            )
        },
    ),
    (
        "single rows",
        {"a": A, "b": B},
        {"c": np.vstack([A[3], B[0], A[1]])},
        {"c": ("a b", "stack([xs[0][3], xs[1][0], xs[0][1]])")},
    ),
    (
        "layers of two stacks",
        {"q": np.stack(ALL), "k": np.stack([A, B, C])},
        {"l/1": np.concatenate([ALL[1], B])},
        {"l/1": ("q k", "concat([xs[0][1], xs[1][1]])")},
    ),
    ("one column", {"a": A}, {"b": A[:, 0]}, {"b": ("a", "x[:, 0]")}),
    ("one column with its axis", {"a": A}, {"b": A[:, 5:]}, {"b": ("a", "x[:, 5:]")}),
    (
        "the first two rows of three",
        {"a": PERIODS},
        {"b": np.ascontiguousarray(PERIODS.reshape(3, 2, 3, 4)[:, :, :2])},
        {"b": ("a", "reshape(x, (3, 2, 3, 4))[:, :, :2]")},
    ),
    ("padding in front", {"a": A}, {"b": np.pad(A, [(1, 0), (0, 0)])}, {}),
    ("a rest that is not known", {"a": A}, {"b": np.vstack([A, C])}, {}),
    ("a rest that is not zero", {"a": A}, {"b": np.vstack([A, np.ones((2, 6), "f4")])}, {}),
    ("one leaf of two", {"a": A, "b": B}, {"c": A}, {"c": ("a", "x")}),
    ("nothing", {"a": A}, {"b": B}, {}),
    ("a constant proves nothing", {"a": np.ones(3)}, {"b": np.ones(3)}, {}),
    ("no element proves nothing", {"a": np.ones((0, 3))}, {"b": np.ones((0, 3))}, {}),
    ("integers are no floats", {"a": np.arange(9)}, {"b": np.arange(9.0)}, {}),
]


@pytest.mark.each
@pytest.mark.parametrize(("what", "source", "target", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_found(what: str, source: Arrays, target: Arrays, wanted: Any) -> None:
    target = {key: np.ascontiguousarray(array) for key, array in target.items()}
    assert said(source, target) == wanted


def test_the_same_part_of_each_leaf_is_stacked() -> None:
    fused = {f"l/{i}": normal(6, 5, seed=i) for i in range(3)}
    parts = [one[2:4] for one in fused.values()]
    assert said(fused, {"k": np.stack(parts)}) == {"k": ("l/0 l/1 l/2", "stack(xs)[:, 2:4]")}
    one = matched(fused, {"k": np.stack([parts[2], parts[0]])})["k"]
    assert (one.sources, str(one.value)) == (("l/2", "l/0"), "stack(xs)[:, 2:4]")


def test_of_parts_with_equal_values_the_plainest_are_taken() -> None:
    counter = (np.arange(216) % 4).reshape(6, 3, 12).astype(np.float32)
    assert said({"a": counter}, {"b": counter.transpose(2, 0, 1)}) == {
        "b": ("a", "rearrange(x, 'a b c -> c a b')")
    }
    source = {"l/0": counter[:, 0], "l/1": normal(6, 12)}
    assert said(source, {"k": np.stack([one[1] for one in source.values()])}) == {
        "k": ("l/0 l/1", "stack(xs)[:, 1]")
    }


def test_what_is_fused_by_group_of_heads_is_taken_apart() -> None:
    """Two groups, each with two queries, a key and a value of three rows."""
    fused = normal(2 * 4 * 3, 5)
    groups = fused.reshape(2, 4, 3, 5)
    target = {
        "q": np.ascontiguousarray(groups[:, :2].reshape(12, 5)),
        "k": np.ascontiguousarray(groups[:, 2].reshape(6, 5)),
        "v": np.ascontiguousarray(groups[:, 3].reshape(6, 5)),
    }
    assert set(matched({"qkv": fused}, target)) == {"q", "k", "v"}
    assert set(matched(target, {"qkv": fused})) == {"qkv"}


def test_interleaved_siblings_are_fused_and_taken_apart() -> None:
    gate, up = normal(6, 4, seed=1), normal(6, 4, seed=2)
    apart = {"m/gate/w": gate, "m/up/w": up}
    fused = {"m/fused/w": np.stack([gate, up], 1).reshape(12, 4)}
    assert set(matched(apart, fused)) == {"m/fused/w"}
    assert set(matched(fused, apart)) == {"m/gate/w", "m/up/w"}
    assert said(fused, {"m/gate/w": gate}) == {"m/gate/w": ("m/fused/w", "x[::2]")}


def test_rows_of_one_leaf_in_another_order() -> None:
    """The leaf is one source, however many of its parts are taken."""
    one = matched({"a": A}, {"b": A[[2, 0, 3, 1]]})["b"]
    assert one.sources == ("a",)
    assert str(one.value).count("x[") == 4


def test_single_elements_and_repeated_slices_are_no_parts() -> None:
    """Zeros and ones that happen to be there prove nothing."""
    source = {
        "a": np.array([0.0, 1.0], "f4"),
        "b": np.stack([np.zeros(3, "f4"), np.zeros(3, "f4"), A[0, :3]]),
    }
    target = {"c": np.array([1.0, 0, 0], "f4"), "d": np.stack([A[0, :3], np.zeros(3, "f4")]), "e": B}
    assert "c" not in matched(source, target)


def test_a_leaf_that_occurs_twice_is_one_source() -> None:
    source = {"a": A, "b": B}
    one = matched(source, {"c": np.concatenate([A, B, A])})["c"]
    assert (one.sources, str(one.value)) == (("a", "b"), "concat([xs[0], xs[1], xs[0]])")
    assert said(source, {"c": np.concatenate([A, A])}) == {"c": ("a", "concat([x, x])")}


def test_each_dtype_of_the_target_is_searched() -> None:
    source = {"a": A, "b": B}
    target = {"a16": A.astype(np.float16), "b32": B, "a32": A}
    assert said(source, target) == {
        "a16": ("a", "cast(x, 'float16')"),
        "b32": ("b", "x"),
        "a32": ("a", "x"),
    }


def test_what_is_no_number_is_not_searched() -> None:
    source, target = sides({"a": A}, {"b": A})
    assert match_by_values(source, target).formations
    assert match_by_values(source, type(target)({})) == ByValues((), {})
