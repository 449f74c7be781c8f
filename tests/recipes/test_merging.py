"""The packaged recipes that merge models give what mergekit gives, for any layout."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from tests.support.merging import Arrays, arrays, bfloat16, float32, loaded, save_model

UNITS = 8
"""How far a value may be off, in units in the last place of the largest value of its tensor."""

CALLS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "@merge-linear": (
        ("math", "code", "chat"),
        {"weights": [0.5, 0.3, 0.4], "normalize": False},
        "linear-unnormalized",
    ),
    "@merge-slerp": (("math", "code"), {"t": 0.3}, "slerp"),
    "@merge-task-arithmetic": (
        ("base", "math", "code", "chat"),
        {"weights": [0.5, 0.3, 0.4]},
        "task-arithmetic",
    ),
    "@merge-ties": (
        ("base", "math", "code", "chat"),
        {"weights": [0.5, 0.3, 0.4], "densities": [0.5, 0.3, 0.8]},
        "ties",
    ),
}
"""Recipe → models, params, and mergekit's merge of them."""


def assert_close(found: Arrays, wanted: Arrays) -> None:
    assert found.keys() == wanted.keys()
    for key, value in float32(found).items():
        step = np.spacing(np.abs(wanted[key]).max())
        np.testing.assert_allclose(value, wanted[key], rtol=0, atol=UNITS * step, err_msg=key)


@pytest.mark.parametrize("recipe", CALLS)
def test_a_recipe_has_mergekits_values(recipe: str, tmp_path: Path) -> None:
    models, params, output = CALLS[recipe]
    places = [save_model(tmp_path / name, arrays("models", name)) for name in models]
    ckpt_surgery.apply(recipe, *places, dst=tmp_path / "out", set=params, format="safetensors")
    assert_close(loaded(tmp_path / "out"), arrays("outputs", output))


def test_a_result_has_the_dtype_of_the_first_model_and_is_rounded_once(tmp_path: Path) -> None:
    first, second = (bfloat16(arrays("models", name)) for name in ("math", "code"))
    places = [save_model(tmp_path / name, value) for name, value in (("math", first), ("code", second))]
    ckpt_surgery.apply(
        "@merge-linear", *places, dst=tmp_path / "out", set={"weights": [1, 3]}, format="safetensors"
    )
    a, b = float32(first), float32(second)
    wanted = bfloat16({key: (a[key] + np.float32(3) * b[key]) / np.float32(4) for key in a})
    for key, value in loaded(tmp_path / "out").items():
        np.testing.assert_array_equal(value, wanted[key], err_msg=key)


def test_other_leaves_are_those_of_the_first_model(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        kernel = np.full((2, 3), number, np.float32)
        np.savez(tmp_path / f"{name}.npz", **{"params/kernel": kernel, "mu/kernel": kernel, "step": number})
    ckpt_surgery.apply(
        "@merge-task-arithmetic",
        tmp_path / "a.npz",
        tmp_path / "b.npz",
        dst=tmp_path / "out.npz",
        set={"weights": [0.25], "tree": "params"},
    )
    with np.load(tmp_path / "out.npz") as found:
        assert {key: found[key].ravel()[0] for key in found.files} == {
            "params/kernel": 0.25,
            "mu/kernel": 0.0,
            "step": 0,
        }


def test_there_is_one_weight_for_each_model(tmp_path: Path) -> None:
    places = [save_model(tmp_path / name, arrays("models", name)) for name in ("math", "code", "chat")]
    with pytest.raises(ckpt_surgery.SurgeryError, match="`weights` needs 3 numbers, one for each model"):
        ckpt_surgery.plan("@merge-linear", *places)


def test_every_model_needs_every_array(tmp_path: Path) -> None:
    tensors = arrays("models", "math")
    whole = save_model(tmp_path / "math", tensors)
    del tensors["lm_head.weight"]
    less = save_model(tmp_path / "less", tensors)
    with pytest.raises(ckpt_surgery.SurgeryError, match="1 of 2 models have it"):
        ckpt_surgery.plan("@merge-task-arithmetic", whole, less, set={"weights": [1]})
