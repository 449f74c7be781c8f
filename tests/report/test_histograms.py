"""Histograms of streams: their counts are those of NumPy, in any order and any pieces."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_surgery.report.histograms import MOST_BINS, NO_VALUES, Histogram, blocks, histogram

NUMBERS = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30)
LARGEST = sys.float_info.max


def test_bins_are_those_of_numpy():
    values = np.random.default_rng(0).normal(size=5000)
    found = histogram(values)
    edges = found.start + found.width * np.arange(len(found.counts) + 1)
    assert found.counts == tuple(np.histogram(values, edges)[0].tolist())
    assert sum(found.counts) == 5000
    assert MOST_BINS // 2 < len(found.counts) <= MOST_BINS


@given(NUMBERS, st.integers(1, 7), st.randoms(use_true_random=False))
def test_it_depends_on_neither_order_nor_pieces(numbers, size, random):
    shuffled = random.sample(numbers, len(numbers))
    total = NO_VALUES
    for i in range(0, len(shuffled), size):
        total += histogram(np.array(shuffled[i : i + size]))
    assert total == histogram(np.array(numbers))


@given(NUMBERS)
def test_every_value_is_counted_in_a_bin_that_has_it(numbers):
    found = histogram(np.array(numbers))
    assert sum(found.counts) == len(numbers)
    assert 0 < len(found.counts) <= MOST_BINS
    assert found.counts[0]
    assert found.counts[-1]
    assert found.start <= min(numbers)
    assert max(numbers) / 2 < found.start / 2 + found.width / 2 * len(found.counts)


@pytest.mark.parametrize(
    ("numbers", "start", "width", "counts"),
    [
        ([0.0, 0.0], 0.0, 2.0**-1022, (2,)),
        ([1.5, 1.5], 1.5, 2.0**-51, (2,)),  # all the same
        ([0, 1, 2, 15], 0.0, 1.0, (1, 1, 1, *[0] * 12, 1)),
        ([0, 16], 0.0, 2.0, (1, *[0] * 7, 1)),  # one more than there are bins
        ([-1.0, 1.0], -1.0, 0.25, (1, *[0] * 7, 1)),
        ([-5e-324, 0.0], -(2.0**-1022), 2.0**-1022, (1, 1)),
        ([-LARGEST, -5e-324, LARGEST], -LARGEST, 2.0**1021, (1, *[0] * 6, 1, *[0] * 7, 1)),
    ],
)
def test_extremes(numbers, start, width, counts):
    found = histogram(np.array(numbers, np.float64))
    assert (found.start, found.width, found.counts) == (start, width, counts)


def test_nothing_and_blocks():
    assert histogram(np.zeros(0)) == NO_VALUES
    assert NO_VALUES + NO_VALUES == NO_VALUES
    assert blocks(NO_VALUES) == ""
    assert blocks(Histogram(0, 0, (1, 0, 50, 51, 100, 99, 1000))) == "▁ ▁▁▁▁█"
    assert blocks(Histogram(0, 0, (1, 2, 3, 4, 5, 6, 7, 8))) == "▁▂▃▄▅▆▇█"
