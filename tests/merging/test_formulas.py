"""Values of merges: those that mergekit gives, by every method; of tens of models; and of small tensors.

`tests/merging/make_outputs.py` has run mergekit 0.1.5 on the same models.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.functions import masks
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.merging.formula_inputs import COPY
from ckpt_surgery.merging.formulas import AT_ONCE, FORMULAS, SPARSIFIED, added
from ckpt_surgery.merging.models import METHODS
from tests.merging.cases import CASES, HALVED, MODELS
from tests.support.merging import arrays, float32, loaded, save_config, save_model

UNITS = 8
"""How far a value may be off, in units in the last place of the largest value of its tensor."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name in MODELS:
        save_model(place / name, arrays("models", name))
    return place


@pytest.mark.slow("merges by every method of mergekit")
@pytest.mark.parametrize("name", CASES)
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


# --- many models, whose sums are longer than one expression may be --------------------------------------

MANY = 40
WEIGHTS = [0.01 + 0.0123456789 * i for i in range(MANY)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base and 40 models of one tensor."""
    place = tmp_path_factory.mktemp("models")
    for i in range(MANY + 1):
        save_model(place / f"some-model-{i}", {"w": tensor(i)})
    return place


def tensor(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(6, 8)).astype(np.float32)


def config_of_many(method: str, count: int = MANY, **parameters: Any) -> dict[str, Any]:
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
    differences = np.stack([tensor(i + 1) - base for i in range(MANY)])
    for one in differences:
        kept = np.argsort(-np.abs(one).ravel(), kind="stable")[: int(density * one.size)]
        one.ravel()[np.setdiff1d(np.arange(one.size), kept)] = 0
    weighted = differences * np.array(WEIGHTS)[:, None, None]
    agrees = weighted * np.where(weighted.sum(axis=0) >= 0, 1, -1) > 0
    weights = (np.array(WEIGHTS)[:, None, None] * agrees).sum(axis=0)
    return np.asarray(base + (weighted * agrees).sum(axis=0) / np.where(weights == 0, 1, weights))


def test_forty_models_have_the_values_of_ties(many: Path, tmp_path: Path) -> None:
    ckpt_surgery.merge(save_config(many / "ties.yaml", config_of_many("ties", density=0.4)), tmp_path / "out")
    np.testing.assert_allclose(loaded(tmp_path / "out")["w"], by_ties(0.4), rtol=0, atol=2e-5)


QUICK = ("task_arithmetic", "della", "ram")
SLOW = (
    *("linear", "multislerp", "dare_linear", "dare_ties", "breadcrumbs_ties", "ramplus_tl", "sce"),
    *("model_stock", "karcher"),  # 780 pairs of models
)


@pytest.mark.parametrize(
    "method", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow("one more case")) for name in SLOW)]
)
def test_every_method_takes_forty_models(method: str, many: Path) -> None:
    parameters = {"sce": {"select_topk": 0.5}, "karcher": {}, "linear": {"weight": 0.5}}.get(
        method, {"density": 0.5}
    )
    found = config_of_many(method, **parameters)
    plan = ckpt_surgery.plan_merge(save_config(many / f"{method}.yaml", found))
    assert [len(plan.steps), len(plan.inputs)] == [1, MANY + 1]


@pytest.mark.parametrize("count", [1, AT_ONCE, AT_ONCE + 1, AT_ONCE**2, AT_ONCE**2 + 1])
def test_the_parts_of_a_sum_have_few_terms(count: int) -> None:
    text = added([f"v{i}" for i in range(count)])
    assert text.count("v") == count
    assert max(part.count("v") for part in re.split(r"[][]", text)) <= AT_ONCE
    assert parse(text).notes.depth <= AT_ONCE + 1


def test_whole_numbers_from_the_first_layer_to_the_last(tmp_path: Path) -> None:
    """Between them, a parameter that is a whole number is rounded down."""
    for number, name in enumerate("abc"):
        save_model(tmp_path / name, {f"model.layers.{i}.w": tensor(9 * number + i) for i in range(3)})
    models = [{"model": name} for name in "abc"]
    config = {"merge_method": "karcher", "models": models, "parameters": {"max_iter": [2, 5]}}
    rules = ckpt_surgery.merge_recipe(save_config(tmp_path / "karcher.yaml", config)).to_yaml()
    assert re.findall(r"karcher_weights\(cosines, sizes, ([^,]+),", rules) == ["2", "3", "5"]
    ckpt_surgery.plan_merge(tmp_path / "karcher.yaml")


# --- tensors without axes and without elements, which models have beside their weights ------------------

AT_RANDOM = ("dare", "della")
"""Methods that draw by the name of a tensor begin so."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for i, name in enumerate("abc"):
        number = np.float32(i + 1.5)
        empty = np.zeros((0, 4), np.float32)
        save_model(place / name, {"scalar": np.array(number), "vector": np.array([number]), "empty": empty})
    return place


def config_of_small(method: str) -> dict[str, Any]:
    described = METHODS[method]
    wanted = {p.name: 0.5 for p in described.parameters if p.default is None or p.name == "density"}
    models = [{"model": name, "parameters": wanted} for name in "abc"[: described.most or 3]]
    base = {} if described.base == "ignored" and method != "slerp" else {"base_model": "a"}
    return {"merge_method": method, "models": models, "parameters": wanted, **base}


@pytest.mark.parametrize("method", METHODS)
def test_a_tensor_without_axes_is_a_vector_of_one_element(method: str, small: Path, tmp_path: Path) -> None:
    ckpt_surgery.merge(save_config(small / f"{method}.yaml", config_of_small(method)), tmp_path / "out")
    merged = loaded(tmp_path / "out")
    assert {name: (value.shape, value.dtype) for name, value in merged.items()} == {
        "scalar": ((), np.float32),
        "vector": ((1,), np.float32),
        "empty": ((0, 4), np.float32),
    }
    assert np.isfinite(merged["scalar"])
    if not method.startswith(AT_RANDOM):
        np.testing.assert_array_equal(merged["scalar"], merged["vector"][0])
