"""Integer arithmetic against Python's integers: exact, or an error that names the values that met."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.core.dtypes import dtype_named, limits
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions import contractions
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.contractions import Einsum, product
from ckpt_surgery.functions.dtypes import Rounded
from ckpt_surgery.functions.operators import Binary, Unary
from ckpt_surgery.functions.reductions import ListReduction, Mean, Sum
from tests.functions.test_operators import OPERATORS
from tests.support.effort import examples
from tests.support.evaluation import evaluate
from tests.support.strategies import integers_of

NAMES = [f"{sign}int{bits}" for bits in (2, 4, 8, 16, 32, 64) for sign in ("", "u")]
MAX64, MIN64, MAXU64 = 2**63 - 1, -(2**63), 2**64 - 1


def of(values: Any, name: str) -> np.ndarray:
    """Python's integers, in lists, as an array."""
    array = np.array(values, object)
    return np.array(array, np.uint64 if array.size and array.min() >= 0 else np.int64).astype(
        dtype_named(name)
    )


def settled(function: Function, arrays: Sequence[np.ndarray], name: str) -> list[int]:
    """The elements of the result as the user has it."""
    return evaluate(Rounded(dtype_named(name)), [evaluate(function, arrays)]).ravel().astype(object).tolist()


def check(function: Function, arrays: Sequence[np.ndarray], name: str, exact: Sequence[int]) -> None:
    """The elements of the result, as the user has it, are exact, or are refused."""
    low, high = limits(dtype_named(name))
    if all(low <= value <= high for value in exact):
        assert settled(function, arrays, name) == exact
    else:
        with pytest.raises(DataError, match="out of range"):
            settled(function, arrays, name)


@pytest.mark.parametrize("op", ["+", "-", "*", "//", "%", "**"])
@examples(60)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_operators_are_pythons_or_refuse(op: str, name: str, data: st.DataObject) -> None:
    """Of two arrays, and of a number of the recipe and an array."""
    lefts = data.draw(st.lists(integers_of(name), min_size=1, max_size=4))
    right = integers_of(name)
    if op in ("//", "%"):
        right = right.filter(bool)
    elif op == "**":
        right = st.integers(0, min(70, int(limits(dtype_named(name))[1])))
    rights = data.draw(st.lists(right, min_size=len(lefts), max_size=len(lefts)))
    exact = [OPERATORS[op](a, b) for a, b in zip(lefts, rights, strict=True)]
    check(Binary(op), [of(lefts, name), of(rights, name)], name, exact)
    if op in ("+", "-", "*"):
        exact = [OPERATORS[op](lefts[0], b) for b in rights]
        check(Binary(op, left=lefts[0]), [of(rights, name)], name, exact)


@examples(200)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_signs_are_pythons_or_refuse(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(integers_of(name), min_size=1, max_size=4))
    check(Unary("abs"), [of(values, name)], name, [*map(abs, values)])
    if not name.startswith("u"):
        check(Unary("neg"), [of(values, name)], name, [-value for value in values])


@examples(200)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_sums_are_exact_or_refuse(name: str, data: st.DataObject) -> None:
    """Over an axis and over a list."""
    rows = data.draw(st.lists(st.lists(integers_of(name), min_size=4, max_size=4), min_size=1, max_size=3))
    array = of(rows, name)
    for function, arrays in ((Sum(1), [array]), (ListReduction("sum"), list(array.T))):
        check(function, arrays, name, [sum(row) for row in rows])


@examples(200)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_products_of_matrices_are_exact_or_refuse(name: str, data: st.DataObject) -> None:
    vectors = st.lists(st.lists(integers_of(name), min_size=3, max_size=3), min_size=1, max_size=2)
    rows, columns = data.draw(vectors, label="rows"), data.draw(vectors, label="columns")
    exact = [sum(map(operator.mul, row, column)) for row in rows for column in columns]
    for function in (product(2, 2), Einsum("ij,jk->ik")):
        check(function, [of(rows, name), of(columns, name).T], name, exact)


