"""Numbers that follow from other numbers, and conditions on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.inference.drafts.indices import Columns, condition, expression_of

N = {"n": [0, 1, 2, 3, 4, 5]}
NM = {"n": [0, 0, 0, 1, 1, 1], "m": [0, 1, 2, 0, 1, 2]}
NME = {"n": [0] * 4 + [1] * 4, "m": [0, 0, 1, 1] * 2, "e": [0, 1] * 4}


@pytest.mark.parametrize(
    ("values", "columns", "wanted"),
    [
        ([7, 7, 7, 7, 7, 7], N, "7"),
        ([0, 1, 2, 3, 4, 5], N, "n"),
        ([3, 4, 5, 6, 7, 8], N, "n + 3"),
        ([-1, 0, 1, 2, 3, 4], N, "n - 1"),
        ([5, 4, 3, 2, 1, 0], N, "5 - n"),
        ([1, 4, 7, 10, 13, 16], N, "n * 3 + 1"),
        ([0, 0, 1, 1, 2, 2], N, "n // 2"),
        ([1, 1, 1, 2, 2, 2], N, "n // 3 + 1"),
        ([0, 1, 2, 0, 1, 2], N, "n % 3"),
        ([0, 1, 2, 3, 4, 5], NM, "n * 3 + m"),
        ([2, 3, 4, 5, 6, 7], NM, "n * 3 + 2 + m"),
        ([0, 1, 0, 1, 0, 1, 0, 1], NME, "e"),
        ([0, 1, 2, 3, 4, 5, 6, 7], NME, "n * 4 + e + m * 2"),
        ([3, 1, 2, 0, 5, 4], N, None),
        ([0, 5], {"n": [3, 8]}, "n - 3"),
        ([1, 0], {"n": [3, 7]}, None),  # two numbers have a remainder by accident
        ([0, 1], {"n": [2, 2]}, None),  # one number in two ways
        ([], {}, None),
    ],
)
def test_expressions(values: list[int], columns: Columns, wanted: str | None) -> None:
    expression = expression_of(values, columns)
    if wanted is None or wanted.count("*") < 2:
        assert expression == wanted
    if expression is not None:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        assert [eval(expression, dict(row)) for row in rows] == values


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(-3, 30)), min_size=1, max_size=12)
)
def test_expressions_hold_in_every_row(rows: list[tuple[int, int, int]]) -> None:
    a, b, values = (list(column) for column in zip(*rows, strict=True))
    expression = expression_of(values, {"a": a, "b": b})
    if expression is not None:
        assert [eval(expression, {"a": x, "b": y}) for x, y, _ in rows] == values


@pytest.mark.parametrize(
    ("wanted", "others", "text"),
    [
        ([0, 1, 2], [3, 4], "n < 3"),
        ([3], [4, 5], "n == 3"),
        ([3, 4], [0, 1], "n >= 3"),
        ([0, 2, 4], [1, 3, 5], "n % 2 == 0"),
        ([2, 5, 8], [0, 1, 3, 4, 6, 7, 9], "n % 3 == 2"),
        ([2, 3, 4], [0, 1, 9], "2 <= n < 5"),
        ([0, 1, 3], [2, 5], "n in [0, 1, 3]"),
        ([*range(0, 20, 3), 1, 22, 23], [2, 7], "n not in [2, 7]"),
        ([0, 1], [1, 2], None),  # another number tells them apart, or none
    ],
)
def test_conditions(wanted: list[int], others: list[int], text: str | None) -> None:
    assert condition(wanted, others, "n") == text
    if text is not None:
        assert all(eval(text, {"n": n}) for n in wanted)
        assert not any(eval(text, {"n": n}) for n in others)
