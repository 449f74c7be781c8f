"""The fields of a configuration of mergekit 0.1.5, with their types and defaults, as models.

A configuration names models and a method. What its parameters mean depends on the method: see `methods`.
Which fields go together is checked in `checks`; which layers and tensors there are, in `formula_inputs`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, Strict

from ckpt_surgery.language.schema.field_types import wrong_type
from ckpt_surgery.merging.settings import SETTING, Setting, setting_of

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Types that a merge computes to."""
TORCH = "torch."
"""May stand before the name of a type."""


class _ModelEntry(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True, defer_build=True
    )


def _setting(value: Any) -> Setting:
    found = setting_of(value)
    if found is None:
        raise wrong_type(SETTING)
    return found


def _parameters(value: Any) -> Any:
    """`parameters:` with nothing below it, as templates have it, is the same as no such line."""
    return {} if value is None else value


def _layer_range(value: Any) -> tuple[int, int]:
    """The first layer, and the one after the last."""
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int and item >= 0 for item in value):
        first, stop = value
        if first < stop:
            return first, stop
    raise wrong_type("the first layer and the one after the last, such as [0, 16]")


def _dtype(value: Any) -> str:
    name = value.removeprefix(TORCH) if isinstance(value, str) else ""
    if name not in DTYPES:
        raise wrong_type(f"one of {', '.join(DTYPES)}")
    return name


def _model_path(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong_type("the path of a directory, as text")
    return value


Parameters = Annotated[
    Mapping[str, Annotated[Setting, PlainValidator(_setting)]], BeforeValidator(_parameters)
]
ModelPath = Annotated[str, PlainValidator(_model_path)]
DTypeName = Annotated[str, PlainValidator(_dtype)]


class InputModel(_ModelEntry):
    """A model of `models`: all its layers."""

    model: ModelPath
    parameters: Parameters = Field(default_factory=dict)


class InputSlice(_ModelEntry):
    """Some layers of a model."""

    model: ModelPath
    layer_range: Annotated[tuple[int, int], PlainValidator(_layer_range)]
    parameters: Parameters = Field(default_factory=dict)


class OutputSlice(_ModelEntry):
    """Layers of the result, each made of one layer of each source."""

    sources: Annotated[tuple[InputSlice, ...], Strict(False)]
    base_model: ModelPath | None = None
    parameters: Parameters = Field(default_factory=dict)


class MergeConfig(_ModelEntry):
    """A whole configuration."""

    merge_method: str
    models: Annotated[tuple[InputModel, ...], Strict(False)] | None = None
    slices: Annotated[tuple[OutputSlice, ...], Strict(False)] | None = None
    base_model: ModelPath | None = None
    parameters: Parameters = Field(default_factory=dict)
    dtype: DTypeName | None = None
    out_dtype: DTypeName | None = None
