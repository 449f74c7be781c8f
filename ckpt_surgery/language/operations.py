"""What operators, subscripts and calls do to the values of an expression.

Arrays become nodes of a tree; plain numbers and strings are computed here and now, within bounds.
Raises FunctionError throughout: whoever knows the column adds it.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from types import EllipsisType
from typing import Any

from ckpt_surgery.core.errors import FunctionError, SurgeryError
from ckpt_surgery.functions.base import Function, Plain
from ckpt_surgery.functions.contractions import Matmul
from ckpt_surgery.functions.indexing import Index
from ckpt_surgery.functions.layout import Transpose
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.graph.binding import bind
from ckpt_surgery.graph.nodes import Apply, Array, Series
from ckpt_surgery.language.scope import Groups, Lookup, Scope, looked_up

MAX_BITS = 128
"""Of an integer that an expression computes."""
MAX_STRING = 1 << 16
MAX_LIST = 1_000_000
"""Values of a list, and of all lists in a list."""

Number = bool | int | float


def told(value: object) -> str:
    """A value in words, for messages."""
    if isinstance(value, Array):
        return f"an array {value.spec}"
    if isinstance(value, Series):
        return f"a list of {len(value.items)} arrays"
    if isinstance(value, Lookup):
        return value.told
    if isinstance(value, Groups):
        return "the groups of the match"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return f"the number {value!r}"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:37] + '...'!r}"
    if isinstance(value, list | tuple | range):
        return f"a list of {len(value)} values"
    if isinstance(value, slice | EllipsisType):
        return "a slice"
    return "a source" if hasattr(value, "lookup") else "the hooks"  # which are all that is left


def bounded(value: Any) -> Any:
    """The value, if it is of a size that a recipe may compute."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise FunctionError(f"the integer is too large: {value.bit_length()} bits, the limit is {MAX_BITS}")
    if isinstance(value, str) and len(value) > MAX_STRING:
        raise FunctionError(f"the text is too long: {len(value)} characters, the limit is {MAX_STRING}")
    if isinstance(value, list | tuple) and len(value) > MAX_LIST:
        raise FunctionError(f"the list is too long: {len(value)} values, the limit is {MAX_LIST}")
    return value


def listed(values: Iterable[Any]) -> list[Any]:
    """The values of a list or of a call, one by one, so that many long lists are never held together."""
    held: list[Any] = []
    size = 0
    for value in values:
        if isinstance(value, list | tuple):
            size += len(value)
            if size > MAX_LIST:
                raise FunctionError(f"the lists are too long together; the limit is {MAX_LIST} values")
        held.append(value)
    return held


def applied(function: Function, inputs: Sequence[Array]) -> Array:
    """A function of arrays as an array that is not computed yet; its shapes are checked here."""
    nodes = tuple(array.settled() if function.exact_inputs else array.node for array in inputs)
    node = Apply(function, nodes)
    dtype = node.spec.dtype
    return Array(node, function.declared_dtype([array.dtype for array in inputs]) if inputs else dtype)


# --- operators --------------------------------------------------------------------------------

_PLAIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "&": operator.and_,
    "|": operator.or_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def binary(symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right`: lazy where one of them is an array."""
    if isinstance(left, Array) or isinstance(right, Array):
        return _array_binary(symbol, left, right)
    if isinstance(left, Number) and isinstance(right, Number):
        return _number_binary(symbol, left, right)
    same = (isinstance(left, str) and isinstance(right, str)) or (_is_list(left) and _is_list(right))
    if same and symbol == "+":
        return bounded(left + right if isinstance(left, str) else [*left, *right])
    raise FunctionError(
        f"`{symbol}` does not take {told(left)} and {told(right)}", hint=_text_hint(left, right)
    )


def _array_binary(symbol: str, left: Any, right: Any) -> Array:
    for side in (left, right):
        if not isinstance(side, Array | Number):
            raise FunctionError(
                f"`{symbol}` does not take an array and {told(side)}", hint=_series_hint(side)
            )
    inputs = [side for side in (left, right) if isinstance(side, Array)]
    if symbol == "@":
        if len(inputs) < 2:
            raise FunctionError("`@` takes two arrays, not a number")
        return applied(Matmul(), inputs)
    numbers = [None if isinstance(side, Array) else bounded(side) for side in (left, right)]
    return applied(Binary(symbol, *numbers), inputs)


def _number_binary(symbol: str, left: Number, right: Number) -> Number:
    try:
        result = _power(left, right) if symbol == "**" else _PLAIN[symbol](left, right)
    except ZeroDivisionError:
        raise FunctionError(f"{left!r} {symbol} {right!r} divides by zero") from None
    except (KeyError, TypeError):
        raise FunctionError(f"`{symbol}` does not take {told(left)} and {told(right)}") from None
    except OverflowError:
        raise FunctionError(f"{left!r} {symbol} {right!r} is beyond what a float holds") from None
    if not isinstance(result, Number):
        raise FunctionError(f"{left!r} {symbol} {right!r} is not a real number")
    return bounded(result)  # type: ignore[no-any-return]


def _power(base: Number, exponent: Number) -> Any:
    """Bounded before it is computed: the size of the result is known from the sizes of both."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and base.bit_length() * abs(exponent) > 2 * MAX_BITS
    ):
        raise FunctionError(f"{base!r} ** {exponent!r} is too large: the limit is {MAX_BITS} bits")
    return base**exponent


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | range)


def _text_hint(left: object, right: object) -> str | None:
    if {isinstance(left, str), isinstance(right, str)} != {True, False}:
        return _series_hint(left) or _series_hint(right)
    return "A group of the regular expression is text: int(…) makes a number of it, str(…) the reverse."


def _series_hint(value: object) -> str | None:
    return (
        "stack(xs), concat(xs), mean(xs) or sum(xs) make one array of it."
        if isinstance(value, Series)
        else None
    )


def compared(symbol: str, left: Any, right: Any) -> Any:
    """`left symbol right` for comparisons, `in` and `not in`."""
    if symbol in ("in", "not in"):
        return _contained(left, right) == (symbol == "in")
    if isinstance(left, Array) or isinstance(right, Array):
        return _array_binary(symbol, left, right)
    if _comparable(left, right, ordered=symbol not in ("==", "!=")):
        return _PLAIN[symbol](_as_list(left), _as_list(right))
    raise FunctionError(
        f"`{symbol}` cannot compare {told(left)} with {told(right)}", hint=_text_hint(left, right)
    )


def _comparable(left: object, right: object, ordered: bool) -> bool:
    """Text with text, numbers with numbers, lists with lists: another comparison is always a mistake."""
    if left is None or right is None:
        return not ordered
    return any(
        isinstance(left, kinds) and isinstance(right, kinds)
        for kinds in ((str,), (bool, int, float), (list, tuple, range))
    )


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | range) else value


def _contained(item: Any, container: Any) -> bool:
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    if isinstance(container, Lookup) and isinstance(item, str | int):
        return container.has(item)
    if not _is_list(container) or isinstance(item, Array):
        raise FunctionError(f"`in` cannot look for {told(item)} in {told(container)}")
    candidates = [other for other in container if _comparable(item, other, ordered=False)]
    if len(container) and not candidates:
        raise FunctionError(
            f"`in` looks for {told(item)} among {told(container[0])} and the like",
            hint=_text_hint(item, container[0]),
        )
    return any(_as_list(item) == _as_list(other) for other in candidates)


def unary(symbol: str, value: Any) -> Any:
    """`-x`, `+x`, `~x`."""
    if isinstance(value, Array):
        return value if symbol == "+" else applied(Unary("neg" if symbol == "-" else "not"), [value])
    if symbol == "~" and isinstance(value, bool):
        return not value
    if symbol != "~" and isinstance(value, Number):
        return bounded(-value if symbol == "-" else +value)
    raise FunctionError(f"`{symbol}` does not take {told(value)}")


def truth(value: Any) -> bool:
    """Whether a condition holds. An array has no single truth value."""
    if isinstance(value, Array):
        raise FunctionError(
            f"{told(value)} is neither true nor false",
            hint="For conditions on elements there are where(…), `&` and `|`.",
        )
    if isinstance(value, bool | int | float | str | list | tuple | range) or value is None:
        return bool(value)
    raise FunctionError(f"{told(value)} is neither true nor false")


# --- subscripts and attributes ----------------------------------------------------------------


def subscripted(value: Any, index: Any, name: str) -> Any:
    """`value[index]`; `index` is a tuple where there was a comma. `name` is what `value` is called."""
    if isinstance(value, Array):
        return _indexed(value, index if isinstance(index, tuple) else (index,))
    if isinstance(value, Lookup):
        return value.entry(index)
    if isinstance(value, Groups):
        return value.text(index)
    if isinstance(value, Series):
        return _element(list(gathered(value)), index)
    if isinstance(value, str | list | tuple | range):
        return _element(value, index)
    if hasattr(value, "lookup"):
        return looked_up(name, value, key_text(name, index))
    raise FunctionError(f"{told(value)} has no elements")


def key_text(name: str, index: Any) -> str:
    """The key in `name[key]`. Raises FunctionError where it is no text."""
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
    hint = "take(x, [0, 2], axis) takes several." if _is_list(item) else None
    raise FunctionError(f"an array is not indexed with {told(item)}", hint=hint)


def _slice_bound(bound: Any) -> int | None:
    if bound is None or type(bound) is int:
        return bound
    raise FunctionError(f"the bounds of a slice have to be integers, not {told(bound)}")


def _element(values: Any, index: Any) -> Any:
    if isinstance(index, slice):
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
"""Attributes that are values themselves; all others are known of a leaf that is only listed."""


def attribute(value: Any, name: str) -> Any:
    """`value.name`, of arrays only."""
    if not isinstance(value, Array):
        hint = _series_hint(value) and "xs[0] is the first of them."
        raise FunctionError(f"`.{name}` is for arrays, not {told(value)}", hint=hint)
    return ATTRIBUTES[name](value)


# --- calls ------------------------------------------------------------------------------------


def gathered(series: Series) -> tuple[Array, ...]:
    """The arrays of `xs`, of which none may be missing."""
    if series.complete:
        return series.items
    assert series.places is not None
    missing = next(i for i, place in enumerate((*series.places, -1)) if i != place)
    raise FunctionError(
        f"there is no leaf at place {missing}; `by` gives {_shortened(series.places)}",
        hint="If that is meant, say what stands in the gaps: stack(xs, fill=0.0).",
    )


def _shortened(places: Sequence[int]) -> str:
    few = ", ".join(map(str, places[:8]))
    return few if len(places) <= 8 else f"{few}, … {places[-1]}"


def called(
    function: type[Function] | Plain, arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope
) -> Any:
    """The value of a call."""
    if isinstance(function, type):
        return _array_call(function, arguments, keywords, scope)
    return _plain_call(function, arguments, keywords)


def _array_call(
    cls: type[Function], arguments: Sequence[Any], keywords: Mapping[str, Any], scope: Scope
) -> Any:
    first = arguments[0] if arguments else None
    if isinstance(first, Series) and "places" in cls.context:
        series, given = first, [list(first.items), *map(_argument, arguments[1:])]
    else:
        series, given = None, [_argument(value) for value in arguments]
    context = {"leaf_key": scope.leaf_key, "places": None if series is None else series.places}
    bound = bind(cls, given, {k: _argument(v) for k, v in keywords.items()}, _is_array, context)
    if series is not None and all(getattr(f, "fill", None) is None for f in bound.functions):
        gathered(series)
    if bound.constant is not None:
        return bounded(bound.constant)
    results = [applied(f, bound.inputs) for f in bound.functions]
    return results if bound.listed else results[0]


def _is_array(value: object) -> bool:
    return isinstance(value, Array)


def _argument(value: Any) -> Any:
    """What a function is given for a value: `xs` is a list of arrays, a range a list of numbers."""
    if isinstance(value, Series):
        return list(gathered(value))
    if isinstance(value, list | tuple):
        return type(value)(map(_argument, value))
    if isinstance(value, Array | Number | str | range) or value is None:
        return value
    if isinstance(value, Lookup) and isinstance(value, Sized):
        return value  # part of a config, for `len`
    raise FunctionError(f"{told(value)} cannot be an argument")


def _plain_call(function: Plain, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    given = [_argument(value) for value in arguments]
    named = {name: _argument(value) for name, value in keywords.items()}
    for value in (*given, *named.values()):
        if isinstance(value, Array):
            name = getattr(function, "expression_name", "")
            raise FunctionError(f"`{name}` takes text, numbers and lists, not {told(value)}")
    try:
        return bounded(function(*given, **named))
    except SurgeryError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise FunctionError(str(error)) from None


# --- f-strings --------------------------------------------------------------------------------

_SPECIFICATION = re.compile(r"(?:[^{}]?[<>=^])?[-+ ]?#?0?(\d{1,3})?[,_]?(?:\.\d{1,2})?[bdeEfFgGosxX%]?")


def formatted(value: Any, specification: str) -> str:
    """`f'{value:specification}'` of text and numbers; widths have three digits at most."""
    if not isinstance(value, str | Number):
        raise FunctionError(f"{told(value)} cannot be part of a text")
    if isinstance(value, float) and not math.isfinite(value):
        raise FunctionError(f"{value} cannot be part of a text")
    if not _SPECIFICATION.fullmatch(specification):
        raise FunctionError(f"the format {specification!r} is not accepted")
    try:
        return format(value, specification)
    except ValueError as error:
        raise FunctionError(f"the format {specification!r} does not fit {told(value)}: {error}") from None