SAID: list[tuple[Function, list[tuple[Any, str]], str]] = [
    (
        Binary("+"),
        [([100, -128], "int8"), ([100, -128], "int8")],  # the one that is furthest out
        "`+`: -128 + -128 is out of range of int8, -128 to 127 (2 of 2 values here)\n"
        "  Write cast(…, 'int64') around its operands to compute it in 64 bits.",
    ),
    (Binary("-", left=0), [([0, 1], "uint8")], "`-`: 0 - 1 is out of range of uint8, 0 to 255 (1 of 2"),
    (Binary("*", right=2), [(2**31 - 1, "int32")], "`*`: 2147483647 * 2 is out of range of int32, -214748"),
    (
        Binary("*"),
        [([2**32], "int64"), ([[2**31], [3]], "int64")],
        "`*`: 4294967296 * 2147483648 is out of range of int64, -9223372036854775808 to 9223372036854775807 "
        "(1 of 2 values here)\n"
        "  Write cast(…, 'float64') around its operands to compute it as a float, which rounds.",
    ),
    (Binary("**", right=63), [([-2, 2], "int64")], "`**`: 2 ** 63 is out of range of int64"),
    (Binary("**", right=200), [([10], "uint64")], "`**`: 10 ** 200 is out of range of uint64"),
    (Binary("//"), [([-128], "int8"), ([-1], "int8")], "`//`: -128 // -1 is out of range of int8"),
    (Unary("neg"), [([3, -128], "int8")], "`neg`: -(-128) is out of range of int8, -128 to 127 (1 of 2"),
    (Sum(0), [([[1, 2**62]] * 3, "int64")], f"`sum` at [1] is {3 * 2**62}, out of range of int64, "),
    (Sum(), [([MAXU64, 1], "uint64")], "`sum` is 18446744073709551616, out of range of uint64, 0 to 184467"),
    (ListReduction("sum"), [([0, MAX64], "int64"), ([0, 1], "int64")], f"`sum` at [1] is {2**63}, out of"),
    (product(2, 1), [([[1, 0], [0, 2**62]], "int64"), ([3, 3], "int64")], f"`@` at [1] is {3 * 2**62}, o"),
    (product(1, 1), [([2**40], "int64"), ([2**40], "int64")], f"`@` is {2**80}, out of range of int64"),
    (Einsum("i,i,i->"), [([2**40], "int64")] * 3, f"`einsum` is {2**120}, out"),
    (Einsum("i,j->ij"), [([1, 2**32], "uint64"), ([1, 2**32], "uint64")], f"`einsum` at [1, 1] is {2**64}"),
]


def test_what_is_said_of_a_result_that_does_not_fit() -> None:
    for function, arrays, says in SAID:
        with pytest.raises(DataError) as caught:
            evaluate(function, [of(*array) for array in arrays])
        assert str(caught.value).startswith(says)


CANCELLING: list[tuple[Function, list[tuple[Any, str]], list[int]]] = [
    (Sum(), [([MAX64, MAX64, MIN64, MIN64], "int64")], [-2]),
    (Sum(0), [([[MAX64, 1]] * 3 + [[MIN64, 1]] * 3, "int64")], [-3, 6]),
    (ListReduction("sum"), [(MAX64, "int64"), (5, "int64"), (MIN64, "int64")], [4]),
    (product(1, 1), [([2**62, 2**62, -(2**62)], "int64"), ([3, 1, 4], "int64")], [0]),
    (Einsum("i,i,i->"), [([2**40, -(2**40)], "int64"), ([2**40] * 2, "int64"), ([7, 7], "int64")], [0]),
]


def test_only_the_sum_itself_has_to_fit() -> None:
    for function, arrays, exact in CANCELLING:
        assert evaluate(function, [of(*array) for array in arrays]).ravel().tolist() == exact


def test_a_large_block_is_looked_at_to_its_end() -> None:
    left, right = np.zeros((700, 500), np.int64), np.zeros((700, 500), np.int64)
    left[0, 0], right[1, 1] = MAX64, MAX64  # so that the extremes tell nothing
    assert evaluate(Binary("+"), [left, right]).sum(dtype=object) == 2 * MAX64
    left[699, 499] = right[699, 499] = 2**62
    with pytest.raises(DataError, match=r"4611686018427387904 \+ 4611686018427387904 is .*\(1 of 350,000 v"):
        evaluate(Binary("+"), [left, right])
    with pytest.raises(DataError, match=r"\(1 of 350,000 values here\)"):
        evaluate(Binary("+"), [left[-1:], right[:, -1:]])


def test_long_rows_are_summed_exactly() -> None:
    """In pieces, most of which cannot overflow."""
    row = np.full(200_000, 2**45 + 1, np.int64)
    row[77_777] = MIN64
    assert evaluate(Sum(), [row]).item() == 199_999 * (2**45 + 1) + MIN64
    row[5] = MIN64
    total = 199_998 * (2**45 + 1) + 2 * MIN64
    with pytest.raises(DataError, match=f"`sum` is {total},"):
        evaluate(Sum(), [row])


def test_products_that_cannot_add_up_to_too_much_are_not_computed_in_pythons_integers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the largest of each operand are: it is what meets that counts."""
    monkeypatch.setattr(contractions, "check_exact", lambda *arguments: pytest.fail("computed"))
    large = np.arange(-8, 8).reshape(4, 4) * 2**58 + 1
    unit = np.eye(4, dtype=np.int64)
    assert np.array_equal(evaluate(product(2, 2), [large, unit]), large)


def test_narrow_types_that_are_summed_in_64_bits_keep_all_of_it() -> None:
    assert evaluate(Sum(), [of([2**32 - 1] * 3, "uint32")]).item() == 3 * (2**32 - 1)
    assert (
        evaluate(product(1, 1), [of([-(2**31)] * 2, "int32"), of([1, -(2**31)], "int32")]).item()
        == 2**62 - 2**31
    )


def test_means_do_not_overflow() -> None:
    assert evaluate(Mean(), [of([MAX64] * 4, "int64")]).item() == 2.0**63
    assert evaluate(ListReduction("mean"), [of([MAX64], "int64")] * 4).tolist() == [2.0**63]


def test_a_number_that_the_type_does_not_have_is_refused_before_any_data() -> None:
    with pytest.raises(FunctionError, match="300 is out of range of uint8, 0 to 255"):
        evaluate(Binary("+", right=300), [of([1], "uint8")])
