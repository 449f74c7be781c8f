"""Axes as calls name them, counted from the front."""

from collections.abc import Sequence

from ckpt_surgery.core.errors import FunctionError


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` counted from the front. FunctionError where an array of `ndim` axes has no such axis."""
    if not -ndim <= axis < ndim:
        raise FunctionError(f"`{name}`: there is no axis {axis} in an array of {ndim} axes")
    return axis % ndim


def axes_of(axes: Sequence[int], ndim: int, name: str) -> tuple[int, ...]:
    """Several axes counted from the front. FunctionError where one is missing or given twice."""
    found = tuple(axis_of(axis, ndim, name) for axis in axes)
    if len(set(found)) < len(found):
        raise FunctionError(f"`{name}`: an axis is given twice in {tuple(axes)}")
    return found
