"""Tensors without axes and without elements, which models have beside their weights, by every method."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.merging.methods import METHODS, REQUIRED, Base
from tests.support.merging import loaded, save_config, save_model

AT_RANDOM = ("dare", "della")
"""Methods that draw by the name of a tensor begin so."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for i, name in enumerate("abc"):
        number = np.float32(i + 1.5)
        empty = np.zeros((0, 4), np.float32)
        save_model(place / name, {"scalar": np.array(number), "vector": np.array([number]), "empty": empty})
    return place


def config(method: str) -> dict[str, Any]:
    described = METHODS[method]
    wanted = {p.name: 0.5 for p in described.parameters if p.default is REQUIRED or p.name == "density"}
    models = [{"model": name, "parameters": wanted} for name in "abc"[: described.most or 3]]
    base = {} if described.base is Base.IGNORED and method != "slerp" else {"base_model": "a"}
    return {"merge_method": method, "models": models, "parameters": wanted, **base}


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_without_axes_is_a_vector_of_one_element(
    method: str, directory: Path, tmp_path: Path
) -> None:
    ckpt_surgery.merge(save_config(directory / f"{method}.yaml", config(method)), tmp_path / "out")
    merged = loaded(tmp_path / "out")
    assert {name: (value.shape, value.dtype) for name, value in merged.items()} == {
        "scalar": ((), np.float32),
        "vector": ((1,), np.float32),
        "empty": ((0, 4), np.float32),
    }
    assert np.isfinite(merged["scalar"])
    if not method.startswith(AT_RANDOM):
        np.testing.assert_array_equal(merged["scalar"], merged["vector"][0])
