"""A target that holds the source's elements in another order is undecided, whatever its names say."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery import Inferred
from tests.inference.cases.running import Arrays, carried_out, inferred, undecided
from tests.support.comparing import assert_same

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


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def source() -> Arrays:
    layers = {f"layers_{i}/mlp/wi/kernel": normal(6, 5, i + 2)[..., 0] for i in range(3)}
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
    old = source()
    new = {key: np.ascontiguousarray(ORDERS[order](array)) for key, array in old.items()}
    inference = inferred(old, new)
    assert inference.values == "shared"
    assert_open_or_exact(inference, old, new, set(new))


@pytest.mark.parametrize("order", ORDERS)
def test_of_one_leaf_under_another_name(order: str) -> None:
    old = source()
    new = {f"params/{key}": array for key, array in old.items()}
    new["params/embed/embedding"] = np.ascontiguousarray(ORDERS[order](old["embed/embedding"]))
    inference = inferred(old, new)
    assert_open_or_exact(inference, old, new, {"params/embed/embedding"})
    for one in inference.findings.undecided:
        assert [candidate.sources for candidate in one.candidates] == [("embed/embedding",)]


def test_of_stacked_layers() -> None:
    old = source()
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
    old = source()
    new = {key: np.flip(normal(*array.shape, 1)[..., 0]) for key, array in old.items()}
    new["embed/embedding"] = ORDERS["elements"](old["embed/embedding"])
    assert "embed/embedding" in undecided(inferred(old, new))
