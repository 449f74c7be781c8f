"""Targets whose names do not fit the source: what is refused, what is suggested, what is warned of."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Code, PlanError, Problem
from tests.support.checkpoints import save_standard

Tree = Any


def params(value: float) -> Tree:
    return {
        "conv": {"kernel": np.full((3, 4), value, np.float32), "bias": np.full(4, value, np.float32)},
        "bn": {"scale": np.full(4, value, np.float32), "bias": np.full(4, value + 1, np.float32)},
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training state that Orbax wrote."""
    path = tmp_path_factory.mktemp("unfit") / "run"
    state = {"params": params(1), "opt_state": optax.adam(1e-3).init(params(0)), "step": 7}
    save_standard(path, state)
    return path


def problems_of(make: Callable[[], Any]) -> tuple[Problem, ...]:
    with pytest.raises(PlanError) as caught:
        make()
    return caught.value.problems


def suggested(problem: Problem) -> dict[str, str]:
    """The rule in a hint, as it would be pasted."""
    import yaml

    text = (problem.hint or "").split("`")[3 if "elsewhere" in (problem.hint or "") else 1]
    rule: dict[str, str] = yaml.safe_load(text)
    return rule


@pytest.mark.parametrize("recipe", [None, {"version": 1, "target": {"dtype": "source"}}])
def test_the_hint_for_a_state_without_its_wrapper_gives_the_right_model(saved: Path, recipe: Any) -> None:
    (problem,) = problems_of(lambda: ckpt_surgery.restore(recipe, saved, target=params(0)))
    assert problem.code is Code.TARGET_MISSING
    assert "fallback" not in (problem.hint or "")
    rule = suggested(problem)
    assert rule == {"match": "params/(.*)", "to": "\\1"}
    restored = ckpt_surgery.restore({"version": 1, "rules": [rule]}, saved, target=params(0))
    jax.tree.map(np.testing.assert_array_equal, restored, params(1))


@pytest.mark.parametrize(
    "recipe",
    [
        {"rules": [{"fill": ".*", "fallback": True}]},
        {"target": {"missing": "fallback"}},
        {"rules": [{"fill": ".*", "fallback": "missing"}]},
    ],
)
def test_a_run_that_uses_nothing_of_its_source_is_refused(saved: Path, recipe: dict[str, Any]) -> None:
    recipe = {"version": 1, **recipe}
    (problem,) = problems_of(lambda: ckpt_surgery.restore(recipe, saved, target=params(0)))
    assert problem.code is Code.SOURCE_UNUSED
    assert suggested(problem) == {"match": "params/(.*)", "to": "\\1"}
    # A rule that always takes the target's values would go before the suggested one.
    others = [rule for rule in recipe.get("rules", ()) if rule["fallback"] is not True]
    assert ("in place of `rules[0]`" in (problem.hint or "")) is (others != recipe.get("rules", []))
    rules = [suggested(problem), *others]
    restored = ckpt_surgery.restore({**recipe, "rules": rules}, saved, target=params(0))
    jax.tree.map(np.testing.assert_array_equal, restored, params(1))


@pytest.mark.parametrize(
    "recipe",
    [
        {"target": {"prefer": "target"}},
        {"target": {"missing": "fallback"}, "rules": [{"match": ".*", "drop": True}]},
        {"target": {"missing": "fallback"}, "unmatched": "drop"},
    ],
)
def test_a_source_may_be_dropped_on_purpose(saved: Path, recipe: dict[str, Any]) -> None:
    restored = ckpt_surgery.restore({"version": 1, **recipe}, saved, target=params(0))
    jax.tree.map(np.testing.assert_array_equal, restored, params(0))


def test_a_second_source_that_nothing_reads_is_refused() -> None:
    rules: list[dict[str, Any]] = [{"match": "w", "value": "x * 2"}]
    recipe = {"version": 1, "sources": ["base", "lora"], "rules": rules}
    trees = {"w": np.ones(2, np.float32)}, {"a": np.ones(2, np.float32)}
    (problem,) = problems_of(lambda: ckpt_surgery.restore(recipe, *trees))
    assert (problem.code, "`lora`" in problem.message) == (Code.SOURCE_UNUSED, True)
    rules.append({"match": ".*", "source": "lora", "drop": True})
    np.testing.assert_array_equal(ckpt_surgery.restore(recipe, *trees)["w"], [2, 2])
    no_arrays = trees[0], {"note": "text"}
    assert ckpt_surgery.restore({**recipe, "rules": rules[:1]}, *no_arrays)["w"].shape == (2,)


