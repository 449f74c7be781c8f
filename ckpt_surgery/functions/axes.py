"""Axis arguments of calls: negative axes are counted from the last one, as in NumPy."""

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.sizes import check_axes


def axis_of(axis: int, ndim: int, name: str) -> int:
    """`axis` as a number from 0 to `ndim - 1`. Raises FunctionError if there is no such axis."""
    if not -ndim <= axis < ndim:
        raise FunctionError(f"`{name}`: there is no axis {axis} in an array of {ndim} axes")
    return axis % ndim


def axes_of(axes: int | tuple[int, ...] | None, ndim: int, name: str) -> tuple[int, ...]:
    """One axis, several, or all (None), each as a number from 0 to `ndim - 1`, in the order given.

    Raises FunctionError if there is no such axis, or if one is given twice.
    """
    if axes is None:
        return tuple(range(ndim))
    given = axes if isinstance(axes, tuple) else (axes,)
    check_axes(name, len(given))
    found = tuple(axis_of(axis, ndim, name) for axis in given)
    if len(set(found)) < len(found):
        raise FunctionError(f"`{name}`: an axis is given twice in {given}")
    return found
