"""Numbers that follow from others, as expressions: `int(n) + 1`, `int(n) // 2`, `int(n) * 8 + int(m)`."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Column = Sequence[int]
Columns = Mapping[str, Column]
"""The values of expressions such as `int(n)` or `i`, row by row."""

_LARGEST = 1 << 31
"""Larger numbers, whose products could be inexact, are left to tables."""
_MOST_DIVISORS = 64
_FEWEST_DIVIDED = 3
"""Fewer distinct numbers always fit some quotient or remainder, which would explain nothing."""
_LONGEST_LIST = 8
"""Maximum count of numbers that a condition lists."""


def expression_of(values: Column, columns: Columns) -> str | None:
    """The shortest expression in `columns` that gives these values in every row; None if there is none.

    The order of trials: a number, a multiple of a column plus a number, a column's quotient and its
    remainder, a sum of multiples of several columns.
    """
    if len(set(values)) <= 1:
        return str(values[0]) if values else None
    if max(map(max, (values, *columns.values()))) >= _LARGEST:
        return None
    wanted = np.array(values)
    arrays = {name: np.array(column) for name, column in columns.items()}
    several = (few for count in range(2, len(arrays) + 1) for few in itertools.combinations(arrays, count))
    trials = itertools.chain(
        (_sum(wanted, {name: column}) for name, column in arrays.items()),
        (_divided(wanted, name, column) for name, column in arrays.items()),
        (_sum(wanted, {name: arrays[name] for name in few}) for few in several),
    )
    return next(filter(None, trials), None)


def _sum(values: np.ndarray, columns: Mapping[str, np.ndarray]) -> str | None:
    """`a * 8 + b * 4 - 1`: multiples of columns and a number."""
    table = np.stack([*columns.values(), np.ones_like(values)], axis=1)
    factors = np.rint(np.linalg.lstsq(table, values)[0]).astype(int)
    if not np.array_equal(table @ factors, values):
        return None
    text = ""
    terms = zip(factors.tolist(), (*columns, ""), strict=True)
    for factor, name in sorted(terms, key=lambda term: (term[0] < 0, not term[1], -term[0])):
        size = abs(factor)
        text = _plus(text, factor, f"{name} * {size}" if name and size > 1 else name or str(size))
    return text


def _plus(text: str, sign: int, term: str) -> str:
    if sign == 0:
        return text
    if text:
        return f"{text} {'+' if sign > 0 else '-'} {term}"
    return term if sign > 0 else f"-{term}"


def _divided(values: np.ndarray, name: str, column: np.ndarray) -> str | None:
    """`name // k + offset`, or `name % k + offset`."""
    count, period = len(np.unique(column)), int(values.max() - values.min()) + 1
    if count < _FEWEST_DIVIDED:
        return None
    for k in (*range(2, min(int(column.max()), _MOST_DIVISORS) + 1), period, count // period or 1):
        for sign, results in (("//", column // k), ("%", column % k)):
            offset = int(values[0] - results[0])
            if np.array_equal(results + offset, values):
                return _plus(f"{name} {sign} {k}", offset, str(abs(offset)))
    return None


def condition(wanted: Column, others: Column, name: str) -> str | None:
    """A condition that holds for all `wanted` numbers and for none of the others; None where there is none.

    `name`: the number as an expression, such as `int(n)`.
    """
    low, high = min(wanted), max(wanted)
    few, excluded = sorted(set(wanted)), sorted(set(others))
    trials: list[tuple[str, Callable[[int], bool]]] = [
        (f"{name} == {low}", lambda number: number == low),
        (f"{name} < {high + 1}", lambda number: number <= high),
        (f"{name} >= {low}", lambda number: number >= low),
        *((f"{name} % {k} == {low % k}", lambda number, k=k: number % k == low % k) for k in range(2, 9)),
        (f"{low} <= {name} < {high + 1}", lambda number: low <= number <= high),
    ]
    if len(few) <= _LONGEST_LIST:
        trials.append((f"{name} in {few}", few.__contains__))
    if len(excluded) <= _LONGEST_LIST:
        trials.append((f"{name} not in {excluded}", lambda number: number not in excluded))
    held = (text for text, holds in trials if all(map(holds, few)) and not any(map(holds, excluded)))
    return next(held, None)
