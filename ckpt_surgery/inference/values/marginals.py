"""Find the layout that takes one array to another from the sums of their slices alone.

If an axis of the result runs along a digit of an axis of the input (`h` in `(h d) e -> e h d`), then the sums
of its slices are those of the input's axis, added over the other digits. So each axis of the result is taken
apart into digits whose sums occur in the input, and these have to make up every axis of the input exactly.
No element is read; elements are compared afterwards.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ckpt_surgery.inference.expressions.layouts import Digit, Layout, of_digits
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words

MOST_TRIES = 4000
"""Maximum number of digits tried for one pair of arrays."""
MOST_LAYOUTS = 8
"""Maximum number of layouts returned where several fit, as for arrays with equal slices."""


class Marginals:
    """The sums of one array's digits, each computed when it is first asked for."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        self.shape = fingerprint.shape
        self._axes = fingerprint.axes
        self._known: dict[int, dict[bytes, list[Digit]]] = {}

    def digits(self, sums: Words) -> list[Digit]:
        """The digits whose slices have these sums; whole axes and fast digits come first."""
        length = len(sums)
        if length not in self._known:
            self._known[length] = self._of_length(length)
        return self._known[length].get(sums.tobytes(), [])

    def _of_length(self, length: int) -> dict[bytes, list[Digit]]:
        digits: dict[bytes, list[Digit]] = {}
        for axis, sums in enumerate(self._axes):
            if len(sums) % length:
                continue
            for stride in divisors(len(sums) // length):
                parts = sums.reshape(-1, length, stride).sum(axis=(0, 2), dtype=np.uint64)
                digits.setdefault(parts.tobytes(), []).append(Digit(axis, stride, length))
        return digits


def layouts_between(given: Marginals, wanted: Fingerprint) -> list[Layout]:
    """The layouts that take the input to an array with these sums, the plainest first; at most MOST_LAYOUTS.

    Both have the same total and the same number of elements.
    """
    axes = [sums for sums in wanted.axes if len(sums) > 1]
    layouts: dict[Layout, None] = {}
    for digits in _tilings(given, axes, (), iter(range(MOST_TRIES))):
        layout = of_digits(given.shape, wanted.shape, digits)
        if layout is not None:
            layouts[layout] = None
        if len(layouts) >= MOST_LAYOUTS:
            break
    return sorted(layouts, key=lambda layout: layout.complexity)


def _tilings(
    given: Marginals, axes: Sequence[Words], taken: tuple[tuple[Digit, ...], ...], tries: Iterator[int]
) -> Iterator[tuple[tuple[Digit, ...], ...]]:
    """The digits of every axis of the result that is longer than 1, slow before fast, none used twice."""
    if not axes:
        yield taken
        return
    for digits in _of_axis(given, axes[0], list(itertools.chain.from_iterable(taken)), tries):
        yield from _tilings(given, axes[1:], (*taken, digits), tries)


def _of_axis(
    given: Marginals, sums: Words, used: Sequence[Digit], tries: Iterator[int]
) -> Iterator[tuple[Digit, ...]]:
    """The ways to take one axis of the result apart into digits, slow before fast; long digits first."""
    if len(sums) == 1:
        yield ()
        return
    for length in reversed(divisors(len(sums))[1:]):
        rows = sums.reshape(-1, length)
        for digit in given.digits(rows.sum(axis=0, dtype=np.uint64)):
            if next(tries, None) is None:
                return
            if any(_overlap(digit, other) for other in used):
                continue
            for slower in _of_axis(given, rows.sum(axis=1, dtype=np.uint64), [*used, digit], tries):
                # Two neighbours that are one digit were tried as such before.
                if not (slower and slower[-1][:2] == (digit.axis, digit.stride * digit.length)):
                    yield (*slower, digit)


def _overlap(one: Digit, other: Digit) -> bool:
    """True if two digits have a part of an axis in common."""
    if one.axis != other.axis:
        return False
    low, high = (one, other) if one.stride <= other.stride else (other, one)
    return low.stride * low.length > high.stride


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]
