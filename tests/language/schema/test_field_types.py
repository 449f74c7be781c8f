"""The types of fields: which values they take, and how they refuse others."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.patterns.templates import parse_template
from ckpt_surgery.language.schema import field_types
from ckpt_surgery.language.schema.field_types import SYNTAX, WRONG_TYPE


def adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(getattr(field_types, name))


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("ExpressionField", "x + 1", parse("x + 1")),
        ("TemplateField", "a/${n}", parse_template("a/${n}")),
        ("ConstantField", [1, "a", True], (1, "a", True)),
        ("ConstantField", 0.5, 0.5),
        ("PathsField", "a/b", ("a/b",)),
        ("PathsField", ["a/b", "c"], ("a/b", "c")),
        ("MeshField", {"data": 2, "model": 4}, {"data": 2, "model": 4}),
        ("SpecField", [None, "model", ["a", "b"]], (None, "model", ("a", "b"))),
    ],
)
def test_values(field: str, value: Any, found: Any) -> None:
    assert adapter(field).validate_python(value) == found


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("ExpressionField", 3, "an expression, as text"),
        ("TemplateField", ["a"], "a key template, as text"),
        ("PatternField", None, "a regular expression, as text"),
        ("ClaimField", 3, "a regular expression, as text"),
        ("ConstantField", [[1]], "text, a number, true or false, or a list of those"),
        ("ConstantField", {"a": 1}, "text, a number, true or false, or a list of those"),
        ("PathsField", "a//b", "a path such as text_config/num_hidden_layers, or a list of those"),
        ("PathsField", [], "a path such as text_config/num_hidden_layers, or a list of those"),
        ("MeshField", {"data": 0}, "axes with their lengths, such as {data: 2, model: 4}"),
        ("MeshField", {"data": True}, "axes with their lengths, such as {data: 2, model: 4}"),
        ("SpecField", [3], "a list of mesh axes, such as [null, model] or [[data, model]]"),
    ],
)
def test_values_of_another_type(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        adapter(field).validate_python(value)
    (error,) = caught.value.errors()
    assert (error["type"], error["msg"]) == (WRONG_TYPE, message)


@pytest.mark.parametrize(
    ("field", "text", "start", "end"),
    [("ExpressionField", "x + (", 4, 5), ("TemplateField", "a/$b", 2, 3), ("PatternField", "a(", 1, 2)],
)
def test_flaws_of_text_have_their_place(field: str, text: str, start: int, end: int) -> None:
    with pytest.raises(ValidationError) as caught:
        adapter(field).validate_python(text)
    (error,) = caught.value.errors()
    assert error["type"] == SYNTAX
    assert (error["ctx"]["error"].start, error["ctx"]["error"].end) == (start, end)
