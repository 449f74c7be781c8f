"""Matrix products and `einsum` against NumPy, and what they refuse."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import DataError, FunctionError
from ckpt_surgery.functions import contractions
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.contractions import Einsum, matmul, product, summed_products
from tests.support.arrays import numbers
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.lazy_arrays import declared_by, lazy

F32, BF16, INT8, INT64, F64 = map(dtype_named, ("float32", "bfloat16", "int8", "int64", "float64"))


MATRICES = [
    ("float64[3,4]", "float64[4,5]"),
    ("float64[4]", "float64[4,5]"),
    ("float64[3,4]", "float64[4]"),
    ("float64[2,1,3,4]", "float64[7,4,5]"),
    ("float64[6,3,4]", "float64[4]"),
    ("float64[3,0]", "float64[0,5]"),
    ("complex128[3,4]", "complex128[4,5]"),
    ("bool[3,4]", "bool[4,5]"),
]


@pytest.mark.parametrize("texts", MATRICES, ids=str)
def test_matrix_products_are_numpys(texts: tuple[str, str]) -> None:
    a, b = (numbers(text, seed) for seed, text in enumerate(texts))
    found, expected = evaluate(product(a.ndim, b.ndim), [a, b]), np.asarray(a @ b)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


def test_a_product_too_large_for_one_block() -> None:
    a, b = numbers("float64[300,5]", 1), numbers("float64[5,400]", 2)
    np.testing.assert_allclose(evaluate(product(2, 2), [a, b]), a @ b, rtol=1e-12, atol=1e-14)
    batch = numbers("float64[50,40,3]", 1), numbers("float64[50,3,41]", 2)
    np.testing.assert_allclose(evaluate(product(3, 3), batch), batch[0] @ batch[1], rtol=1e-12, atol=1e-14)


def test_a_product_reads_the_rows_and_columns_of_its_region() -> None:
    ins = [ArraySpec((100, 8), F32), ArraySpec((8, 200), F32)]
    needed = product(2, 2).needs(Region((10, 20), (11, 40)), ins)
    assert needed == [(0, Region((10, 0), (11, 8))), (1, Region((0, 20), (8, 40)))]


def test_products_of_narrow_types() -> None:
    ones = np.full((1, 200), 1, INT8)
    assert evaluate(product(2, 2), [ones, ones.T]).tolist() == [[200]]  # beyond int8, so summed wider
    assert declared_by(product(2, 2), INT8, INT8) == INT8
    spec = ArraySpec((2, 2), BF16)
    assert product(2, 2).infer([spec, spec]).dtype == F32
    assert declared_by(product(2, 2), BF16, F32) == BF16


SUBSCRIPTS = [
    ("ij,jk->ik", "float64[2,3]", "float64[3,4]"),
    ("ba,b", "float64[2,3]", "float64[2]"),
    ("bhqd, bhkd -> bhqk", "float64[2,3,4,5]", "float64[2,3,6,5]"),
    ("ij->", "float64[2,3]"),
    ("ii->i", "float64[3,3]"),
    ("ii,i->i", "float64[1,1]", "float64[4]"),  # between arrays, a length of 1 goes with any
    ("i,j,k->kij", "float64[2]", "float64[3]", "float64[4]"),
    ("iij,jk->ik", "float64[3,3,2]", "float64[2,4]"),
    (",i->i", "float64[]", "float64[3]"),
    ("Ab,bA->A", "float64[2,3]", "float64[3,2]"),
]


@pytest.mark.parametrize("case", SUBSCRIPTS, ids=lambda case: str(case[0]))
def test_einsum_is_numpys(case: tuple[str, ...]) -> None:
    subscripts, *texts = case
    arrays = [numbers(text, seed) for seed, text in enumerate(texts)]
    found, expected = evaluate(Einsum(subscripts), arrays), np.asarray(np.einsum(subscripts, *arrays))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


REFUSED: list[tuple[Function, tuple[str, ...], str]] = [
    (Einsum("ij,jk"), ("float32[3,4]",), "`einsum`: 'ij,jk' is for 2 arrays, 1 given"),
    (Einsum("ij->i"), ("float32[3]",), "`einsum`: `ij` is for 2 axes, the array is float32[3]"),
    (Einsum("ij,jk"), ("float32[3,4]", "float32[3,4]"), "`j` of 'ij,jk' has the lengths 4 and 3"),
    (Einsum("ii->i"), ("float32[1,4]",), "`i` of 'ii->i' has the lengths 1 and 4, in float32[1,4]"),
    (Einsum("iji,i->j"), ("float32[4,2,1]", "float32[4]"), "`i` of 'iji,i->j' has the lengths 4 and 1"),
    (Einsum("...i->i"), ("float32[3,4]",), "can have only letters, commas and one `->`"),
    (Einsum("i->ii"), ("float32[3]",), "the result of 'i->ii' should have letters of the inputs, each"),
    (Einsum("i->k"), ("float32[3]",), "should have letters of the inputs, each at most once"),
]


def test_matrices_that_do_not_fit() -> None:
    for shapes, message in (
        (((3, 1), (4, 3)), "`@`: the last axis of float32[3,1] does not fit float32[4,3]"),
        (((), (3,)), "`@` needs arrays with axes"),
        (((2, 3, 4), (5, 4, 3)), "`@`: shapes [2] and [5] do not broadcast"),
    ):
        with pytest.raises(FunctionError) as caught:
            matmul(*map(lazy, shapes))
        assert message in str(caught.value)


@pytest.mark.parametrize("elements", [1, 5, 1 << 15])
def test_leading_axes_stay_and_the_others_are_summed(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers("float64[3,1,4,2]", 1), numbers("float64[1,5,4,1]", 2)
    whole = summed_products("einsum", [a, b], (3, 5), Region.whole((3, 5)))
    np.testing.assert_allclose(whole, np.einsum("ijkl,ijkl->ij", *np.broadcast_arrays(a, b)), rtol=1e-13)
    monkeypatch.setattr(contractions, "_BLOCK_ELEMENTS", elements)
    assert same(summed_products("einsum", [a, b], (3, 5), Region.whole((3, 5))), whole)


def test_the_index_in_the_message_is_that_of_the_whole_result() -> None:
    large = np.array([[1, 1], [2**62, 2**62]])
    with pytest.raises(DataError, match=rf"`@` at \[8\] is {2**63}, out of range of int64"):
        summed_products("@", [large, np.ones((1, 2), np.int64)], (2,), Region((7,), (9,)))


def test_sums_that_fit_are_not_computed_with_pythons_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.ones((2, 9), np.int64), np.ones((9, 2), np.int64)
    a[:, 0], b[1] = 2**52, 2**12  # by the largest of each, a sum could be out of range
    monkeypatch.delattr(contractions, "check_exact")
    assert same(evaluate(product(2, 2), [a, b]), a @ b)
