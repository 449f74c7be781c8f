"""Values of parameters are those that mergekit gives a tensor."""

from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from ckpt_surgery.merging.models import setting_of

FILTERS = [{"filter": "mlp", "value": [0, 1]}, {"filter": "attn", "value": 0.3}, {"value": 0.5}]


@pytest.mark.parametrize(
    ("value", "name", "t", "wanted"),
    [
        (0.5, "any", 1.0, 0.5),
        ("1e-3", "any", 0.0, 0.001),
        ([0, 10], "any", 0.25, 2.5),
        ([0, 10, 0], "any", 0.75, 5.0),
        ([0, 10], "any", 1.0, 10.0),
        ([4], "any", 0.5, 4.0),
        ([], "any", 0.5, None),
        (FILTERS, "model.mlp.up", 0.5, 0.5),
        (FILTERS, "model.attn.q", 0.5, 0.3),
        (FILTERS, "model.norm", 0.5, 0.5),
        (FILTERS[:2], "model.norm", 0.5, None),
        ({"filter": "*", "value": 2}, "any", 0.0, 2.0),
    ],
)
def test_a_setting_gives_a_value(value: Any, name: str, t: float, wanted: float | None) -> None:
    assert setting_of(value).at(name, t, float) == wanted


def test_truths_are_not_interpolated() -> None:
    setting = setting_of([True, False])
    assert [setting.at("any", t, bool) for t in (0.0, 0.9, 1.0)] == [True, True, False]


@pytest.mark.parametrize(
    "value", [None, [None], [{"filter": "a"}], [{"value": {}}], [1, {"value": 2}], {"v": 1}]
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(PydanticCustomError):
        setting_of(value)
