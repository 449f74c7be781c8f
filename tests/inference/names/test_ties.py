"""Leaves of the source that hold the same values: their names say which one it is, or nothing does."""

import numpy as np

from tests.inference.cases.running import inferred


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


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
