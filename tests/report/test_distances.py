"""Tolerances, which mean what they mean to NumPy."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.report.distances import EXACT, Tolerance, gap

VALUES = [0.0, 1.0, 1.0 + 1e-7, 1.1, -1.0, 1e30, np.inf, -np.inf, np.nan, 5e-324]


@pytest.mark.parametrize("tolerance", [EXACT, Tolerance(1e-5, 0), Tolerance(0, 1e-6), Tolerance(0.2, 0.05)])
def test_it_is_numpys_allclose(tolerance):
    for x in VALUES:
        for y in VALUES:
            same = gap(np.array([x]), np.array([y]), tolerance).same
            wanted = np.allclose(x, y, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
            assert same == wanted, (x, y)


def test_one_element_outside_is_enough_and_rtol_is_relative_to_b():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.5])
    assert not gap(a, b, Tolerance(0, 0.4)).same
    within = gap(a, b, Tolerance(0, 0.5))
    assert (within.same, within.max_abs) == (True, 0.5)
    small, large = np.array([1.0]), np.array([2.0])
    assert gap(small, large, Tolerance(0.5, 0)).same
    assert not gap(large, small, Tolerance(0.5, 0)).same


def test_other_dtypes():
    a = np.array([1, 2, 2**62], np.int64)
    assert gap(a, a + 1, Tolerance(0, 1)).same
    assert not gap(a, a + 2, Tolerance(0, 1)).same
    z = np.array([1 + 1j])
    assert gap(z, z + 0.1j, Tolerance(0, 0.11)).same
    assert not gap(z, z + 0.1j, Tolerance(0, 0.09)).same
    rounded = np.array([1.0001], np.float32)
    assert gap(rounded, rounded.astype(ml_dtypes.bfloat16), Tolerance(1e-2, 0)).same