def followed(recipe: dict[str, Any], sources: Sequence[Tree], target: Tree) -> Tree:
    """The result once the rules of all hints were added, in their order."""
    import yaml

    for _ in range(4):
        try:
            return ckpt_surgery.restore(recipe, *sources, target=target)
        except PlanError as error:
            texts = re.findall(r"`(\{(?:match|fill): .*?\})`", str(error))
            assert texts, str(error)
            recipe = {**recipe, "rules": [*recipe.get("rules", []), *map(yaml.safe_load, texts)]}
    raise AssertionError(recipe)


SLOTS = {"lion": lambda: optax.lion(1e-3), "momentum": lambda: optax.sgd(1e-2, momentum=0.9)}


@pytest.mark.parametrize("optimizer", SLOTS)
def test_moments_never_become_a_moving_average(optimizer: str) -> None:
    state = {"params": params(1), "opt_state": SLOTS[optimizer]().init(params(8)), "step": 7}
    made = followed({"version": 1}, [state], {"params": params(0), "ema": params(3)})
    jax.tree.map(np.testing.assert_array_equal, made, {"params": params(1), "ema": params(3)})


def test_a_leaf_that_a_second_source_has_is_taken_from_there() -> None:
    lm = {"lm": {"kernel": np.full((5, 5), 4.0)}}
    target = {**params(0), "lm": {"kernel": np.zeros((5, 5))}}
    for sources in ((params(1), lm), ({"params": params(1)}, {"params": lm}), (params(1), {"m": lm})):
        made = followed({"version": 1, "sources": ["base", "extra"]}, sources, target)
        jax.tree.map(np.testing.assert_array_equal, made, {**params(1), **lm})


@pytest.mark.parametrize(("misfits", "is_suggested"), [(1, True), (2, True), (3, False), (4, False)])
def test_the_targets_values_are_suggested_for_few_leaves_of_another_shape(
    misfits: int, is_suggested: bool
) -> None:
    target = {f"w{n}": np.zeros(4 if n < misfits else 3) for n in range(4)}
    source = {f"w{n}": np.ones(3) for n in range(4)}
    problems = problems_of(lambda: ckpt_surgery.restore(None, source, target=target))
    assert {problem.code for problem in problems} == {Code.TARGET_MISFIT}
    assert all(("fallback" in (problem.hint or "")) is is_suggested for problem in problems)


def warnings_of(recipe: dict[str, Any], source: Any, target: Tree) -> list[str]:
    plans: list[ckpt_surgery.Plan] = []
    ckpt_surgery.restore({"version": 1, **recipe}, source, target=target, on_plan=plans.append)
    return [warning for warning in plans[0].warnings if "target's own" in warning]


@pytest.mark.parametrize(
    "recipe", [{"target": {"missing": "fallback"}}, {"rules": [{"fill": ".*", "fallback": "missing"}]}]
)
def test_a_model_that_is_mostly_the_targets_is_warned_of(recipe: dict[str, Any]) -> None:
    target = {"a": np.zeros(4), "b": np.zeros(6)}
    (warning,) = warnings_of(recipe, {"a": np.ones(4)}, target)
    assert warning.startswith("6 of 10 elements (60%, ")
    assert warnings_of(recipe, {"b": np.ones(6)}, target) == []
    encoder = {"fc": {"kernel": np.ones((2, 2))}, "mu": {"kernel": np.ones((2, 4))}}  # a layer, no moment
    (warning,) = warnings_of(recipe, {"params": {"fc": encoder["fc"]}}, {"params": encoder})
    assert warning.startswith("8 of 12 elements (67%, ")
    (warning,) = warnings_of(recipe, {"a": np.ones(3)}, {"a": np.zeros(3), "table": np.zeros(9, np.int32)})
    assert warning.startswith("9 of 12 elements (75%, ")


