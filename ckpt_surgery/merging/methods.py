"""The methods of mergekit 0.1.5: which parameters each has, and which models it takes.

What a method computes is in `formulas` and its neighbours, under the same name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ckpt_surgery.merging.models import Converted, Scalar

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
