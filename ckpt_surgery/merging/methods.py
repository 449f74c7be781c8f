"""The methods of mergekit 0.1.5: which parameters each has, and which models it takes.

What a method computes is in `formulas` and its neighbours, under the same name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ckpt_surgery.merging.models import Converted, Scalar


class MethodScope(Enum):
    """Whose value a parameter is."""

    SHARED = "one value for all models"
    EACH = "a value for each model"
    TUNED = "a value for each model but the base"


class Base(Enum):
    """Role of a base model in a method: set apart, or a model as the others."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    IGNORED = "a model as the others"


class Required:
    """Stands for the default of a parameter that has none."""


REQUIRED: Final = Required()


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method."""

    name: str
    kind: type[bool] | type[int] | type[float]
    scope: MethodScope = MethodScope.SHARED
    default: Converted | Required | None = REQUIRED
    """Value where the configuration gives none; None: the parameter is then not applied."""

    def convert(self, value: Scalar) -> Converted:
        """The value in the parameter's type. Raises ValueError where it is of another."""
        if self.kind is bool:
            return _truth(value)
        number = float(value)  # also of text such as 1e-3, which some readers of YAML take for text
        if not math.isfinite(number):
            raise ValueError(value)
        if self.kind is int and not number.is_integer():
            raise ValueError(value)
        return int(number) if self.kind is int else number

    @property
    def wanted(self) -> str:
        """The type, for messages."""
        return {bool: "true or false", int: "an integer"}.get(self.kind, "a number")


def _truth(value: Scalar) -> bool:
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError(value)


@dataclass(frozen=True)
class Method:
    """A method of merging: what it takes."""

    parameters: tuple[Parameter, ...] = ()
    base: Base = Base.IGNORED
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
        return tuple(one for one in self.parameters if one.scope is MethodScope.SHARED)

    def of_model(self, is_base: bool) -> tuple[Parameter, ...]:
        """The parameters with a value for each model."""
        scopes = (MethodScope.EACH,) if is_base else (MethodScope.EACH, MethodScope.TUNED)
        return tuple(one for one in self.parameters if one.scope in scopes)


def _differences(*more: Parameter, normalize: bool = False, rescale: bool = False) -> Method:
    """A method that adds weighted differences to the base."""
    return Method(
        (
            Parameter("weight", float, MethodScope.TUNED),
            Parameter("density", float, MethodScope.TUNED, 1.0),
            Parameter("lambda", float, default=1.0),
            Parameter("normalize", bool, default=normalize),
            Parameter("rescale", bool, default=rescale),
            Parameter("int8_mask", bool, default=False),
            *more,
        ),
        Base.REQUIRED,
    )


_GAMMA = Parameter("gamma", float, MethodScope.TUNED, 0.01)
_EPSILON = Parameter("epsilon", float, MethodScope.TUNED, 0.15)

METHODS: Mapping[str, Method] = {
    "linear": Method(
        (Parameter("weight", float, MethodScope.EACH), Parameter("normalize", bool, default=True))
    ),
    "slerp": Method((Parameter("t", float),), Base.REQUIRED, 2, 2),
    "nuslerp": Method(
        (
            Parameter("weight", float, MethodScope.TUNED),
            Parameter("nuslerp_flatten", bool, default=True),
            Parameter("nuslerp_row_wise", bool, default=False),
        ),
        Base.OPTIONAL,
        2,
        3,
    ),
    "multislerp": Method(
        (
            Parameter("weight", float, MethodScope.TUNED),
            Parameter("normalize_weights", bool, default=True),
            Parameter("eps", float, default=1e-8),
        ),
        Base.OPTIONAL,
    ),
    "karcher": Method((Parameter("max_iter", int, default=10), Parameter("tol", float, default=1e-5))),
    "task_arithmetic": _differences(),
    "ties": _differences(normalize=True),
    "dare_ties": _differences(rescale=True),
    "dare_linear": _differences(rescale=True),
    "breadcrumbs": _differences(_GAMMA),
    "breadcrumbs_ties": _differences(_GAMMA),
    "della": _differences(_EPSILON, normalize=True, rescale=True),
    "della_linear": _differences(_EPSILON, rescale=True),
    "model_stock": Method((Parameter("filter_wise", bool, default=False),), Base.REQUIRED, 3),
    "nearswap": Method((Parameter("t", float),), Base.REQUIRED, 2, 2),
    "sce": Method(
        (Parameter("select_topk", float, default=1.0), Parameter("int8_mask", bool, default=False)),
        Base.REQUIRED,
    ),
    "ram": Method((Parameter("epsilon", float, default=1e-5),), Base.REQUIRED),
    "ramplus_tl": Method(
        (
            Parameter("r", float, default=0.1),
            Parameter("alpha", float, default=0.2),
            Parameter("epsilon", float, default=1e-5),
        ),
        Base.REQUIRED,
    ),
    "arcee_fusion": Method((), Base.REQUIRED, 2, 2),
    "passthrough": Method((Parameter("scale", float, MethodScope.EACH, None),), most=1),
}
"""Methods by their names."""

PARAMETERS = frozenset(name for method in METHODS.values() for name in method.by_name)
"""Names of the parameters of all methods."""
