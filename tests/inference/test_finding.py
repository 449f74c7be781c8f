"""Findings about every leaf: by values first, then by names, then among the rest."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.inference.expressions.formations import ConflictEntry, Evidence, Findings, Shared, Value
from ckpt_surgery.inference.finding import infer_findings
from ckpt_surgery.inference.values.reading import Side
from tests.inference.two_sides import Arrays, computed, normal, side, sides
from tests.support.comparing import same
from tests.support.leaves import listing

A, B, C = (normal(4, 6, seed=i) for i in range(3))


def known(source: Arrays, target: Arrays) -> Findings:
    return infer_findings(*sides(source, target))


def evidence(result: Findings) -> dict[str, tuple[str, Evidence]]:
    return {one.target: (" ".join(one.sources), one.evidence) for one in result.formations}


SHARES = [
    ({"a": A, "b": B}, Shared.SHARED),
    ({"a": A, "b": C}, Shared.SHARED),  # half of it
    ({"a": A, "b": C, "c": C[::-1]}, Shared.PARTLY),
    ({"a": C}, Shared.UNRELATED),
    ({"a": A, "b": np.ones((9, 9), "f4")}, Shared.SHARED),  # ones count for nothing
    ({"a": np.ones((4, 6), "f4")}, Shared.UNRELATED),
]


@pytest.mark.parametrize(("target", "shared"), SHARES, ids=range(len(SHARES)))
def test_how_much_is_shared(target: Arrays, shared: Shared) -> None:
    assert known({"a": A, "b": B}, target).shared == shared


def test_a_listing_has_no_values() -> None:
    result = infer_findings(side({"a/w": A}), Side(listing({"a/w": "float32[4,6]", "z": "int8[7]"})))
    assert result.shared == Shared.NONE
    assert evidence(result) == {"a/w": ("a/w", Evidence.ONLY_LAYOUT)}
    assert [one.targets for one in result.undecided] == [("z",)]
    assert result.from_target == ()


def test_values_are_stronger_than_names() -> None:
    result = known({"a": A, "b": B}, {"a": B, "b": A})
    assert evidence(result) == {"a": ("b", Evidence.VALUES), "b": ("a", Evidence.VALUES)}
    assert result.conflicts == (
        ConflictEntry("a", ("b",), ("a",)),
        ConflictEntry("b", ("a",), ("b",)),
    )


def test_of_equal_leaves_the_one_with_the_nearest_name_is_taken() -> None:
    result = known({"ema/w": A, "params/w": A, "params/v": B}, {"model/params/w": A})
    assert evidence(result) == {"model/params/w": ("params/w", Evidence.VALUES)}


def test_a_leaf_of_its_own_key_is_no_conflict() -> None:
    assert known({"a": A, "b": B}, {"a": A, "c": B}).conflicts == ()


def test_equal_constants_of_equal_keys() -> None:
    ones = np.ones(4, np.float32)
    result = known({"a": A, "norm": ones}, {"a": A, "norm": ones})
    assert evidence(result)["norm"] == ("norm", Evidence.VALUES)


def test_what_nothing_fits_is_the_targets() -> None:
    result = known({"a": A, "b": B}, {"a": A, "b": B, "head": normal(5, 7)})
    assert result.from_target == ("head",)
    assert result.undecided == ()


def test_what_may_have_been_a_dropped_leaf_is_undecided() -> None:
    """`old` has the size of `new`, so an unknown operation may have made one from the other."""
    result = known({"a": A, "old": B}, {"a": A, "new": C})
    assert [one.targets for one in result.undecided] == [("new",)]
    assert [one.sources for one in result.undecided[0].candidates] == [("old",)]
    assert result.undecided[0].own_value == ("drop:old",)
    assert result.dropped == ()
    assert result.from_target == ()


def test_what_feeds_nothing_is_dropped() -> None:
    result = known({"a": A, "m": normal(9)}, {"a": A})
    assert result.dropped == ("m",)


def test_strings_and_empty_nodes_are_kept() -> None:
    others = {"name": "string", "none": "empty"}
    result = infer_findings(side({"a": A}, others), side({"a": A}, others))
    assert {one.target for one in result.formations} == {"a", "name", "none"}


def test_everything_is_in_the_order_of_the_target() -> None:
    result = known({"a": A, "b": B, "c": C}, {"c": C, "a": A, "b": B})
    assert [one.target for one in result.formations] == ["c", "a", "b"]
    assert (result.source_keys, result.target_keys) == (("a", "b", "c"), ("c", "a", "b"))


def test_values_against_names_are_told_across_formats() -> None:
    source = {"layers.0.q_proj.weight": A, "layers.0.k_proj.weight": B}
    target = {"params/layers_0/query/kernel": B.T.copy(), "params/layers_0/key/kernel": A.T.copy()}
    conflicts = {(one.target, one.by_values, one.by_names) for one in known(source, target).conflicts}
    assert conflicts == {
        ("params/layers_0/query/kernel", ("layers.0.k_proj.weight",), ("layers.0.q_proj.weight",)),
        ("params/layers_0/key/kernel", ("layers.0.q_proj.weight",), ("layers.0.k_proj.weight",)),
    }


def test_candidates_of_one_shape_are_told_one_by_one() -> None:
    source = side({f"layers_{i}/attn/query/kernel": normal(9, 9, seed=i) for i in range(3)})
    result = infer_findings(source, Side(listing({"attn/query/kernel": "float32[9,9]"})))
    candidates = [candidate.sources for one in result.undecided for candidate in one.candidates]
    assert sorted(candidates) == [(key,) for key in source.leaves]


# --- values after arithmetic, and constants ---------------------------------------------------------------

F32, ONES = np.float32, np.ones((2, 3), np.float32)
PAIR = np.concatenate([normal(3), normal(3, seed=1)])
DECIDED: list[tuple[Arrays, Arrays, dict[str, tuple[str, str]]]] = [
    ({"n/w": A, "z": C}, {"n/w": (A + F32(1)).T, "z": C}, {"n/w": ("n/w", "x.T + 1.0"), "z": ("z", "x")}),
    (
        {"l/0/w": A, "l/1/w": B},
        {"l/w": np.stack([A, B], 1) * F32(8**-0.5)},
        {"l/w": ("l/0/w l/1/w", "stack(xs, axis=1) * (1 / sqrt(8))")},
    ),
    (
        {"l/w": np.stack([A, B])},
        {"l/0/w": A * F32(3), "l/1/w": B * F32(3)},
        {"l/0/w": ("l/w", "x[0] * 3.0"), "l/1/w": ("l/w", "x[1] * 3.0")},
    ),
    ({"n/s": normal(16, 8)}, {"n/s": normal(16, 8) * F32(0.75)}, {"n/s": ("n/s", "x * 0.75")}),
    ({"n/w": A}, {"n/w": (A * F32(4)).astype("f2")}, {"n/w": ("n/w", "cast(x * 4.0, 'float16')")}),
    (
        {"left/query/kernel": A, "right/query/kernel": B},  # values decide between candidates
        {"query/kernel": B + F32(1)},
        {"query/kernel": ("right/query/kernel", "x + 1.0")},
    ),
    (  # names that others taught decide for constants
        {"a/0": A[:2, :3], "a/1": ONES, "a/2": ONES * 2, "b/0": B[:2, :3], "b/1": ONES},
        {"new/0": A[:2, :3].T, "new/1": ONES.T, "new/2": ONES.T * 2},
        {f"new/{i}": (f"a/{i}", "x.T") for i in range(3)},
    ),
]


@pytest.mark.each
@pytest.mark.parametrize(("source", "target", "wanted"), DECIDED, ids=range(len(DECIDED)))
def test_what_values_decide(source: Arrays, target: Arrays, wanted: dict[str, tuple[str, str]]) -> None:
    target = {key: np.ascontiguousarray(array) for key, array in target.items()}
    result = known(source, target)
    assert result.undecided == ()
    for one in result.formations:
        leaves = {str(i): source[key] for i, key in enumerate(one.sources)}
        assert same(computed(one.value, leaves), target[one.target])
    said = {one.target: (" ".join(one.sources), str(one.value)) for one in result.formations}
    assert said.keys() == target.keys()
    assert said.items() >= wanted.items()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"left/query/kernel": A, "right/query/kernel": A}, A + F32(1)),
        ({"q/w": np.ones((4, 4), F32), "b": A}, np.ones((4, 4), F32)),
    ],
    ids=["copies", "a square of ones"],
)
def test_what_names_leave_open_stays_open(source: Arrays, target: np.ndarray) -> None:
    """Values do not tell copies apart, and constants decide nothing."""
    (one,) = known({**source, "b": B}, {"query/kernel": target, "b": B}).undecided
    assert one.targets == ("query/kernel",)
    assert len(one.candidates) == 2


OPERATIONS = [
    *(" + 1.0", " - 1.0", " + 0.125", " * 2.0", " * -3.0", " * sqrt(64)", " * sqrt(48)"),
    *(" * -sqrt(48)", " * (1 / 4)", " * (1 / sqrt(48))", " * (48 ** -0.5)", " * (-1 / sqrt(48))"),
]


@pytest.mark.each
@pytest.mark.parametrize("operation", OPERATIONS)
def test_sums_and_products_with_a_number_are_guessed(operation: str) -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16):
        array = normal(16, 8, dtype=dtype)
        wanted = computed(Value(f"x{operation}"), {"x": array})
        (one,) = known({"n/scale": array}, {"n/scale": wanted}).formations
        assert one.evidence == Evidence.ARITHMETIC
        assert same(computed(one.value, {"x": array}), wanted)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"n": np.arange(12).reshape(3, 4)}, {"n": np.arange(12).reshape(3, 4) + 1}),  # integers
        ({"n": A, "m": normal(9, 9)}, {"n": np.vstack([A[:1], B[1:]]), "m": normal(9, 9, seed=3)}),
        ({"n": ONES}, {"n": ONES * 2}),
        ({"n": A}, {"n": np.where(A > 1, np.inf, A)}),
    ],
    ids=["integers", "some rows of the source", "other constants", "without limits"],
)
def test_other_values_need_a_decision(source: Arrays, target: Arrays) -> None:
    (one,) = known(source, target).undecided
    assert (one.targets, [each.sources for each in one.candidates]) == (("n",), [("n",)])


def test_constants_that_names_do_not_find_stay_open() -> None:
    """The next checkpoint may have other numbers there, and the leaves of SRC would be dropped."""
    source = {f"{word}/{i}": normal(3 + i, seed=i + len(word)) for word in ("a", "bb") for i in (0, 1)}
    source |= {"a/1": np.ones(3, F32), "bb/1": np.ones(3, F32)}
    result = known(source, {f"c/{i}": np.concatenate([source[f"a/{i}"], source[f"bb/{i}"]]) for i in (0, 1)})
    (one,) = result.undecided
    assert (one.targets, [each.sources for each in one.candidates]) == (("c/1",), [("a/1", "bb/1")])
    assert (result.dropped, result.from_target) == ((), ())


def test_constants_of_other_values_are_the_targets() -> None:
    source = {"a/0": PAIR[:3], "b/0": PAIR[3:], "a/1": np.zeros(3, F32), "n": np.ones(3, np.int32)}
    assert known(source, {"c/0": PAIR, "c/1": np.ones(6, F32)}).from_target == ("c/1",)


def test_strings_that_differ_are_the_targets() -> None:
    result = infer_findings(side({"a": A}, {"n/s": "string"}), side({"a": A}, {"t/n/s": "string"}))
    assert evidence(result)["t/n/s"] == ("n/s", Evidence.ONLY_LAYOUT)
    result = infer_findings(side({"a": A}, {"s": "string"}), side({"a": A}, {"s": "empty"}))
    assert (result.dropped, result.from_target) == (("s",), ("s",))


def test_keys_of_random_numbers_go_by_their_names() -> None:
    keys = {f"rng.{n}": "prng_key" for n in range(3)}
    result = infer_findings(Side(listing(keys)), Side(listing({f"rngs/{n}": "prng_key" for n in range(3)})))
    assert {one.target: one.sources for one in result.formations} == {
        f"rngs/{n}": (f"rng.{n}",) for n in range(3)
    }


def test_leaves_that_a_stack_of_the_same_size_may_hold() -> None:
    layers = {f"l_{i}/s": normal(6, seed=i + 3) for i in range(4)}
    result = known({"s": normal(2, 6), "a": A}, layers | {"a": A})
    assert [(one.targets, one.candidates[0].how) for one in result.undecided] == [(tuple(layers), "unstack")]


def test_numbers_that_begin_elsewhere() -> None:
    layers = [normal(4, 6, seed=i) for i in range(3)]
    source = {f"h.{n + 1}.w": one for n, one in enumerate(layers)}
    result = known(source, {f"b.{n}.w": one + F32(0.3) * layers[0] for n, one in enumerate(layers)})
    assert {one.target: one.sources for one in result.formations} == {
        f"b.{n}.w": (f"h.{n + 1}.w",) for n in range(3)
    }
