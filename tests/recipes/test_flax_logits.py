"""Converted to Flax's trees, the weights are the same model: it is computed in JAX from them.

The models in tests/recipes/flax_models have the trees of Flax's classes, which Transformers has no longer.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from flax.serialization import msgpack_restore

from ckpt_surgery.api import applying
from tests.recipes.flax_models import bert, clip, gpt2, t5, vit, whisper
from tests.recipes.flax_weights import inputs, weights
from tests.recipes.peers.flax_cases import CASES
from tests.recipes.test_flax_classes import first, hf_model, recorded
from tests.support.checkpoints import quiet

MODELS: dict[str, ModuleType] = {
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
    "clip": clip,
    "whisper": whisper,
    "t5": t5,
}

QUICK = ("gpt2", "vit", "t5")


@functools.cache
def compiled(case: str) -> Callable[..., dict[str, jax.Array]]:
    """What a model computes from its parameters and the arguments by name."""
    name = first(case)
    config = recorded(case, name)["config"]
    return jax.jit(lambda params, given: MODELS[case].outputs(params, config, **given))


def pytorch(name: str, directory: Path, given: dict[str, np.ndarray]) -> Any:
    """The outputs of PyTorch's class on a directory of weights."""
    import torch
    import transformers

    with quiet():
        model = getattr(transformers, name).from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        return model(**{key: torch.from_numpy(array) for key, array in given.items()})


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in MODELS]
)
def test_outputs_are_the_same(tmp_path: Path, case: str) -> None:
    name = first(case)
    record = recorded(case, name)
    source = hf_model(tmp_path / "hf", weights(record["weights"]), record["config"])
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack")
    params = msgpack_restore((tmp_path / "flax_model.msgpack").read_bytes())
    given = inputs(CASES[case].inputs, record["config"])
    found = compiled(case)(params, given)
    theirs = pytorch(name, source.parent, given)
    assert sorted(found) == sorted(record["outputs"])
    for output, flax in record["outputs"].items():
        wanted = np.reshape(flax["values"], flax["shape"])
        assert np.abs(wanted).max() > 0.3
        np.testing.assert_allclose(found[output], wanted, rtol=0, atol=1e-4)
        np.testing.assert_allclose(found[output], theirs[output], rtol=0, atol=1e-4)


def test_the_comparison_sees_a_kernel_that_is_not_transposed(tmp_path: Path) -> None:
    record = recorded("gpt2", "GPT2LMHeadModel")
    source = hf_model(tmp_path / "hf", weights(record["weights"]), record["config"])
    applying.apply("@hf-to-flax", source, dst=tmp_path / "flax_model.msgpack")
    params = msgpack_restore((tmp_path / "flax_model.msgpack").read_bytes())
    projection = params["transformer"]["h"]["1"]["attn"]["c_proj"]
    projection["kernel"] = projection["kernel"].T
    wanted = record["outputs"]["logits"]
    given = inputs(CASES["gpt2"].inputs, record["config"])
    found = compiled("gpt2")(params, given)["logits"]
    assert np.abs(found - np.reshape(wanted["values"], wanted["shape"])).max() > 0.01
