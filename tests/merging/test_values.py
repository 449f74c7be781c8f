"""Merges have the values that mergekit gives them, method by method.

`tests/merging/make_outputs.py` has run mergekit 0.1.5 on the same models.
"""

from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.functions import masks
from ckpt_surgery.merging.formula_inputs import COPY
from ckpt_surgery.merging.formulas import FORMULAS, SPARSIFIED
from ckpt_surgery.merging.methods import METHODS
from tests.merging.cases import CASES, HALVED, MODELS
from tests.support.merging import arrays, float32, loaded, save_config, save_model
from tests.support.slow import slow

UNITS = 8
"""How far a value may be off, in units in the last place of the largest value of its tensor."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name in MODELS:
        save_model(place / name, arrays("models", name))
    return place


SLOW = ("della-unnormalized",)
"""The case beside it has less to plan."""


OFTEN = {CASES[name]["merge_method"]: name for name in reversed(CASES) if name not in SLOW}
"""One case of each method; the others are tried with the slow tests."""


@pytest.mark.slow("merges by every method of mergekit")
@pytest.mark.parametrize("name", [name if name in OFTEN.values() else slow(name) for name in CASES])
def test_a_merge_has_mergekits_values(
    name: str, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in HALVED:
        monkeypatch.setattr(masks, "fractions", lambda region, shape, key: np.full(region.shape, 0.5))
    config = save_config(directory / f"{name}.yaml", CASES[name])
    ckpt_surgery.merge(config, tmp_path / "out")
    found, wanted = loaded(tmp_path / "out"), arrays("outputs", name)
    assert found.keys() == wanted.keys()
    assert {str(value.dtype) for value in found.values()} == {CASES[name].get("out_dtype", "float32")}
    for key, value in float32(found).items():
        step = np.spacing(np.abs(wanted[key]).max())
        np.testing.assert_allclose(value, wanted[key], rtol=0, atol=UNITS * step, err_msg=key)


def test_every_method_is_compared() -> None:
    compared = {config["merge_method"] for config in CASES.values()}
    assert compared == set(METHODS)
    assert set(FORMULAS) | SPARSIFIED == compared | {COPY}
