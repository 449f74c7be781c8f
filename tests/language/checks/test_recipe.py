"""Checks of a whole recipe: the header, names, params and passes."""

from typing import Any

import pytest

from ckpt_surgery.language.checks.recipe import findings
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath


def found(broken: tuple[DocumentPath, ...] = (), **fields: Any) -> list[tuple[DocumentPath, str]]:
    written = {"version": 1, **fields}
    return [(f.path, f.message) for f in findings(Recipe.model_validate(written), written, broken)]


def test_a_recipe_without_problems() -> None:
    assert (
        found(params={"n": 2}, tables={"t": {"a": 1}}, rules=[{"match": "(?P<k>.*)", "to": "${k}/a"}]) == []
    )


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        (
            {"rules": [], "passes": []},
            ("rules",),
            "`rules` must be inside one of the `passes` if there are any",
        ),
        (
            {"hooks": "../a.py"},
            ("hooks",),
            "hooks are a Python file beside the recipe, such as my_hooks.py, not '../a.py'",
        ),
        ({"sources": []}, ("sources",), "a recipe needs at least one source with a name"),
        (
            {"sources": ["*", "a"]},
            ("sources", 0),
            "`*` stands for any number of further sources; it must come last",
        ),
        (
            {"sources": ["a", "*"], "params": {"source_2": 1}},
            ("params", "source_2"),
            "`source_2` is the name of a further source; choose another name",
        ),
        (
            {"sources": ["a", "a"]},
            ("sources", 1),
            "`a` is already a source; choose another name",
        ),
        (
            {"params": {"a": 1}, "tables": {"a": {}}},
            ("tables", "a"),
            "`a` is already a param; choose another name",
        ),
        (
            {"params": {"a": {"default": [1], "config": "b"}}},
            ("params", "a", "config"),
            "`config` can give text, a number, true or false, but this default is a list",
        ),
        (
            {"output": {"structure_file": True}},
            ("output", "structure_file"),
            "a structure file is for versions of Orbax that only read zarr 2",
        ),
        (
            {"output": {"sharding": {"specs": {"a": ["m"]}}}},
            ("output", "sharding"),
            "`sharding` needs a `mesh`: its axes with their lengths, such as {data: 2, model: 4}",
        ),
        (
            {"mirror": {"a": ["b/c", "b"]}},
            ("mirror", "a", 1),
            "`b` and `b/c` overlap; mirrored trees must lie apart",
        ),
        (
            {"mirror": {"a": ["/b"]}},
            ("mirror", "a", 0),
            "a mirrored tree is given by its key, such as opt_state/0/mu, not '/b'",
        ),
        ({"passes": [{"when": "y"}]}, ("passes", 0, "when"), "unknown name `y`"),
        (
            {"description": None},
            ("description",),
            "`description` has no value; write one, or leave the field out",
        ),
    ],
)
def test_problems(fields: dict[str, Any], path: DocumentPath, message: str) -> None:
    assert found(**fields) == [(path, message)]


def test_fields_that_do_not_parse_still_give_their_names() -> None:
    rules = [{"match": "a", "value": "x * scale"}]
    assert found(rules=rules) == [(("rules", 0, "value"), "unknown name `scale`")]
    assert found((("params", "scale"),), rules=rules) == []
