"""The types of fields: which values they take, and how they refuse others."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from ckpt_surgery.language.schema import field_types
from ckpt_surgery.language.schema.field_types import WRONG_TYPE


def adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(getattr(field_types, name))


def test_values_of_another_type() -> None:
    for field, value, message in (
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
    ):
        with pytest.raises(ValidationError) as caught:
            adapter(field).validate_python(value)
        (error,) = caught.value.errors()
        assert (error["type"], error["msg"]) == (WRONG_TYPE, message)
