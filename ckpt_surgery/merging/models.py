"""The fields of a configuration of mergekit 0.1.5 as models, its slices, and the methods and what they take.

What a method computes is in `formulas`, under the same name. Which fields go together is checked in
`reading`; which layers and tensors there are, in `formula_inputs`. A configuration with `models` is one slice
of all layers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PlainValidator, Strict

from ckpt_surgery.language.schema.field_types import StrictModel, wrong_type
from ckpt_surgery.language.yaml.document import DocumentPath

SETTING = "a number, a list of numbers, or a list of {filter: TEXT, value: NUMBER}"

Scalar = bool | int | float | str
Converted = bool | int | float


class Case(NamedTuple):
    """A value for the tensors whose name has a text in it."""

    filter: str | None
    """Text in the name; None or `*`: any name."""
    values: tuple[Scalar, ...]
    """One value, or the values from the first layer to the last."""


@dataclass(frozen=True)
class Setting:
    """A value of a parameter: one value, a list over the layers, or values by name.

    mergekit reads them so (mergekit 0.1.5, `evaluate_setting`): a list of numbers is interpolated linearly
    over the layers of a slice; of truths, the value at the position is taken. In a list of `{filter, value}`,
    the first whose filter is part of the tensor's name counts, or that has no filter.
    """

    cases: tuple[Case, ...]

    def at(self, name: str, t: float, convert: Callable[[Scalar], Converted]) -> Converted | None:
        """The value for a tensor; None where no case fits its name.

        `t` is the position of its layer in the slice, from 0 for the first to 1 for the last. `convert` gives
        a value the parameter's type; its ValueError is raised.
        """
        fitting = (c.values for c in self.cases if c.filter in (None, "*") or str(c.filter) in name)
        values = [convert(value) for value in next(fitting, ())]
        if not values:
            return None
        position = t * (len(values) - 1)
        before = int(position)
        if len(values) == 1 or any(isinstance(value, bool) for value in values):
            return values[before]
        after, share = min(before + 1, len(values) - 1), position - before
        return (1 - share) * values[before] + share * values[after]


def setting_of(value: Any) -> Setting:
    """The setting that a value of the document is. Raises the error of a value of another type."""
    if isinstance(value, list) and not all(isinstance(item, Scalar) for item in value):
        items = value
    else:
        items = [value if isinstance(value, dict) else {"value": value}]
    cases = []
    for item in items:
        if not isinstance(item, dict) or not {"value"} <= item.keys() <= {"filter", "value"}:
            raise wrong_type(SETTING)
        filter, given = item.get("filter"), item["value"]
        values = given if isinstance(given, list) else [given]
        if not isinstance(filter, str | None) or not all(isinstance(value, Scalar) for value in values):
            raise wrong_type(SETTING)
        cases.append(Case(filter, tuple(values)))
    return Setting(tuple(cases))


def _layer_range(value: Any) -> tuple[int, int]:
    """The first layer, and the one after the last."""
    match value:
        case [first, stop] if type(first) is type(stop) is int and 0 <= first < stop:
            return first, stop
    raise wrong_type("the first layer and the one after the last, such as [0, 16]")


def _model_path(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong_type("the path of a directory, as text")
    return value


Parameters = Annotated[
    Mapping[str, Annotated[Setting, PlainValidator(setting_of)]],
    # Nothing below `parameters:`, as templates have it, is the same as no such line.
    BeforeValidator(lambda value: {} if value is None else value),
]
ModelPath = Annotated[str, PlainValidator(_model_path)]
DTypeName = Annotated[
    Literal["float32", "bfloat16", "float16", "float64"],
    BeforeValidator(lambda value: value.removeprefix("torch.") if isinstance(value, str) else value),
]


class InputModel(StrictModel):
    """A model of `models`: all its layers."""

    model: ModelPath
    parameters: Parameters = Field(default_factory=dict)


class InputSlice(InputModel):
    """Some layers of a model."""

    layer_range: Annotated[tuple[int, int], PlainValidator(_layer_range)]


class OutputSlice(StrictModel):
    """Layers of the result, each made of one layer of each source."""

    sources: Annotated[tuple[InputSlice, ...], Strict(False)]
    base_model: ModelPath | None = None
    parameters: Parameters = Field(default_factory=dict)


class MergeConfig(StrictModel):
    """A whole configuration."""

    merge_method: str
    models: Annotated[tuple[InputModel, ...], Strict(False)] | None = None
    slices: Annotated[tuple[OutputSlice, ...], Strict(False)] | None = None
    base_model: ModelPath | None = None
    parameters: Parameters = Field(default_factory=dict)
    dtype: DTypeName | None = None
    out_dtype: DTypeName | None = None


BASE_PATH: DocumentPath = ("base_model",)
"""Path of a base that the list of models does not have."""


@dataclass(frozen=True, eq=False)
class SlicePart:
    """A model in a slice."""

    model: str
    """The model as the configuration names it."""
    path: DocumentPath
    """Its place there."""
    parameters: Mapping[str, Setting]
    first: int = 0
    """Its first layer in the slice."""
    layers: int | None = None
    """Number of its layers in the slice; None: all."""


@dataclass(frozen=True, eq=False)
class Slice:
    """Layers of the result that follow one another."""

    listed: DocumentPath
    """Path of the list of its models."""
    parts: tuple[SlicePart, ...]
    base: str | None
    """The base model, where the configuration has one."""
    parameters: Mapping[str, Setting]
    begin: int = 0
    """Number of its first layer in the result."""

    @property
    def path(self) -> DocumentPath:
        """Path of the mapping that has the slice's fields."""
        return self.listed[:-1]

    @property
    def reference(self) -> SlicePart:
        """The model whose tensors the result has: the base, or else the first one."""
        return next((part for part in self.parts if part.model == self.base), self.parts[0])


