"""Numbers with a power of two of their own, so that squares and sums of them stay in the range of float64."""

import math

import numpy as np

PLAIN = 400
"""Binary exponents up to which, above and below 0, numbers are summed and squared as they are."""
SMALLEST = -1100
"""Exponent of numbers that are all zero: below that of every other."""


def exponent_of(values: np.ndarray) -> int:
    """The binary exponent by which finite numbers are to be scaled down: 0 for those of common size."""
    if not values.size:
        return SMALLEST
    parts = values.view(np.float64)
    most = max(abs(float(parts.max())), abs(float(parts.min())))
    if most == 0:
        return SMALLEST
    exponent = math.frexp(most)[1]
    return 0 if abs(exponent) <= PLAIN else exponent


def scaled_down(values: np.ndarray, exponent: int) -> np.ndarray:
    """Float64 or complex128 numbers divided by 2**exponent."""
    if exponent in (0, SMALLEST):
        return values
    scaled = np.ldexp(values.view(np.float64), -exponent)
    return np.asarray(scaled.view(values.dtype))


def scaled(number: float, exponent: int) -> float:
    """number * 2**exponent; infinite where float64 does not hold it."""
    try:
        return math.ldexp(number, exponent)
    except OverflowError:
        return math.copysign(math.inf, number)
