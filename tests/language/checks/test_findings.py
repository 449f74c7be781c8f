"""What the checks of a recipe know about it, and the findings of fields without a value."""

from typing import Any

import pytest

from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language.checks.findings import Finding, Subject, empty_fields
from ckpt_surgery.language.schema.fields import Recipe
from ckpt_surgery.language.yaml.document import DocumentPath


def subject(*broken: DocumentPath, **fields: Any) -> Subject:
    """A recipe with these fields, whose fields at the paths `broken` do not parse."""
    written = {"version": 1, **fields}
    return Subject(Recipe.model_validate(written), written, frozenset(broken))


def test_names_that_all_expressions_can_use() -> None:
    plain = {"source", "target", "sources", "config", "configs"}
    assert subject().constants == plain
    assert subject(params={"n": 2}, tables={"wide": {"q": 1}}).constants == {*plain, "n", "wide"}
    assert subject(hooks="hooks.py").constants == {*plain, "hooks"}


def test_sources_are_known_by_their_names_and_those_that_may_follow_are_not() -> None:
    everywhere = {"target", "sources", "config", "configs"}
    assert subject(sources=["base", "lora"]).constants == {*everywhere, "base", "lora"}
    assert subject(sources=["base", "*"]).constants == {*everywhere, "base"}


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (("params", "scale"), {"scale"}),
        (("params", "scale", "default"), {"scale"}),
        (("tables", "wide", 0), {"wide"}),
        (("params",), set()),  # no name is known
        (("rules", 0, "value"), set()),
    ],
)
def test_params_and_tables_that_do_not_parse_still_have_a_name(path: DocumentPath, names: set[str]) -> None:
    assert subject(path).constants - subject().constants == names


@pytest.mark.parametrize(
    ("path", "broken"),
    [
        ((), True),
        (("rules",), True),
        (("rules", 1), True),
        (("rules", 1, "to"), True),
        (("rules", 1, "to", 0), False),  # below what is broken nothing is known
        (("rules", 0), False),
        (("rules", 1, "value"), False),
        (("params",), False),
    ],
)
def test_a_value_is_broken_if_a_part_of_it_is(path: DocumentPath, broken: bool) -> None:
    assert subject(("rules", 1, "to")).is_broken(path) == broken


def test_a_recipe_that_parses_has_nothing_broken() -> None:
    assert not subject().is_broken(())


def test_a_finding_of_an_empty_field_points_at_its_key() -> None:
    message = "`to` has no value; write one, or leave the field out"
    assert list(empty_fields({"to": None, "params": None, "drop": False}, ("rules", 0))) == [
        Finding(("rules", 0, "to"), message, at_key=True, code=Code.MISSING_FIELD)
    ]


def test_only_params_and_tables_may_be_empty() -> None:
    written = {"version": 1, "rules": None, "params": None, "tables": None, "sources": [], "hooks": None}
    assert [finding.path for finding in empty_fields(written, ())] == [("rules",), ("hooks",)]
