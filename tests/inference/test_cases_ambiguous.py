"""Ambiguous leaves stay undecided or come out right; they are never silently wrong."""

import numpy as np
import pytest

from tests.inference.cases.running import Arrays, assert_found, carried_out, inferred, rules_of, undecided
from tests.support.comparing import assert_same


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def test_unhelpful_names_and_unrelated_values() -> None:
    old = {f"{name}/w": normal(9, 9, seed=at) for at, name in enumerate("abc")}
    new = {f"{name}/w": normal(9, 9, seed=9 + at) for at, name in enumerate("pqs")}
    inference = inferred(old, new)
    assert (inference.values, undecided(inference), inference.problems) == ("unrelated", set(new), ())
    assert (rules_of(inference), inference.findings.dropped, inference.findings.from_target) == ([], (), ())
    assert {k for one in inference.findings.undecided for c in one.candidates for k in c.sources} == set(old)


def test_a_square_matrix_without_values() -> None:
    old, new = {"dense/weight": normal(9, 9)}, {"params/dense/kernel": normal(9, 9).T}
    (one,) = inferred(old, new, values="ignore").findings.undecided
    assert one.why == "names fit, but 2 layouts take [9, 9] to [9, 9]"
    assert {candidate.value for candidate in one.candidates} == {"x", "x.T"}
    assert_found(old, new, 1)


def test_names_that_are_swapped_against_values() -> None:
    first, second = normal(9, 9), normal(9, 9, seed=1)
    old = {"a/gate/kernel": first, "a/up/kernel": second}
    new = {"a/gate/kernel": second, "a/up/kernel": first}
    inference = assert_found(old, new, 1)
    assert {(one.target, one.by_values, one.by_names) for one in inference.findings.conflicts} == {
        ("a/gate/kernel", ("a/up/kernel",), ("a/gate/kernel",)),
        ("a/up/kernel", ("a/gate/kernel",), ("a/up/kernel",)),
    }
    assert "# values over names:" in inference.recipe


@pytest.mark.parametrize("named_alike", [True, False])
def test_one_element_is_another(named_alike: bool) -> None:
    old = {f"l/{i}/w": normal(9, 9, seed=i) for i in range(5)}
    new = {f"{'l' if named_alike else 'm'}/{i}/w": old[f"l/{i}/w"].T.copy() for i in range(5)}
    changed = next(key for key in new if "/3/" in key)
    new[changed][2, 3] += 1
    inference = inferred(old, new)
    assert undecided(inference) == {changed}
    assert (inference.findings.dropped, inference.findings.from_target) == ((), ())


def test_equal_constants_are_told_apart_by_names_alone() -> None:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    old = {"params/norm/scale": ones, "params/norm/bias": zeros}
    new = {"model/norm/weight": ones, "model/norm/bias": zeros}
    assert_found(old, new, 2)
    turned = {"model/norm/weight": zeros, "model/norm/bias": ones}
    inference = inferred(old, turned)
    assert undecided(inference) == set(turned) or made_right(inference, old, turned)


def made_right(inference, old: Arrays, new: Arrays) -> bool:
    """Assert that everything is decided, and that the draft makes exactly the target."""
    assert inference.decided
    assert_same(carried_out(inference, old, new if inference.needs_target else None), new)
    return True


@pytest.mark.parametrize("names", ["abc", "pqs"])
def test_constants_without_telling_names(names: str) -> None:
    old = {f"{name}/w": np.ones((4, 4), np.float32) for name in "abc"}
    new = {f"{name}/w": np.ones((4, 4), np.float32) for name in names}
    inference = inferred(old, new)
    assert undecided(inference) == set(new) or made_right(inference, old, new)


def test_periodic_integers() -> None:
    """Their sums are those of many arrangements: what is written was compared element by element."""
    place = np.arange(24, dtype=np.int32)
    old = {"a": place % 3, "b": place % 4, "c": place % 6}
    new = {
        "x/d": (place % 3).reshape(4, 6),
        "x/e": np.ascontiguousarray((place % 4).reshape(6, 4).T),
        "x/f": np.ascontiguousarray((place % 6).reshape(2, 3, 4).transpose(2, 0, 1)),
    }
    assert made_right(inferred(old, new), old, new)


def test_layers_that_hold_the_same_integers() -> None:
    old = {f"l_{i}/table": np.arange(16, dtype=np.int32) % 4 for i in range(4)}
    assert made_right(inferred(old, new := {"l/table": np.stack(list(old.values()))}), old, new)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("symmetric", [False, True])
def test_as_many_layers_as_heads(axis: int, symmetric: bool) -> None:
    layers = [normal(4, 4, seed=i) for i in range(4)]
    layers = [layer + layer.T if symmetric else layer for layer in layers]
    old = {f"layers_{i}/query": layer for i, layer in enumerate(layers)}
    new = {"layers/query": np.stack(layers, axis)}
    assert_found(old, new, 1)
    assert_found(new, old, 1)
    for source, target in ((old, new), (new, old)):
        assert undecided(inferred(source, target, values="ignore")) == set(target)


def test_a_new_stack_as_large_as_what_is_left_is_no_fresh_leaf() -> None:
    """It stays open: the stack may be fresh, or the old leaves after an unknown change."""
    kept = {f"layers_{i}/w": normal(6, 6, seed=i) for i in range(4)}
    old = kept | {f"layers_{i}/s": normal(6, seed=i) for i in range(4)}
    new = kept | {"even/s": normal(2, 6, seed=7), "odd/s": normal(2, 6, seed=8)}
    for source, target in ((old, new), (new, old)):
        inference = inferred(source, target)
        assert undecided(inference) == {key for key in target if key.endswith("s")}
        assert (inference.findings.dropped, inference.findings.from_target) == ((), ())