def slices_of(config: MergeConfig) -> tuple[Slice, ...]:
    """The slices of a configuration in order. A base that `models` does not list comes after them."""
    slices: list[Slice] = []
    if config.models is not None:
        parts = [SlicePart(one.model, ("models", i), one.parameters) for i, one in enumerate(config.models)]
        base = config.base_model
        if base is not None and all(part.model != base for part in parts):
            parts.append(SlicePart(base, BASE_PATH, {}))
        slices.append(Slice(("models",), tuple(parts), base, {}))
    begin = 0
    for i, slice in enumerate(config.slices or ()):
        listed, ranges = ("slices", i, "sources"), [source.layer_range for source in slice.sources]
        parts = [
            SlicePart(source.model, (*listed, j), source.parameters, first, stop - first)
            for j, (source, (first, stop)) in enumerate(zip(slice.sources, ranges, strict=True))
        ]
        base = slice.base_model or config.base_model
        slices.append(Slice(listed, tuple(parts), base, slice.parameters, begin))
        begin += max((stop - first for first, stop in ranges), default=0)
    return tuple(slices)


def models_of(config: MergeConfig) -> tuple[str, ...]:
    """All models as the configuration names them, each once: the base, or else the first one, comes first."""
    parts = (part.model for slice in slices_of(config) for part in slice.parts)
    base = () if config.base_model is None else (config.base_model,)
    return tuple(dict.fromkeys((*base, *parts)))


