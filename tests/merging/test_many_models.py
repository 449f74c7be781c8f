"""Merges of tens of models, whose sums are longer than one expression may be."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.merging.formula_inputs import AT_ONCE, added
from tests.support.merging import loaded, save_config, save_model

MODELS = 40
WEIGHTS = [0.01 + 0.0123456789 * i for i in range(MODELS)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and 40 models of one tensor."""
    place = tmp_path_factory.mktemp("models")
    for i in range(MODELS + 1):
        save_model(place / f"some-model-{i}", {"w": tensor(i)})
    return place


def tensor(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(6, 8)).astype(np.float32)


def config(method: str, count: int = MODELS, **parameters: Any) -> dict[str, Any]:
    entries = [{"model": f"some-model-{i + 1}", "parameters": {"weight": WEIGHTS[i]}} for i in range(count)]
    return {
        "merge_method": method,
        "base_model": "some-model-0",
        "models": entries,
        "parameters": parameters,
    }


def by_ties(density: float) -> np.ndarray:
    """What TIES computes, in float64."""
    base = tensor(0).astype(np.float64)
    differences = np.stack([tensor(i + 1) - base for i in range(MODELS)])
    for one in differences:
        kept = np.argsort(-np.abs(one).ravel(), kind="stable")[: int(density * one.size)]
        one.ravel()[np.setdiff1d(np.arange(one.size), kept)] = 0
    weighted = differences * np.array(WEIGHTS)[:, None, None]
    agrees = weighted * np.where(weighted.sum(axis=0) >= 0, 1, -1) > 0
    weights = (np.array(WEIGHTS)[:, None, None] * agrees).sum(axis=0)
    return np.asarray(base + (weighted * agrees).sum(axis=0) / np.where(weights == 0, 1, weights))


def test_forty_models_have_the_values_of_ties(directory: Path, tmp_path: Path) -> None:
    ckpt_surgery.merge(save_config(directory / "ties.yaml", config("ties", density=0.4)), tmp_path / "out")
    np.testing.assert_allclose(loaded(tmp_path / "out")["w"], by_ties(0.4), rtol=0, atol=2e-5)


QUICK = ("task_arithmetic", "della", "ram")
SLOW = (
    *("linear", "multislerp", "dare_linear", "dare_ties", "breadcrumbs_ties", "ramplus_tl", "sce"),
    *("model_stock", "karcher"),  # 780 pairs of models
)


@pytest.mark.parametrize(
    "method", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow("one more case")) for name in SLOW)]
)
def test_every_method_takes_forty_models(method: str, directory: Path) -> None:
    parameters = {"sce": {"select_topk": 0.5}, "karcher": {}, "linear": {"weight": 0.5}}.get(
        method, {"density": 0.5}
    )
    found = config(method, **parameters)
    plan = ckpt_surgery.plan_merge(save_config(directory / f"{method}.yaml", found))
    assert [len(plan.steps), len(plan.inputs)] == [1, MODELS + 1]


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, AT_ONCE**2, AT_ONCE**2 + 1])
def test_the_parts_of_a_sum_have_few_terms(count: int) -> None:
    text = added([f"v{i}" for i in range(count)])
    assert text.count("v") == count
    assert max(part.count("v") for part in re.split(r"[][]", text)) <= AT_ONCE
    assert parse(text).notes.depth <= AT_ONCE + 1
