"""Subscripts and attributes: elements of arrays and lists, leaves of sources, entries of tables."""

from types import EllipsisType
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series, require_no_gaps
from ckpt_surgery.language.expressions.scope import Groups, Leaves, Lookup, looked_up
from ckpt_surgery.language.expressions.values import is_list, series_hint, told


def subscripted(value: Any, index: Any) -> Any:
    """The value of `value[index]`; `index` is a tuple if the subscript has a comma."""
    if isinstance(value, Array):
        for item in index if isinstance(index, tuple) else (index,):
            _check_item(item)
        return value[index]
    if isinstance(value, Lookup):
        return value.entry(index)
    if isinstance(value, Groups):
        return value.text(index)
    if isinstance(value, Series):
        return _element(list(require_no_gaps(value)), index)
    if isinstance(value, str | list | tuple | range):
        return _element(value, index)
    if isinstance(value, Leaves):
        return looked_up(value, key_text(value, index), value.lookup)
    raise FunctionError(f"{told(value)} has no elements")


def key_text(leaves: Leaves, index: Any) -> str:
    """The key in `leaves[key]`. Raises FunctionError if it is not text."""
    if not isinstance(index, str):
        raise FunctionError(f"the key in `{leaves.name}[…]` has to be text, not {told(index)}")
    return index


def _check_item(item: Any) -> None:
    """Raises FunctionError for an item of a subscript that no array takes."""
    if isinstance(item, slice):
        for bound in (item.start, item.stop, item.step):
            _check_bound(bound)
    elif not (item is None or isinstance(item, EllipsisType) or type(item) is int):
        hint = "take(x, [0, 2], axis) takes several elements." if is_list(item) else None
        raise FunctionError(f"an array is not indexed with {told(item)}", hint=hint)


def _check_bound(bound: Any) -> None:
    if bound is not None and type(bound) is not int:
        raise FunctionError(f"the bounds of a slice have to be integers, not {told(bound)}")


def _element(values: Any, index: Any) -> Any:
    if isinstance(index, slice):
        if index.step == 0:
            raise FunctionError("the step of a slice cannot be 0")
        _check_item(index)
        return values[index]
    if type(index) is not int:
        raise FunctionError(f"{told(values)} is indexed with an integer, not {told(index)}")
    if not -len(values) <= index < len(values):
        raise FunctionError(f"index {index} is out of bounds for {told(values)}")
    return values[index]


ATTRIBUTES = ("T", "shape", "dtype", "ndim", "size")


def attribute(value: Any, name: str) -> Any:
    """The value of `value.name`. Raises FunctionError for anything but an array."""
    if not isinstance(value, Array):
        hint = series_hint(value) and "xs[0] is the first of them."
        raise FunctionError(f"`.{name}` is for arrays, not {told(value)}", hint=hint)
    return value.dtype.name if name == "dtype" else getattr(value, name)
