"""Measure distances between two pieces of numbers, in any two dtypes, and check tolerances."""

import math
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class Tolerance:
    """Elements with `|a - b| <= atol + rtol * |b|` count as the same, as for `numpy.allclose`."""

    rtol: float = 0.0
    """Tolerance relative to the element of B."""
    atol: float = 0.0
    """Absolute tolerance."""

    @property
    def exact(self) -> bool:
        """Whether only equal elements are the same."""
        return not (self.rtol or self.atol)


EXACT = Tolerance()


@dataclass(frozen=True)
class Gap:
    """Distances of the values seen so far."""

    same: bool = True
    """Whether all elements are the same, within the tolerance."""
    max_abs: float = 0.0
    max_rel: float = 0.0
    dot: float = 0.0
    """Divided by 2**(exponent_a + exponent_b), so that no product leaves the range of float64."""
    norm_a: float = 0.0
    """Sum of squares, divided by 4**exponent_a."""
    norm_b: float = 0.0
    exponent_a: int = SMALLEST
    exponent_b: int = SMALLEST
    angle: bool = True
    """Whether there is an angle: no element that differs is NaN or infinite."""

    def __add__(self, other: "Gap") -> "Gap":
        a, b = max(self.exponent_a, other.exponent_a), max(self.exponent_b, other.exponent_b)
        pairs = zip(self._scaled_to(a, b), other._scaled_to(a, b), strict=True)
        dot, norm_a, norm_b = (one + another for one, another in pairs)
        largest = max(self.max_abs, other.max_abs), max(self.max_rel, other.max_rel)
        same, angle = self.same and other.same, self.angle and other.angle
        return Gap(same, *largest, dot, norm_a, norm_b, a, b, angle)

    def _scaled_to(self, a: int, b: int) -> tuple[float, float, float]:
        """Product and norms for exponents that are as large, or larger."""
        by_a, by_b = self.exponent_a - a, self.exponent_b - b
        return scaled(self.dot, by_a + by_b), scaled(self.norm_a, 2 * by_a), scaled(self.norm_b, 2 * by_b)

    @property
    def cosine(self) -> float | None:
        if not self.angle:
            return None
        product = self.norm_a * self.norm_b
        # One root is exact for equal norms; two roots stay within the range of float64.
        two_roots = math.sqrt(self.norm_a) * math.sqrt(self.norm_b)
        scale = math.sqrt(product) if 1e-300 < product < math.inf else two_roots
        if not (0.0 < scale < math.inf and math.isfinite(self.dot)):
            return None
        return max(-1.0, min(1.0, self.dot / scale))


def gap(a: np.ndarray, b: np.ndarray, tolerance: Tolerance = EXACT) -> Gap:
    """Distances of two pieces of the same length."""
    whole = whole_numbers(a.dtype) and whole_numbers(b.dtype)
    wide_x, wide_y = wide(a), wide(b)
    both = np.result_type(wide_x, wide_y)  # complex if either is
    wide_x, wide_y = wide_x.astype(both, copy=False), wide_y.astype(both, copy=False)
    x, y = (_integers(a), _integers(b)) if whole else (wide_x, wide_y)
    same = x == y if whole else _same(x, y) & _exact(a) & _exact(b)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        apart = _distance(x, y) if whole else np.abs(wide_x - wide_y)
        apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
        if (rounded := ~same & (apart == 0)).any():
            apart[rounded] = np.maximum(_rounding(a[rounded]), _rounding(b[rounded]))
        # Halved where the difference leaves the range of float64.
        halved = np.abs(wide_x / 2 - wide_y / 2) / np.abs(wide_y / 2)
        relative = np.where(np.isinf(apart), halved, apart / np.abs(wide_y))
        relative = np.where(same, 0.0, np.where(np.isnan(relative), np.inf, relative))
        finite = np.isfinite(wide_x) & np.isfinite(wide_y)
        u, v = wide_x[finite], wide_y[finite]
        exponents = exponent_of(u), exponent_of(v)
        u, v = scaled_down(u, exponents[0]), scaled_down(v, exponents[1])
        close = same
        if not tolerance.exact:  # nothing is close to an infinity or to NaN
            limit = tolerance.atol + tolerance.rtol * np.abs(wide_y)
            close = same | (np.isfinite(apart) & np.isfinite(wide_y) & (apart <= limit))
        dot, norm_a, norm_b = [float(np.vdot(p, q).real) for p, q in ((u, v), (u, u), (v, v))]
    angle = bool((finite | same).all())
    return Gap(
        bool(close.all()), float(apart.max()), float(relative.max()), dot, norm_a, norm_b, *exponents, angle
    )


def _same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Mask of elements that are equal or NaN in both; parts of complex numbers are compared one by one."""
    u, v = (one.view(np.float64).reshape(one.size, -1) for one in (x, y))
    return np.asarray(((u == v) | (np.isnan(u) & np.isnan(v))).all(axis=-1))


def _exact(piece: np.ndarray) -> np.ndarray:
    """Mask of elements that float64 represents exactly; not all integers of 64 bits are."""
    if piece.dtype not in (np.int64, np.uint64):
        return np.ones(piece.shape, bool)
    rounded = piece.astype(np.float64)
    beyond = rounded >= (2.0**63 if piece.dtype == np.int64 else 2.0**64)
    return np.asarray(~beyond & (np.where(beyond, 0, rounded).astype(piece.dtype) == piece))


def _rounding(piece: np.ndarray) -> np.ndarray:
    """Distance of each element from its rounding to float64."""
    lost, inexact = np.zeros(piece.shape), ~_exact(piece)
    lost[inexact] = [abs(int(value) - int(float(value))) for value in piece[inexact]]
    return lost


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|x - y| of 64-bit integers, exact before it is rounded to float64."""
    if x.dtype != y.dtype:
        return np.asarray(np.abs(x.astype(object) - y.astype(object)), np.float64)
    # In two's complement the difference modulo 2**64 is right even where int64 overflows.
    apart = np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
    return np.asarray(apart, np.float64)


def whole_numbers(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is of integers, those of ml_dtypes included, or of booleans."""
    return dtype.kind in "iub" or dtype.name.startswith(("int", "uint"))


def _integers(piece: np.ndarray) -> np.ndarray:
    return np.asarray(piece.astype(np.uint64 if piece.dtype == np.uint64 else np.int64))


def wide(piece: np.ndarray) -> np.ndarray:
    """The numbers as float64, or as complex128 where they are complex."""
    return np.asarray(piece.astype(np.complex128 if piece.dtype.kind == "c" else np.float64))
