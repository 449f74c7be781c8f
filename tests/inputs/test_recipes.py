"""Recipes read and checked without a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.api.linting import lint
from ckpt_surgery.core.errors import RecipeError, UsageError
from ckpt_surgery.inputs.request import read_recipe


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"version: 1\n{text}")
    return path


def test_a_recipe_is_read_with_its_params(tmp_path: Path) -> None:
    path = recipe(tmp_path, "params: {n: 1, m: a}\n")
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
    path = recipe(tmp_path, f"output: {output}\n")
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


def test_recipes_that_are_text_have_lines() -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipe("version: 1\nrules:\n  - {match: 'a('}\n")
    assert str(caught.value).startswith("(recipe):3:15  rules[0].match\n")


def test_data_that_is_nested_too_deeply_has_no_line() -> None:
    document: dict[str, Any] = {}
    for _ in range(30):
        document = {"version": 1, "rules": [document]}
    with pytest.raises(RecipeError, match="nested deeper than 20 levels") as caught:
        read_recipe(document)
    assert [problem.place for problem in caught.value.problems] == [None]
