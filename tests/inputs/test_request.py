"""Options, which every function takes as it says, become one request; and recipes that are named are read."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import ckpt_surgery
from ckpt_surgery.api.linting import lint
from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.inputs.options import ConvertOptions, PlanOptions
from ckpt_surgery.inputs.request import Request, read_recipe, requested
from ckpt_surgery.runs import run as run_options
from tests.support.recipes import write_recipe

FUNCTIONS: dict[Callable[..., Any], type] = {
    ckpt_surgery.plan: PlanOptions,
    ckpt_surgery.apply: PlanOptions,
    ckpt_surgery.convert: ConvertOptions,
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_signatures_and_docstrings_list_the_options(function: Callable[..., Any]) -> None:
    options = FUNCTIONS[function].__annotations__
    parameters = inspect.signature(function).parameters
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    assert list(parameters)[-len(options) :] == list(options)
    assert parameters["step"].annotation == int | None
    described = (function.__doc__ or "").partition("\nArgs:\n")[2].splitlines()
    assert [line.strip().partition(":")[0] for line in described] == list(options)
    assert "    step: Step to read from a source that holds several; default: the latest." in described


def test_requests_have_every_option_with_its_default() -> None:
    own = {"recipe", "sources", "dst", "made_from", "notes", "changes", "shardings", "opened", "pinned"}
    assert {field.name for field in fields(Request)} == own | PlanOptions.__annotations__.keys()
    parameters = inspect.signature(ckpt_surgery.plan).parameters
    for field in fields(Request):
        if field.name in PlanOptions.__annotations__:
            assert parameters[field.name].default == field.default


@pytest.mark.parametrize("function", [ckpt_surgery.apply, ckpt_surgery.convert, ckpt_surgery.merge])
def test_runs_have_the_same_options_everywhere(function: Callable[..., Any]) -> None:
    defaults = {field.name: field.default for field in fields(run_options.RunOptions)}
    assert list(defaults) == list(run_options.RunArguments.__annotations__)
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in parameters if name in defaults} == defaults


def test_a_recipe_that_has_been_read(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("version: 1\nparams: {n: 1}\n")
    loaded = read_recipe(path, {"n": 4})
    request = requested(loaded, ("a",), None, {})
    assert (request.recipe, request.recipe_path) == (loaded, str(path))
    with pytest.raises(UsageError, match=r"r\.yaml has been read already"):
        requested(loaded, ("a",), None, {"set": {"n": 5}})


def test_a_recipe_among_the_sources_is_refused_before_the_destination_is_looked_at(tmp_path: Path) -> None:
    recipe, model = tmp_path / "r.yaml", tmp_path / "m.npz"
    recipe.write_text("version: 1\nrules: []\n")
    model.write_bytes(b"precious")
    with pytest.raises(UsageError) as caught:
        requested(None, (recipe,), model, {})
    assert "`overwrite=True`" not in str(caught.value)
    assert "A recipe comes before the checkpoints" in (caught.value.problems[0].hint or "")
    assert requested(None, (tmp_path / "run.yaml",), model, {}).sources  # no file: it is said later


# --- recipes, read and checked without a checkpoint -------------------------------------------------------


def test_a_recipe_is_read_with_its_params(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, "version: 1\nparams: {n: 1, m: a}\n")
    for given in ({"n": 4}, ["n=4"], ("n=4",)):
        loaded = read_recipe(path, given)
        assert (loaded.path, loaded.params) == (str(path), {"n": 4, "m": "a"})
    with pytest.raises(UsageError, match="unknown param `k`"):
        read_recipe(path, {"k": 1})


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("{format: safetensor}", "the format `safetensor` is not known; did you mean `safetensors`?"),
        ("{format: torch}", "the format `torch` can be read but not written"),
        ("{format: npz, zarr: 2, structure_file: true}", "npz checkpoints have no structure file"),
        ("{format: orbax, zarr: 2, structure_file: true}", None),
        ("{zarr: 2, structure_file: true}", None),
        ("{format: npz}", None),
    ],
)
def test_formats_are_checked_whoever_reads_the_recipe(output: str, says: str | None, tmp_path: Path) -> None:
    path = write_recipe(tmp_path, f"version: 1\noutput: {output}\n")
    ((name, problems),) = lint(path)
    assert (name, [problem.message for problem in problems]) == (str(path), [says] if says else [])
    if says is None:
        read_recipe(path)
    else:
        with pytest.raises(RecipeError) as caught:
            read_recipe(path)
        assert caught.value.problems == problems


@pytest.mark.parametrize(
    ("rules", "places"),
    [
        ([{"match": "a("}], [("rules[0].match", "a(", 2)]),
        ([{"match": "a", "to": "b/${zz}"}], [("rules[0].to", "b/${zz}", 5)]),
        ([{}] * 10 + [{"match": "a", "drp": 1}], [("rules[0]", "", 1), ("rules[10].drp", "drp", 1)]),
    ],
)
def test_recipes_that_are_data_have_places_without_lines(
    rules: list[dict[str, Any]], places: list[tuple[str, str, int]]
) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe({"version": 1, "rules": rules})
    found = [p.place for p in caught.value.problems if p.place is not None]
    assert {place.line for place in found} == {None}
    told = [(place.path, place.text, place.column) for place in found]
    assert [told[0], told[-1]] == [places[0], places[-1]]
    assert "(recipe):" not in str(caught.value)


def test_data_that_is_nested_too_deeply_has_no_line() -> None:
    document: dict[str, Any] = {}
    for _ in range(30):
        document = {"version": 1, "rules": [document]}
    with pytest.raises(RecipeError, match="nested deeper than 20 levels") as caught:
        read_recipe(document)
    assert [problem.place for problem in caught.value.problems] == [None]
