"""Ambiguous leaves stay undecided or come out right; they are never silently wrong."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery import Inferred
from tests.inference.cases.running import Arrays, assert_found, carried_out, inferred, rules_of, undecided
from tests.inference.two_sides import normal
from tests.support.comparing import assert_same

FUSED = (("weight", (8,)), ("bias", ()))
"""Last words of two leaves, and their other axes."""


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


# --- leaves of the source that hold the same values: their names tell them apart, or nothing does ---------


def sources(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
    return {one.target: one.sources for one in inferred(old, new).findings.formations}


def test_a_target_network_that_starts_as_a_copy() -> None:
    weights = normal(6, 16)
    old = {"online/w": weights, "target/w": weights.copy(), "online/b": normal(16)}
    new = {"agent/target/w": weights, "agent/q/w": weights.copy(), "agent/q/b": old["online/b"]}
    assert sources(old, new) == {
        "agent/target/w": ("target/w",),
        "agent/q/w": ("online/w",),
        "agent/q/b": ("online/b",),
    }


def test_keys_that_start_as_queries_are_still_keys() -> None:
    old, new = {}, {}
    for n in range(3):
        both = normal(8, 8, seed=n)
        for name, long in (("k_proj", "key"), ("q_proj", "query")):
            old[f"h.{n}.attn.{name}.weight"] = both.copy()
            new[f"layers_{n}/attention/{long}/kernel"] = both.T.copy()
    by_target = sources(old, new)
    assert by_target["layers_1/attention/query/kernel"] == ("h.1.attn.q_proj.weight",)
    assert by_target["layers_1/attention/key/kernel"] == ("h.1.attn.k_proj.weight",)


def test_stacks_of_an_average_that_starts_as_a_copy() -> None:
    layers = [normal(6, 8, seed=n) for n in range(3)]
    old = {
        f"{tree}/layers/{n}/w": layer.copy() for tree in ("ema", "params") for n, layer in enumerate(layers)
    }
    new = {"model/stack/w": np.stack(layers), "shadow_ema/stack/w": np.stack(layers)}
    by_target = sources(old, new)
    assert by_target["shadow_ema/stack/w"] == tuple(f"ema/layers/{n}/w" for n in range(3))
    assert by_target["model/stack/w"] == tuple(f"params/layers/{n}/w" for n in range(3))


def test_copies_that_no_name_tells_apart_are_open() -> None:
    weights = normal(6, 8)
    old = {"a/w": weights, "b/w": weights.copy(), "c/w": normal(3, 3)}
    new = {"p/w": weights, "q/w": weights.copy(), "c/w": old["c/w"]}
    inference = inferred(old, new)
    assert not inference.decided
    assert {one.targets for one in inference.findings.undecided} == {("p/w",), ("q/w",)}
    for one in inference.findings.undecided:
        assert {candidate.sources for candidate in one.candidates} == {("a/w",), ("b/w",)}


@pytest.mark.parametrize("swapped", [False, True])
def test_no_copy_is_a_leaf_whose_slices_have_the_same_elements_in_another_order(swapped: bool) -> None:
    """Sums of slices propose copies; the comparison of all elements refutes them."""
    square = np.array([[1, 2, 3], [2, 3, 1], [3, 1, 2]], np.float32)
    old = {"actor/w": square, "critic/w": square[::-1].copy(), "z": normal(7, 5)}
    names = ("critic", "actor") if swapped else ("actor", "critic")
    new = {
        f"{theirs}_net/kernel": old[f"{mine}/w"]
        for mine, theirs in zip(("actor", "critic"), names, strict=True)
    }
    inference = inferred(old, new | {"z": old["z"]})
    assert undecided(inference) == (set(new) if swapped else set())


# --- elements in another order are undecided, whatever the names say --------------------------------------

RANDOM = np.random.default_rng(3)
ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: x[np.roll(np.arange(len(x)), 2)],
    "columns": lambda x: x[..., RANDOM.permutation(x.shape[-1])],
    "elements": lambda x: RANDOM.permuted(x.ravel()).reshape(x.shape),
    "flipped": lambda x: x[..., ::-1],
    "rolled": lambda x: np.roll(x, 3),
    "transposed and shuffled": lambda x: RANDOM.permuted(x.T.ravel()).reshape(x.T.shape),
    "rounded": lambda x: x[::-1].astype(ml_dtypes.bfloat16),
}


def three_layers() -> Arrays:
    layers = {f"layers_{i}/mlp/wi/kernel": normal(6, 5, seed=i) for i in range(3)}
    return {"embed/embedding": normal(11, 6), "norm/scale": normal(6), **layers}


def assert_open_or_exact(inference: Inferred, old: Arrays, new: Arrays, reordered: set[str]) -> None:
    """Some orders are concatenated parts of an axis, which are inferred: every element is right then."""
    assert inference.problems == ()
    assert undecided(inference) <= reordered
    assert inference.findings.from_target == ()
    if inference.decided:
        assert_same(carried_out(inference, old, None), new)


@pytest.mark.parametrize("order", ORDERS)
def test_of_every_leaf(order: str) -> None:
    old = three_layers()
    new = {key: np.ascontiguousarray(ORDERS[order](array)) for key, array in old.items()}
    inference = inferred(old, new)
    assert inference.values == "shared"
    assert_open_or_exact(inference, old, new, set(new))


@pytest.mark.parametrize("order", ORDERS)
def test_of_one_leaf_under_another_name(order: str) -> None:
    old = three_layers()
    new = {f"params/{key}": array for key, array in old.items()}
    new["params/embed/embedding"] = np.ascontiguousarray(ORDERS[order](old["embed/embedding"]))
    inference = inferred(old, new)
    assert_open_or_exact(inference, old, new, {"params/embed/embedding"})
    for one in inference.findings.undecided:
        assert [candidate.sources for candidate in one.candidates] == [("embed/embedding",)]


def test_of_stacked_layers() -> None:
    old = three_layers()
    layers = [array for key, array in old.items() if "layers" in key]
    new = {"embed/embedding": normal(11, 6), "norm/scale": normal(6)}
    new["layers/mlp/wi/kernel"] = np.stack([layers[0], layers[1][::-1], layers[2]])
    assert undecided(inferred(old, new)) == {"layers/mlp/wi/kernel"}


def test_after_arithmetic() -> None:
    old = {"norm/scale": np.round(normal(40) * 64) / 64}
    new = {"norm/scale": (old["norm/scale"] + np.float32(1))[::-1].copy()}
    assert undecided(inferred(old, new)) == {"norm/scale"}


def test_beside_a_fresh_model() -> None:
    """One leaf is of the source, all others were just initialised."""
    old = three_layers()
    new = {key: np.flip(normal(*array.shape, seed=9)) for key, array in old.items()}
    new["embed/embedding"] = ORDERS["elements"](old["embed/embedding"])
    assert "embed/embedding" in undecided(inferred(old, new))


def test_a_bias_is_no_part_of_a_fused_matrix() -> None:
    old = {f"gpt/{i}/query_key_value/{n}": normal(24, *more, seed=i) for i in (0, 1) for n, more in FUSED}
    new = {f"l.{i}.{p}_proj.{n}": normal(8, *more) for i in (0, 1) for p in "qkv" for n, more in FUSED}
    for one in inferred(old, new).findings.undecided:
        sources = {key for candidate in one.candidates for key in candidate.sources}
        assert {key.split("/")[-1] for key in sources} == {key.split(".")[-1] for key in one.targets}
