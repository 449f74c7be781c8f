"""Sums of products against NumPy's `einsum`, in one block of the result and in several."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions import products
from ckpt_surgery.functions.products import contraction, summed_products
from tests.support.arrays import numbers
from tests.support.comparing import same


@pytest.mark.parametrize("elements", [1, 5, 1 << 15])
def test_leading_axes_stay_and_the_others_are_summed(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers("float64[3,1,4,2]", 1), numbers("float64[1,5,4,1]", 2)
    whole = summed_products("einsum", [a, b], (3, 5), Region.whole((3, 5)))
    np.testing.assert_allclose(whole, np.einsum("ijkl,ijkl->ij", *np.broadcast_arrays(a, b)), rtol=1e-13)
    monkeypatch.setattr(products, "_BLOCK_ELEMENTS", elements)
    assert same(summed_products("einsum", [a, b], (3, 5), Region.whole((3, 5))), whole)


def test_the_index_in_the_message_is_that_of_the_whole_result() -> None:
    large = np.array([[1, 1], [2**62, 2**62]])
    with pytest.raises(DataError, match=rf"`@` at \[8\] is {2**63}, out of range of int64"):
        summed_products("@", [large, np.ones((1, 2), np.int64)], (2,), Region((7,), (9,)))


def test_the_dtype_of_sums_of_products() -> None:
    int8, uint64, boolean, bfloat16 = (
        numbers(f"{n}[1]").dtype for n in ("int8", "uint64", "bool", "bfloat16")
    )
    assert contraction([int8, int8], "@") == np.int64
    assert contraction([uint64, uint64], "@") == np.uint64
    assert contraction([bfloat16, int8], "@") == np.float32
    assert contraction([boolean, boolean], "@") == np.bool_
