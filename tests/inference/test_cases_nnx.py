"""The same network as flax.linen and as flax.nnx name it, with statistics, optimizer and random streams."""

import re

import numpy as np
import pytest

from tests.inference.cases.running import assert_found

Arrays = dict[str, np.ndarray]
BLOCKS = 3
LEAVES = {
    "embed/embedding": (11, 8),
    "conv/kernel": (3, 3, 2, 8),
    "conv/bias": (8,),
    "batch_norm/scale": (8,),
    "batch_norm/bias": (8,),
    **{
        f"blocks_{i}/{name}": shape
        for i in range(BLOCKS)
        for name, shape in {
            "attention/query/kernel": (8, 2, 4),
            "attention/query/bias": (2, 4),
            "attention/out/kernel": (2, 4, 8),
            "norm/scale": (8,),
            "up/kernel": (8, 16),
            "down/kernel": (16, 8),
        }.items()
    },
    "head/layers_0/kernel": (8, 4),
    "head/layers_2/kernel": (4, 3),
}


def of_nnx(name: str) -> str:
    """`blocks_0/up/kernel` → `blocks/0/up/kernel`."""
    return re.sub(r"\b(blocks|layers)_(\d+)", r"\1/\2", name)


def states() -> tuple[Arrays, Arrays]:
    """A state of linen, and the same in nnx."""
    random = np.random.default_rng(8)
    linen: Arrays = {"step": np.array(7, np.int32), "opt_state/1/0/count": np.array(7, np.int32)}
    nnx: Arrays = {
        "optimizer/step/value": np.array(7, np.uint32),
        "optimizer/opt_state/1/0/count/value": np.array(7, np.int32),
    }
    trees = {
        "params": "model",
        "opt_state/1/0/mu": "optimizer/opt_state/1/0/mu",
        "opt_state/1/0/nu": "optimizer/opt_state/1/0/nu",
    }
    for theirs, ours in trees.items():
        for name, shape in LEAVES.items():
            array = random.standard_normal(shape).astype(np.float32)
            linen[f"{theirs}/{name}"] = nnx[f"{ours}/{of_nnx(name)}/value"] = array
    for name in ("mean", "var"):
        array = random.standard_normal(8).astype(np.float32)
        linen[f"batch_stats/batch_norm/{name}"] = nnx[f"model/batch_norm/{name}/value"] = array
    return linen, nnx


@pytest.mark.slow("infers from whole models")
def test_linen_and_nnx() -> None:
    """By hand 7, as `@linen-to-nnx` has in two passes, and 8 the other way, as `@nnx-to-linen` has."""
    linen, nnx = states()
    assert_found(linen, nnx, 7)
    assert_found(nnx, linen, 8)


@pytest.mark.slow("infers from whole models")
def test_random_streams_stay_with_nnx() -> None:
    """They are nowhere in linen: the target's own on the way there, dropped on the way back."""
    linen, nnx = states()
    streams = {
        "model/rngs/dropout/key/value": np.array([3, 4], np.uint32),
        "model/rngs/dropout/counter/value": np.array([[9]], np.uint32),
    }
    inference = assert_found(linen, nnx | streams, 9)
    assert set(inference.findings.from_target) == set(streams)
    back = assert_found(nnx | streams, linen, 9)
    assert set(back.findings.dropped) == set(streams)
