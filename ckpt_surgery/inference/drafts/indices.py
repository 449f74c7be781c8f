"""Numbers that follow from others, as expressions: `int(n) + 1`, `int(n) // 2`, `int(n) * 8 + int(m)`."""

from collections.abc import Iterator, Mapping, Sequence

Column = Sequence[int]
Columns = Mapping[str, Column]
"""The values of expressions such as `int(n)` or `i`, row by row."""

_MOST_DIVISORS = 64
_FEWEST_DIVIDED = 3
"""Fewer distinct numbers always fit some quotient or remainder, which would explain nothing."""


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
    """`a * 8 + b`: a multiple of one column, plus other columns."""
    for last, column in columns.items() if len(columns) > 1 else ():
        others = {name: other for name, other in columns.items() if name != last}
        rest = [value - number for value, number in zip(values, column, strict=True)]
        multiples = (_linear(rest, name, other) for name, other in others.items())
        summand = next(filter(None, multiples), None) or _sum(rest, others)
        if summand is not None:
            return f"{summand} + {last}"
    return None


def _linear(values: Column, name: str, column: Column) -> str | None:
    """`name * factor + offset`."""
    pairs = dict(zip(column, values, strict=True))
    if len(pairs) < 2 or any(pairs[c] != v for c, v in zip(column, values, strict=True)):
        return None
    (c0, v0), (c1, v1), *_ = pairs.items()
    factor, odd = divmod(v1 - v0, c1 - c0)
    offset = v0 - factor * c0
    if odd or factor == 0 or any(c * factor + offset != v for c, v in pairs.items()):
        return None
    if factor == -1:
        return f"{offset} - {name}"
    return plus(name if factor == 1 else f"{name} * {factor}", offset)


def plus(text: str, offset: int) -> str:
    """An expression plus a number."""
    return text if offset == 0 else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"


def _divided(values: Column, name: str, column: Column) -> str | None:
    """`name // k + offset`, or `name % k + offset`."""
    pairs = dict(zip(column, values, strict=True))
    if any(pairs[c] != v for c, v in zip(column, values, strict=True)):
        return None
    if len(pairs) < _FEWEST_DIVIDED or min(pairs) < 0:
        return None
    for k in _divisors(pairs):
        for sign, results in (("//", {c: c // k for c in pairs}), ("%", {c: c % k for c in pairs})):
            offsets = {v - results[c] for c, v in pairs.items()}
            if len(offsets) == 1:
                return plus(f"{name} {sign} {k}", offsets.pop())
    return None


def _divisors(pairs: Mapping[int, int]) -> Iterator[int]:
    """Divisors worth trying: small ones, and the range of the values."""
    most = max(pairs)
    yield from range(2, min(most, _MOST_DIVISORS) + 1)
    period = max(pairs.values()) - min(pairs.values()) + 1
    if _MOST_DIVISORS < period <= most:
        yield period


def condition(wanted: Sequence[int], others: Sequence[int], name: str, ranges: bool = False) -> str | None:
    """A condition that holds for all `wanted` numbers and for none of the others; None where there is none.

    `name`: the number as an expression, such as `int(n)`. `ranges`: only try ranges, not remainders or lists,
    as for names such as `w1` and `w3`, where being odd means nothing.
    """
    low, high = min(wanted), max(wanted)
    single = f"{name} == {low}" if low == high else None
    if all(other > high for other in others):
        return single or f"{name} < {high + 1}"
    if all(other < low for other in others):
        return single or f"{name} >= {low}"
    for k in range(2, 2 if ranges else 9):
        remainders = {number % k for number in wanted}
        if len(remainders) == 1 and not remainders & {number % k for number in others}:
            return f"{name} % {k} == {remainders.pop()}"
    if all(other < low or other > high for other in others):
        return single or f"{low} <= {name} < {high + 1}"
    if ranges:
        return None
    few = sorted(set(wanted))
    if len(few) <= 8 and not set(few) & set(others):
        return f"{name} in {few}"
    excluded = sorted(set(others))
    if len(excluded) <= 8 and not set(wanted) & set(excluded):
        return f"{name} not in {excluded}"
    return None
