"""Values of parameters as a configuration has them: one value, a list over the layers, or values by name.

mergekit reads them so (mergekit 0.1.5, `evaluate_setting`): a list of numbers is interpolated linearly over
the layers of a slice; of truths, the value at the position is taken. In a list of `{filter, value}`, the
first whose filter is part of the tensor's name counts, or that has no filter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SETTING = "a number, a list of numbers, or a list of {filter: TEXT, value: NUMBER}"

Scalar = bool | int | float | str
Converted = bool | int | float


@dataclass(frozen=True)
class Case:
    """A value for the tensors whose name has a text in it."""

    filter: str | None
    """Text in the name; None: any name."""
    values: tuple[Scalar, ...]
    """One value, or the values from the first layer to the last."""

    def fits(self, name: str) -> bool:
        """Whether the value is for the tensor of this name."""
        return self.filter is None or self.filter == "*" or self.filter in name


@dataclass(frozen=True)
class Setting:
    """A value of a parameter: the first case that fits a name gives it."""

    cases: tuple[Case, ...]

    def at(self, name: str, t: float, convert: Callable[[Scalar], Converted]) -> Converted | None:
        """The value for a tensor; None where no case fits its name.

        `t` is the position of its layer in the slice, from 0 for the first to 1 for the last. `convert` gives
        a value the parameter's type; its ValueError is raised.
        """
        for case in self.cases:
            if case.fits(name):
                return _between([convert(value) for value in case.values], t)
        return None


def _between(values: Sequence[Converted], t: float) -> Converted | None:
    """The value at position `t` of values that are spread evenly from 0 to 1; None where there are none."""
    if not values:
        return None
    position = t * (len(values) - 1)
    before = int(position)
    if len(values) == 1 or any(isinstance(value, bool) for value in values):
        return values[before]
    after, share = min(before + 1, len(values) - 1), position - before
    return (1 - share) * values[before] + share * values[after]


def setting_of(value: Any) -> Setting | None:
    """The setting that a value of the document is; None where it is none."""
    if _is_scalar(value) or isinstance(value, dict) or _is_gradient(value):
        value = [value if isinstance(value, dict) else {"value": value}]
    if not isinstance(value, list):
        return None
    cases = [_case(item) for item in value]
    return None if None in cases else Setting(tuple(case for case in cases if case is not None))


def _case(value: Any) -> Case | None:
    if not isinstance(value, dict) or "value" not in value or not value.keys() <= {"filter", "value"}:
        return None
    filter, given = value.get("filter"), value["value"]
    if not isinstance(filter, str | None) or not (_is_scalar(given) or _is_gradient(given)):
        return None
    return Case(filter, tuple(given) if isinstance(given, list) else (given,))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def _is_gradient(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_scalar, value))
