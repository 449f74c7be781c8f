"""Hooks that are functions of the running program."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import DataError, FunctionError, RecipeError, UsageError
from ckpt_surgery.inputs.preparing import prepare
from ckpt_surgery.inputs.request import requested
from ckpt_surgery.language.hook_functions import HookFunctions
from ckpt_surgery.language.loading import LoadedRecipe, parse_recipe
from ckpt_surgery.planner.identity import identity_of


def recipe(value: str, **functions: Callable[..., Any]) -> LoadedRecipe:
    text = f'{{"version": 1, "rules": [{{"match": "w", "value": "{value}"}}]}}'
    return parse_recipe(text, "(recipe)", hooks=HookFunctions(functions))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    ocp.PyTreeCheckpointer().save(tmp_path / "source", {"w": np.arange(6.0).reshape(2, 3)})
    return tmp_path / "source"


def test_they_run_because_the_caller_gave_them(source: Path, tmp_path: Path) -> None:
    functions = {"double": lambda x: x[:, :1] * 2, "infer_double": lambda x: ((2, 1), x.dtype)}
    applying.apply(recipe("hooks.double(x)", **functions), source, dst=tmp_path / "result")
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "result")
    np.testing.assert_array_equal(restored["w"], [[0.0], [6.0]])


def test_a_name_that_is_not_given() -> None:
    with pytest.raises(FunctionError, match=r"\(hooks\) has no function `dubble`; did you mean `double`"):
        HookFunctions({"double": lambda x: x}).call("dubble", [])


def test_without_functions_the_name_means_nothing() -> None:
    with pytest.raises(RecipeError, match=re.escape("`hooks` needs a line `hooks: FILE.py` in the recipe")):
        parse_recipe('{"version": 1, "rules": [{"match": "w", "value": "hooks.f(x)"}]}', "(recipe)")


def test_a_result_that_is_not_as_planned(source: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=re.escape("`hooks.f` gave float64[3], but the plan expects float64[2,3]")
    ):
        applying.apply(recipe("hooks.f(x)", f=lambda x: x[0]), source, dst=tmp_path / "result")
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("name", ["", "a b", "_f", "f.g", "1f"])
def test_names_that_no_expression_can_call(name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"a hook cannot be called {name!r}")):
        HookFunctions({name: len})


def test_what_is_no_function() -> None:
    with pytest.raises(UsageError, match="the hook `f` is not a function, but 3"):
        HookFunctions({"f": 3})  # type: ignore[dict-item]


def test_the_digest_is_that_of_names_and_code() -> None:
    def scaled(factor: int) -> Callable[[Any], Any]:
        exec(f"def f(x):\n    return x * {factor}", found := {})
        return found["f"]  # type: ignore[no-any-return]

    first, again, other = (HookFunctions({"f": scaled(n)}).sha256 for n in (2, 2, 3))
    assert first == again
    assert first not in (other, HookFunctions({"g": scaled(2)}).sha256)
    nested = HookFunctions({"f": lambda x: [y for y in x]})  # noqa: C416  (its code has code in it)
    assert re.fullmatch("[0-9a-f]{64}", nested.sha256)


def test_a_plan_with_them_is_not_saved(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        applying.plan(recipe("hooks.double(x)", double=lambda x: x * 2), source, out=tmp_path / "plan.json")
    assert str(caught.value) == (
        "a plan file cannot hold functions of the running program, and the recipe calls `double`\n"
        "  Carry the recipe out at once, or write the functions as a file of hooks."
    )
    assert not (tmp_path / "plan.json").exists()


def test_a_run_with_them_is_never_taken_up_again(source: Path, tmp_path: Path) -> None:
    """Nobody knows whether functions of two programs do the same: `resume` starts afresh."""
    given = recipe("hooks.double(x)", double=lambda x: x * 2)
    ready = prepare(requested(given, (source,), tmp_path / "result", {}))
    assert identity_of(ready) != identity_of(ready)
