"""States of trainings: layers scanned and unrolled, other optimizers, heads, vocabularies and dtypes."""

import re

import ml_dtypes
import numpy as np
import pytest

from tests.inference.cases import training
from tests.inference.cases.running import assert_found, carried_out, inferred, undecided
from tests.inference.cases.training import Arrays, adam, below, params, scanned
from tests.support.comparing import assert_same

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("axis", [0, 1])
def test_scanned_and_unrolled_with_the_optimizer(axis: int) -> None:
    """By hand: the layers of all trees, and all that stays."""
    unrolled = adam()
    whole = scanned(unrolled, axis)
    assert_found(unrolled, whole, 2)
    assert_found(whole, unrolled, 2)


def test_optimizer_dropped() -> None:
    """By hand: what stays, and what goes. The way back takes the optimizer from the target."""
    state = adam()
    model = {key: array for key, array in state.items() if key.startswith("params/")}
    inference = assert_found(state, model, 2)
    assert set(inference.findings.dropped) == state.keys() - model.keys()
    back = assert_found(model, state, 2)
    assert set(back.findings.from_target) == state.keys() - model.keys()


def test_optimizer_wrapped() -> None:
    """By hand: the wrapped tree, and all that stays."""
    state = adam()
    wrapped = {key.replace("opt_state/0/", "opt_state/inner_state/0/"): one for key, one in state.items()}
    assert_found(state, wrapped, 2)
    assert_found(wrapped, state, 2)


def test_optimizer_changed() -> None:
    """Adam's first moment could be the momentum of another optimizer, which is fresh: that is asked."""
    state = adam()
    trace = {key: np.zeros_like(array) for key, array in params().items()}
    fresh = below("params", params()) | below("opt_state/0/trace", trace) | {"step": state["step"]}
    inference = inferred(state, fresh)
    assert undecided(inference) == {key for key in fresh if "/trace/" in key}
    why = {one.why for one in inference.findings.undecided}
    assert all("names fit" in one for one in why), why
    keys = carried_out_so_far(inference.recipe, inference.findings.formations)
    assert keys == {key for key in fresh if "/trace/" not in key}


def carried_out_so_far(recipe: str, formations) -> set[str]:
    """The keys that are decided; the draft itself does not run."""
    assert "unmatched: error" in recipe
    assert "# not decided:" in recipe
    return {one.target for one in formations}


@pytest.mark.parametrize("classes", [7, 13])
def test_another_head(classes: int) -> None:
    """By hand: what stays, the old head, the new one."""
    random = np.random.default_rng(5)

    def with_head(size: int) -> Arrays:
        head = {"params/head/kernel": (training.EMBED, size), "params/head/bias": (size,)}
        fresh = {key: random.standard_normal(shape).astype(np.float32) for key, shape in head.items()}
        return below("params", params()) | fresh

    old, new = with_head(10), with_head(classes)
    inference = assert_found(old, new, 3)
    head = {"params/head/kernel", "params/head/bias"}
    assert set(inference.findings.from_target) == set(inference.findings.dropped) == head


def test_another_head_of_the_same_size_is_a_question() -> None:
    """Values do not say whether SRC's head or TARGET's is meant."""
    old, random = below("params", params()), np.random.default_rng(6)
    new = dict(old)
    old["params/head/kernel"], new["params/head/kernel"] = random.standard_normal((2, 24, 10))
    inference = inferred(old, new)
    assert undecided(inference) == {"params/head/kernel"}
    (one,) = inference.findings.undecided
    assert one.why == "names fit, but the values are not SRC's: take TARGET's or SRC's?"
    assert [candidate.sources for candidate in one.candidates] == [("params/head/kernel",)]


@pytest.mark.parametrize("axis", [0, 1])
def test_padding_of_the_vocabulary(axis: int) -> None:
    """By hand: the embedding, and all that stays."""
    old = below("params", params())
    key = "params/embed/embedding"
    old[key] = np.ascontiguousarray(np.moveaxis(old[key], 0, axis))
    zeros = np.zeros([14 if at == axis else length for at, length in enumerate(old[key].shape)], np.float32)
    new = old | {key: np.concatenate([old[key], zeros], axis)}
    assert "pad(" in assert_found(old, new, 2).recipe
    assert_found(new, old, 2)


def test_bfloat16_and_float32() -> None:
    """By hand: one rule for all. What is widened comes back."""
    wide = below("params", params())
    narrow = {key: array.astype(BF16) for key, array in wide.items()}
    widened = {key: array.astype(np.float32) for key, array in narrow.items()}
    assert_found(wide, narrow, 4)
    assert_found(narrow, widened, 4)
    assert_found(widened, narrow, 4)


def test_rounded_numbers_are_not_those_that_were_rounded() -> None:
    """All values differ: names decide, as for a fresh target, and the evidence says so."""
    wide = below("params", params())
    narrow = {key: array.astype(BF16) for key, array in wide.items()}
    inference = inferred(narrow, wide)
    assert (inference.decided, inference.values) == (True, "unrelated")
    assert {str(one.evidence) for one in inference.findings.formations} & {"values"} == set()
    widened = {key: array.astype(np.float32) for key, array in narrow.items()}
    assert_same(carried_out(inference, narrow, None), widened)


@pytest.mark.parametrize("arrange", [dict, lambda arrays: scanned(arrays, 1)], ids=["unrolled", "scanned"])
def test_norms_plus_one(arrange) -> None:
    """By hand: norms of layers, the last norm, and the rest (2). Exact sums come back, too."""
    old = {
        key: (np.round(array * 64) / 64 + 0.0).astype(np.float32) if "norm" in key else array
        for key, array in below("params", params()).items()
    }
    new = arrange({key: array + np.float32(1) if "norm" in key else array for key, array in old.items()})
    assert "+ 1.0" in assert_found(old, new, 4).recipe
    assert "- 1.0" in assert_found(new, old, 4).recipe


def test_layers_in_another_order_and_fewer_of_them() -> None:
    """By hand: layers, and all that stays. Every second layer, from the last to the first."""
    old = below("params", params())
    new: Arrays = {}
    for key, array in old.items():
        inference = re.fullmatch(r"params/layers_(\d+)/(.*)", key)
        if inference is None:
            new[key] = array
        elif int(inference[1]) % 2 == 0:
            new[f"params/layers_{2 - int(inference[1]) // 2}/{inference[2]}"] = array
    inference = assert_found(old, new, 3)
    assert {key.split("/")[1] for key in inference.findings.dropped} == {"layers_1", "layers_3"}
