"""Karcher means of directions, by what makes them means, and where there is none."""

import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.dtypes import dtype_named
from ckpt_surgery.core.errors import FunctionError
from ckpt_surgery.functions.reductions import KarcherWeights
from tests.support.evaluation import evaluate


def mean_of(vectors: np.ndarray, *settings: float) -> np.ndarray:
    """The mean of the rows."""
    lengths = np.linalg.norm(vectors, axis=1)
    units = vectors / np.where(lengths == 0, 1, lengths)[:, None]
    weights = evaluate(KarcherWeights(*settings), [units @ units.T, lengths])  # type: ignore[arg-type]
    return np.asarray(weights @ vectors)


def test_the_ways_to_all_vectors_add_up_to_nothing() -> None:
    vectors = np.random.default_rng(3).normal(size=(5, 7)) + 1
    found = mean_of(vectors, 200, 1e-12)
    size = np.linalg.norm(found)
    lengths = np.linalg.norm(vectors, axis=1)
    assert size == pytest.approx(lengths.mean(), rel=1e-9)
    point = found / size
    cosines = vectors @ point / lengths
    ways = (vectors / lengths[:, None] - cosines[:, None] * point) * (
        np.arccos(cosines) / np.sqrt(1 - cosines**2)
    )[:, None]
    np.testing.assert_allclose(ways.sum(axis=0), 0, atol=1e-9)


def test_vectors_without_a_mean() -> None:
    for vectors, wanted in (
        ([[0.0, 0], [3, 4]], [1.5, 2]),  # what has no length has no direction, and counts in the lengths
        ([[2.0, 0], [-2, 0]], [2, 0]),  # opposite vectors: the first
        ([[0.0, 0], [0, 0]], [0, 0]),
        ([[3.0, 4]], [3, 4]),
    ):
        np.testing.assert_allclose(mean_of(np.array(vectors)), wanted, atol=1e-12)


def test_what_is_refused() -> None:
    for shapes in (((2, 3), (2,)), ((2, 2), (3,)), ((2, 2), (2, 1)), ((0, 0), (0,))):
        with pytest.raises(FunctionError, match="needs floats"):
            KarcherWeights().infer([ArraySpec(shape, dtype_named("float32")) for shape in shapes])
    with pytest.raises(FunctionError, match="`max_iter` should be from 0 to 10000, not 10001"):
        KarcherWeights(10_001)
