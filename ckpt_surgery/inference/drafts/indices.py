"""Numbers that follow from others, as expressions: `int(n) + 1`, `int(n) // 2`, `int(n) * 8 + int(m)`."""

from collections.abc import Mapping, Sequence

Column = Sequence[int]
Columns = Mapping[str, Column]
"""The values of expressions such as `int(n)` or `i`, row by row."""

_MOST_DIVISORS = 64
_FEWEST_DIVIDED = 3
"""Fewer distinct numbers always fit some quotient or remainder, which would explain nothing."""
_LONGEST_LIST = 8
"""Maximum count of numbers that a condition lists."""


def expression_of(values: Column, columns: Columns) -> str | None:
    """The shortest expression in `columns` that gives these values in every row; None if there is none.

    The order of trials: a number, a column, a column plus a number, a multiple of it, its quotient and
    its remainder, a sum of several columns.
    """
    if len(set(values)) <= 1:
        return str(values[0]) if values else None
    for form in (_linear, _divided):
        for name, column in columns.items():
            expression = form(values, name, column)
            if expression is not None:
                return expression
    return _sum(values, columns)


def _sum(values: Column, columns: Columns) -> str | None:
    """`a * 8 + b * 4 + c`: multiples of several columns."""
    factors = {name: _factor(values, name, columns) for name in columns} if len(columns) > 1 else {}
    for last, factor in sorted(factors.items(), key=lambda item: item[1]):
        others = {name: other for name, other in columns.items() if name != last}
        rest = [value - number * factor for value, number in zip(values, columns[last], strict=True)]
        multiples = (_linear(rest, name, other) for name, other in others.items())
        summand = next(filter(None, multiples), None) or _sum(rest, others)
        if factor > 0 and summand is not None:
            return f"{summand} + {last if factor == 1 else f'{last} * {factor}'}"
    return None


def _factor(values: Column, name: str, columns: Columns) -> int:
    """By how much values grow with one column while the others stay as they are; 1 if these never do."""
    first: dict[tuple[int, ...], tuple[int, int]] = {}
    others = zip(*(column for other, column in columns.items() if other != name), strict=True)
    for value, number, rest in zip(values, columns[name], others, strict=True):
        old, old_value = first.setdefault(rest, (number, value))
        if old != number:
            return (value - old_value) // (number - old)
    return 1


def _pairs(values: Column, column: Column) -> dict[int, int]:
    """The value for each number of a column; empty if one number has several values."""
    pairs = dict(zip(column, values, strict=True))
    return pairs if all(pairs[c] == v for c, v in zip(column, values, strict=True)) else {}


def _linear(values: Column, name: str, column: Column) -> str | None:
    """`name * factor + offset`."""
    pairs = _pairs(values, column)
    if len(pairs) < 2:
        return None
    (c0, v0), (c1, v1), *_ = pairs.items()
    factor, odd = divmod(v1 - v0, c1 - c0)
    offset = v0 - factor * c0
    if odd or factor == 0 or any(c * factor + offset != v for c, v in pairs.items()):
        return None
    if factor == -1:
        return f"{offset} - {name}"
    return _plus(name if factor == 1 else f"{name} * {factor}", offset)


def _plus(text: str, offset: int) -> str:
    return text if offset == 0 else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"


def _divided(values: Column, name: str, column: Column) -> str | None:
    """`name // k + offset`, or `name % k + offset`."""
    pairs = _pairs(values, column)
    if len(pairs) < _FEWEST_DIVIDED or min(pairs) < 0:
        return None
    period = max(pairs.values()) - min(pairs.values()) + 1
    for k in (*range(2, min(max(pairs), _MOST_DIVISORS) + 1), period):
        for sign, results in (("//", {c: c // k for c in pairs}), ("%", {c: c % k for c in pairs})):
            offsets = {v - results[c] for c, v in pairs.items()}
            if len(offsets) == 1:
                return _plus(f"{name} {sign} {k}", offsets.pop())
    return None


def condition(
    wanted: Column, others: Column, name: str, remainders: bool = True, lists: bool = True
) -> str | None:
    """A condition that holds for all `wanted` numbers and for none of the others; None where there is none.

    `name`: the number as an expression, such as `int(n)`. `remainders` and `lists`: whether these are tried,
    too, and not ranges alone.
    """
    low, high = min(wanted), max(wanted)
    single = f"{name} == {low}" if low == high else None
    if all(other > high for other in others):
        return single or f"{name} < {high + 1}"
    if all(other < low for other in others):
        return single or f"{name} >= {low}"
    for k in range(2, 9 if remainders else 2):
        left = {number % k for number in wanted}
        if len(left) == 1 and not left & {number % k for number in others}:
            return f"{name} % {k} == {left.pop()}"
    if all(other < low or other > high for other in others):
        return single or f"{low} <= {name} < {high + 1}"
    few, excluded = sorted(set(wanted)), sorted(set(others))
    if not lists or not set(few).isdisjoint(excluded):
        return None
    for word, numbers in (("in", few), ("not in", excluded)):
        if len(numbers) <= _LONGEST_LIST:
            return f"{name} {word} {numbers}"
    return None
