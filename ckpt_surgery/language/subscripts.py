"""Subscripts and attributes: elements of arrays and lists, leaves of sources, entries of tables."""

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.arrays import Array, Series, applied, require_no_gaps
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.language.scope import Groups, Leaves, Lookup, looked_up
from ckpt_surgery.language.values import is_list, series_hint, told


def subscripted(value: Any, index: Any, name: str) -> Any:
    """The value of `value[index]`.

    `index` is a tuple if the subscript has a comma. `name` is what the expression calls `value`.
    """
    if isinstance(value, Array):
        return _indexed(value, index if isinstance(index, tuple) else (index,))
    if isinstance(value, Lookup):
        return value.entry(index)
    if isinstance(value, Groups):
        return value.text(index)
    if isinstance(value, Series):
        return _element(list(require_no_gaps(value)), index)
    if isinstance(value, str | list | tuple | range):
        return _element(value, index)
    if isinstance(value, Leaves):
        return looked_up(name, value, key_text(name, index))
    raise FunctionError(f"{told(value)} has no elements")


def key_text(name: str, index: Any) -> str:
    """The key in `name[key]`. Raises FunctionError if it is not text."""
    if not isinstance(index, str):
        raise FunctionError(f"the key in `{name}[…]` has to be text, not {told(index)}")
    return index


def _indexed(array: Array, items: Sequence[Any]) -> Array:
    return applied(Index(tuple(_index_item(item) for item in items)), [array])


def _index_item(item: Any) -> Any:
    if isinstance(item, slice):
        return (_slice_bound(item.start), _slice_bound(item.stop), _slice_bound(item.step))
    if item is None or isinstance(item, EllipsisType) or type(item) is int:
        return item
    hint = "take(x, [0, 2], axis) takes several elements." if is_list(item) else None
    raise FunctionError(f"an array is not indexed with {told(item)}", hint=hint)


def _slice_bound(bound: Any) -> int | None:
    if bound is None or type(bound) is int:
        return bound
    raise FunctionError(f"the bounds of a slice have to be integers, not {told(bound)}")


def _element(values: Any, index: Any) -> Any:
    if isinstance(index, slice):
        if index.step == 0:
            raise FunctionError("the step of a slice cannot be 0")
        return values[slice(*map(_slice_bound, (index.start, index.stop, index.step)))]
    if type(index) is not int:
        raise FunctionError(f"{told(values)} is indexed with an integer, not {told(index)}")
    if not -len(values) <= index < len(values):
        raise FunctionError(f"index {index} is out of bounds for {told(values)}")
    return values[index]


ATTRIBUTES: Mapping[str, Callable[[Array], Any]] = {
    "T": lambda array: applied(Transpose(), [array]),
    "shape": lambda array: array.spec.shape,
    "dtype": lambda array: array.dtype.name,
    "ndim": lambda array: array.spec.ndim,
    "size": lambda array: array.spec.size,
}

OF_VALUES = frozenset({"T"})
"""Attributes that need values. All others are known for leaves that are only listed."""


def attribute(value: Any, name: str) -> Any:
    """The value of `value.name`. Raises FunctionError for anything but an array."""
    if not isinstance(value, Array):
        hint = series_hint(value) and "xs[0] is the first of them."
        raise FunctionError(f"`.{name}` is for arrays, not {told(value)}", hint=hint)
    return ATTRIBUTES[name](value)
