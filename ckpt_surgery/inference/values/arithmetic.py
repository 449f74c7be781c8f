"""Sums and products with one number that take a leaf of the source to one of the target.

The number is guessed from the least and the largest value of both, and written as a person would write it:
`1`, `sqrt(64)`, `1 / sqrt(64)`. Then the sums of hashes of the result have to be those of the target, and in
the end every element.
"""

import math
from collections.abc import Iterator

from ckpt_surgery.inference.values.fingerprints import Fingerprint

_CLOSE = 1e-2
"""Largest relative error of a number that is guessed from rounded values."""
_LARGEST = 1 << 20
"""Largest number whose root is tried as a factor."""


def operations(given: Fingerprint, wanted: Fingerprint) -> Iterator[str]:
    """Yield text to append to an array, such as ` * sqrt(64)` or ` + 1.0`, most likely first."""
    if given.low is None or given.high is None or wanted.low is None or wanted.high is None:
        return
    if given.low == given.high:
        return
    yield from _sums(given.low, given.high, wanted.low, wanted.high)
    for low, high in ((wanted.low, wanted.high), (wanted.high, wanted.low)):
        yield from _products(given.low, given.high, low, high)


def _sums(low: float, high: float, new_low: float, new_high: float) -> Iterator[str]:
    shift = new_high - high
    spread = max(abs(new_low), abs(new_high), abs(low), abs(high))
    if abs((new_low - low) - shift) <= _CLOSE * spread:
        for number in dict.fromkeys([float(round(shift)), shift]):
            if number:
                yield f" + {number!r}" if number > 0 else f" - {-number!r}"


def _products(low: float, high: float, new_low: float, new_high: float) -> Iterator[str]:
    old, new = max((low, new_low), (high, new_high), key=lambda pair: abs(pair[0]))
    if not old or not new:
        return
    factor = new / old
    if abs(low * factor - new_low) > _CLOSE * abs(new) or abs(high * factor - new_high) > _CLOSE * abs(new):
        return
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    numbers: dict[str, None] = {}
    if size >= 1:
        if _near(round(size), size):
            numbers[f"{sign}{float(round(size))!r}"] = None
        if _near(round(size**2), size**2):
            numbers[f"{sign}sqrt({round(size**2)})"] = None
    else:
        if _near(round(1 / size), 1 / size):
            numbers[f"({sign}1 / {round(1 / size)})"] = None
        if _near(round(size**-2), size**-2):
            numbers[f"({sign}1 / sqrt({round(size**-2)}))"] = None
            numbers[f"({sign}{round(size**-2)} ** -0.5)"] = None
    numbers[repr(factor)] = None
    for text in numbers:
        if text not in ("1.0", "sqrt(1)"):
            yield f" * {text}"


def _near(whole: int, number: float) -> bool:
    return 0 < whole <= _LARGEST and math.isclose(whole, number, rel_tol=_CLOSE)