@pytest.mark.parametrize("name", ["opt_state", "optim_state", "optimizer"])
@pytest.mark.parametrize(
    "optimizer",
    [optax.adam(1.0), optax.adafactor(1.0), optax.sgd(1.0, momentum=0.9)],
    ids=["adam", "adafactor", "sgd"],
)
def test_no_optimizer_counts(name: str, optimizer: optax.GradientTransformation) -> None:
    target = {"params": params(0), name: optimizer.init(params(0))}
    assert warnings_of({"target": {"missing": "fallback"}}, {"params": params(1)}, target) == []


# --- fallback: missing --------------------------------------------------------------------------------------


LAST = {"fill": ".*", "fallback": "missing"}
FIRST_ALONE = {"match": ".*", "source": "second", "drop": True}
ANY = LAST | {"fill": "[ab]"}
OTHER_RULES = [{"match": "a", "to": "new"}, {"match": "b", "source": "*", "drop": True}]


@pytest.mark.each
@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ([LAST, FIRST_ALONE], (1, 2, 9)),
        ([LAST, FIRST_ALONE, {"match": "b", "to": "new"}], (1, 9, 2)),
        ([LAST, FIRST_ALONE, {"fill": "new", "from": "a"}], (1, 2, 1)),
        ([LAST | {"from": "old"}, FIRST_ALONE], (1, 2, 9)),
        ([LAST | {"fill": "new", "from": "a", "value": "x * 4"}, FIRST_ALONE, ANY], (1, 2, 4)),
        ([LAST | {"source": "second"}, {"match": "b", "drop": True}], (1, 5, 9)),
        ([LAST | {"source": "*"}, FIRST_ALONE], (1, 2, 9)),
        ([LAST, *OTHER_RULES], (9, 9, 1)),
        ([LAST | {"source": ["first", "second"]}, *OTHER_RULES], (9, 9, 1)),
    ],
)
@pytest.mark.parametrize("unmatched", ["keep", "drop", "error"])
def test_the_last_resort_is_the_targets_own_value(
    rules: list[Any], wanted: tuple[float, ...], unmatched: str
) -> None:
    """After leaves of the same key and other rules to fill, not for a rename's output, under any policy."""
    sources = {"a": np.full(3, 1.0), "b": np.full(3, 2.0)}, {"b": np.full(3, 5.0)}
    target = {key: np.full(3, 9.0) for key in ("a", "b", "new")}
    for ordered in (rules, rules[::-1]):
        recipe = {"version": 1, "sources": ["first", "second"], "unmatched": unmatched, "rules": ordered}
        restored = ckpt_surgery.restore(recipe, *sources, target=target)
        assert tuple(float(restored[key][0]) for key in target) == wanted


# --- extra --------------------------------------------------------------------------------------------------


def strict(source: Tree, rules: list[Any], target: Tree) -> Any:
    recipe = {"version": 1, "target": {"extra": "error"}, "rules": rules}
    return ckpt_surgery.restore(recipe, source, target=target)


def test_variables_that_the_model_lacks_are_an_error_where_the_recipe_says_so() -> None:
    source, target = {"a": np.ones(3), "old": np.ones(2), "step": 1}, {"a": np.zeros(3)}
    assert set(ckpt_surgery.restore(None, source, target=target)) == {"a"}
    (problem,) = problems_of(lambda: strict(source, [], target))
    assert problem.code is Code.TARGET_EXTRA
    assert "`old`, `step`" in problem.message
    assert problem.place is not None
    assert problem.place.path == "target.extra"
    (problem,) = problems_of(lambda: strict(source, [{"match": "(old|step)", "to": "x/\\1"}], target))
    assert "`x/old`, `x/step`" in problem.message
    dropped = strict(source, [{"match": "old|step", "drop": True}], target)
    np.testing.assert_array_equal(dropped["a"], np.ones(3))
    looked_up = strict(source, [{"fill": "a", "value": "x * source['step'] + sum(source['old'])"}], target)
    np.testing.assert_array_equal(looked_up["a"], np.full(3, 3.0))
