"""Checks of a whole recipe: the header, names, params and passes."""

from typing import Any

from ckpt_surgery.language.checks.recipe import findings
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath


def found(broken: tuple[DocumentPath, ...] = (), **fields: Any) -> list[tuple[DocumentPath, str]]:
    written = {"version": 1, **fields}
    return [(f.path, f.message) for f in findings(Recipe.model_validate(written), written, broken)]


def test_fields_that_do_not_parse_still_give_their_names() -> None:
    rules = [{"match": "a", "value": "x * scale"}]
    assert found(rules=rules) == [(("rules", 0, "value"), "unknown name `scale`")]
    assert found((("params", "scale"),), rules=rules) == []