Scope = Literal["shared", "each", "tuned"]
"""Whose value a parameter is: one for all models, one for each, or one for each but the base."""
Base = Literal["required", "optional", "ignored"]
"""Role of a base model in a method: set apart, or (ignored) a model as the others."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method."""

    name: str
    default: Converted | None = None
    """Value where the configuration gives none, of the parameter's type; None: it needs one, a number."""
    scope: Scope = "shared"

    @property
    def kind(self) -> type[Converted]:
        """Type of the values."""
        return float if self.default is None else type(self.default)

    def convert(self, value: Scalar) -> Converted:
        """The value in the parameter's type. Raises ValueError where it is of another."""
        if self.kind is bool:
            truth = {"true": 1, "false": 0}.get(value.lower()) if isinstance(value, str) else value
            if truth not in (0, 1):
                raise ValueError(value)
            return bool(truth)
        number = float(value)  # also of text such as 1e-3, which some readers of YAML take for text
        if not math.isfinite(number) or (self.kind is int and not number.is_integer()):
            raise ValueError(value)
        return self.kind(number)


@dataclass(frozen=True)
class Method:
    """A method of merging: what it takes."""

    parameters: tuple[Parameter, ...] = ()
    base: Base = "ignored"
    least: int = 1
    """Smallest number of models, the base included where the method has one apart."""
    most: int | None = None
    """Largest number of models; None: there is no limit."""

    @property
    def by_name(self) -> Mapping[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    @property
    def shared(self) -> tuple[Parameter, ...]:
        """The parameters with one value for all models."""
        return tuple(one for one in self.parameters if one.scope == "shared")

    def of_model(self, is_base: bool) -> tuple[Parameter, ...]:
        """The parameters with a value for each model."""
        scopes = ("each",) if is_base else ("each", "tuned")
        return tuple(one for one in self.parameters if one.scope in scopes)


_WEIGHT = Parameter("weight", scope="tuned")
_INT8_MASK = Parameter("int8_mask", False)


def _differences(*more: Parameter, normalize: bool = False, rescale: bool = False) -> Method:
    """A method that adds weighted differences to the base."""
    density, weighted_sum = Parameter("density", 1.0, "tuned"), Parameter("lambda", 1.0)
    flags = (Parameter("normalize", normalize), Parameter("rescale", rescale), _INT8_MASK)
    return Method((_WEIGHT, density, weighted_sum, *flags, *more), "required")


_GAMMA = Parameter("gamma", 0.01, "tuned")
_EPSILON = Parameter("epsilon", 0.15, "tuned")

METHODS: Mapping[str, Method] = {
    "linear": Method((Parameter("weight", scope="each"), Parameter("normalize", True))),
    "slerp": Method((Parameter("t"),), "required", 2, 2),
    "nuslerp": Method(
        (_WEIGHT, Parameter("nuslerp_flatten", True), Parameter("nuslerp_row_wise", False)),
        "optional",
        2,
        3,
    ),
    "multislerp": Method((_WEIGHT, Parameter("normalize_weights", True), Parameter("eps", 1e-8)), "optional"),
    "karcher": Method((Parameter("max_iter", 10), Parameter("tol", 1e-5))),
    "task_arithmetic": _differences(),
    "ties": _differences(normalize=True),
    "dare_ties": _differences(rescale=True),
    "dare_linear": _differences(rescale=True),
    "breadcrumbs": _differences(_GAMMA),
    "breadcrumbs_ties": _differences(_GAMMA),
    "della": _differences(_EPSILON, normalize=True, rescale=True),
    "della_linear": _differences(_EPSILON, rescale=True),
    "model_stock": Method((Parameter("filter_wise", False),), "required", 3),
    "nearswap": Method((Parameter("t"),), "required", 2, 2),
    "sce": Method((Parameter("select_topk", 1.0), _INT8_MASK), "required"),
    "ram": Method((Parameter("epsilon", 1e-5),), "required"),
    "ramplus_tl": Method(
        (Parameter("r", 0.1), Parameter("alpha", 0.2), Parameter("epsilon", 1e-5)), "required"
    ),
    "arcee_fusion": Method((), "required", 2, 2),
    "passthrough": Method((Parameter("scale", 1.0, "each"),), most=1),
}
"""Methods by their names."""

PARAMETERS = frozenset(name for method in METHODS.values() for name in method.by_name)
"""Names of the parameters of all methods."""
