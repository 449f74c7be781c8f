"""T5X's train states and inference states, there and back, as T5X writes them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import PlanError
from tests.recipes import t5_layouts as layouts
from tests.recipes.t5_layouts import Size
from tests.recipes.test_t5 import Arrays, filled
from tests.support.checkpoints import restored
from tests.support.comparing import assert_same
from tests.support.heavy import jnp, traverse_util
from tests.support.t5x_files import save_state
from tests.support.trees import nested

THERE, BACK = "@t5x-train-to-inference", "@t5x-inference-to-train"
PARAMETERS = layouts.t5(Size(), "1.1", "shared")
SLOT = re.compile("state/param_states/.*")
MUTABLES = {"flax_mutables/cache/index": np.arange(3), "flax_mutables/cache/scale": np.float32([0.5])}


def train_state(dtype: str = "float32", seed: int = 0) -> Arrays:
    """Random bits in every leaf of the train state of a small T5 1.1 with Adafactor."""
    bits = filled(layouts.train_state(PARAMETERS, "factored", dtype))
    return {key: np.roll(value.reshape(-1), seed).reshape(value.shape) for key, value in bits.items()}


def inference_state(state: Arrays) -> Arrays:
    return {key: value for key, value in state.items() if not SLOT.match(key)}


@pytest.mark.slow("trains states of T5X")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_there_and_back_with_the_exact_bits(dtype: str, tmp_path: Path) -> None:
    state = train_state(dtype) | MUTABLES
    train = save_state(tmp_path / "checkpoint_7", state)
    ckpt_surgery.apply(THERE, train, dst=tmp_path / "inference")
    assert_same(restored(tmp_path / "inference"), inference_state(state))
    result = ckpt_surgery.apply(BACK, tmp_path / "inference", dst=tmp_path / "train", target=train)
    assert_same(restored(tmp_path / "train"), state)
    assert not result.plan.warnings


def test_into_a_train_state_in_memory() -> None:
    """As T5X holds it: float32 parameters, of which the checkpoint has bfloat16."""
    fresh, stored = train_state(), inference_state(train_state("bfloat16"))
    target: Any = traverse_util.unflatten_dict({k: jnp.asarray(v) for k, v in fresh.items()}, sep="/")
    restored = ckpt_surgery.restore(BACK, traverse_util.unflatten_dict(stored, sep="/"), target=target)
    found = traverse_util.flatten_dict(restored, sep="/")
    expected = {key: stored.get(key, value).astype(value.dtype) for key, value in fresh.items()}
    assert_same({key: np.asarray(value) for key, value in found.items()}, expected)


def test_mutables_go_along_where_both_sides_have_them(tmp_path: Path) -> None:
    both, ours, theirs = (f"flax_mutables/cache/{name}" for name in ("both", "ours", "theirs"))
    source = inference_state(train_state(seed=1)) | {both: np.arange(3), ours: np.arange(2)}
    target = train_state() | {both: np.zeros(3, np.int64), theirs: np.ones(4)}
    plan = ckpt_surgery.apply(BACK, nested(source), dst=tmp_path / "out", target=nested(target)).plan
    found = restored(tmp_path / "out")
    assert np.array_equal(found[both], np.arange(3))
    assert np.array_equal(found[theirs], np.ones(4))
    assert ours not in found
    assert [drop.leaf.key.text for drop in plan.dropped] == [ours]


KERNEL = "target/decoder/layers_0/mlp/wo/kernel"


@pytest.mark.parametrize(
    ("without", "more", "target_without", "named"),
    [
        (KERNEL, {}, "", KERNEL),
        ("state/step", {}, "", "state/step"),
        ("", {"target/extra/kernel": np.ones(2)}, "", "target/extra/kernel"),
        ("", {}, KERNEL, KERNEL),
        ("", {"state/param_states/a/v": np.ones(2)}, "", "state/param_states/a/v"),
        ("", {"state/ema/a": np.ones(2)}, "", "state/ema/a"),
        ("", {}, "state/param_states/.*", "the rule claims nothing"),
    ],
    ids=["parameter", "step", "foreign", "target lacks", "a train state", "another part", "no slots"],
)
def test_what_one_side_lacks_is_an_error(without: str, more: Arrays, target_without: str, named: str) -> None:
    def lacking(state: Arrays, pattern: str) -> Arrays:
        return {key: value for key, value in state.items() if not re.fullmatch(pattern, key)}

    source = lacking(inference_state(train_state()), without) | more
    with pytest.raises(PlanError) as raised:
        ckpt_surgery.plan(BACK, nested(source), target=nested(lacking(train_state(), target_without)))
    assert any(named in problem.message for problem in raised.value.problems)
