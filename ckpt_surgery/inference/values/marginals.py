"""Find the layout that takes one array to another from the sums of their slices alone.

If an axis of the result runs along a digit of an axis of the input (`h` in `(h d) e -> e h d`), then the sums
of its slices are those of the input's axis, added over the other digits. So each axis of the result is taken
apart into digits whose sums occur in the input, and these have to make up every axis of the input exactly.
No element is read; elements are compared afterwards.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckpt_surgery.inference.expressions.layouts import Digit, Layout, of_digits
from ckpt_surgery.inference.values.fingerprints import Fingerprint, Words

MOST_TRIES = 4000
"""Maximum number of digits tried for one pair of arrays."""
MOST_LAYOUTS = 8
"""Maximum number of layouts returned where several fit, as for arrays with equal slices."""

_Groups = tuple[tuple[Digit, ...], ...]


def layouts_between(given: Fingerprint, wanted: Fingerprint) -> list[Layout]:
    """The layouts that take the input to an array with these sums, the plainest first; at most MOST_LAYOUTS.

    Both have the same total and the same number of elements.
    """
    axes = tuple(sums for sums in wanted.axes if len(sums) > 1)
    layouts: dict[Layout, None] = {}
    for digits in _tilings(given, axes, ((),), iter(range(MOST_TRIES))):
        layout = of_digits(given.shape, wanted.shape, digits)
        if layout is not None:
            layouts[layout] = None
        if len(layouts) >= MOST_LAYOUTS:
            break
    return sorted(layouts, key=lambda layout: layout.complexity)


def _tilings(
    given: Fingerprint, axes: Sequence[Words], groups: _Groups, tries: Iterator[int]
) -> Iterator[_Groups]:
    """The digits of every axis of the result that is longer than 1, none used twice; long digits first.

    `axes`: the sums of those that are left. The first of `groups` are the fast digits of the last of them.
    """
    if not axes:
        yield groups[1:]
        return
    *others, sums = axes
    begun, *done = groups
    for length in reversed(divisors(len(sums))[1:]):
        rows = sums.reshape(-1, length)
        rest = rows.sum(axis=1, dtype=np.uint64)
        for digit in _digits(given, length).get(rows.sum(axis=0, dtype=np.uint64).tobytes(), ()):
            if next(tries, None) is None:
                return
            joins = begun and (digit.axis, digit.stride) == (begun[0].axis, begun[0].stride * begun[0].length)
            if joins or any(_overlap(digit, other) for group in groups for other in group):
                continue  # neighbours that are one digit are tried as such
            group = (digit, *begun)
            if len(rest) > 1:
                yield from _tilings(given, (*others, rest), (group, *done), tries)
            else:
                yield from _tilings(given, others, ((), group, *done), tries)


@functools.lru_cache(maxsize=256)  # the lengths of a few arrays, each asked for again and again
def _digits(given: Fingerprint, length: int) -> Mapping[bytes, Sequence[Digit]]:
    """The digits of an array that have this length, by the sums of their slices; fast digits come first."""
    digits: dict[bytes, list[Digit]] = {}
    for axis, sums in enumerate(given.axes):
        for stride in divisors(len(sums) // length) if len(sums) % length == 0 else ():
            parts = sums.reshape(-1, length, stride).sum(axis=(0, 2), dtype=np.uint64)
            digits.setdefault(parts.tobytes(), []).append(Digit(axis, stride, length))
    return digits


def _overlap(one: Digit, other: Digit) -> bool:
    """True if two digits have a part of an axis in common."""
    ends = one.stride * one.length, other.stride * other.length
    return one.axis == other.axis and one.stride < ends[1] and other.stride < ends[0]


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]
