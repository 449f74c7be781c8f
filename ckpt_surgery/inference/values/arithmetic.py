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
    shift = wanted.high - given.high
    spread = max(map(abs, (given.low, given.high, wanted.low, wanted.high)))
    if abs((wanted.low - given.low) - shift) <= _CLOSE * spread:
        for number in dict.fromkeys([float(round(shift)), shift]):
            if number:
                yield f" + {number!r}" if number > 0 else f" - {-number!r}"
    for low, high in ((wanted.low, wanted.high), (wanted.high, wanted.low)):
        yield from _products(given.low, given.high, low, high)


def _products(low: float, high: float, new_low: float, new_high: float) -> Iterator[str]:
    old, new = max((low, new_low), (high, new_high), key=lambda pair: abs(pair[0]))
    if not old or not new:
        return
    factor = new / old
    if abs(low * factor - new_low) > _CLOSE * abs(new) or abs(high * factor - new_high) > _CLOSE * abs(new):
        return
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    large = size >= 1
    whole, square = (size, size * size) if large else (1 / size, 1 / size / size)
    texts = []
    if _near(whole):
        texts.append(f"{sign}{float(round(whole))!r}" if large else f"({sign}1 / {round(whole)})")
    if _near(square) and large:
        texts.append(f"{sign}sqrt({round(square)})")
    elif _near(square):
        texts += [f"({sign}1 / sqrt({round(square)}))", f"({sign}{round(square)} ** -0.5)"]
    for text in dict.fromkeys([*texts, repr(factor)]):
        if text not in ("1.0", "sqrt(1)"):
            yield f" * {text}"


def _near(number: float) -> bool:
    """True if a number is almost a whole one, and not too large."""
    whole = round(number) if number < 2 * _LARGEST else 0
    return 0 < whole <= _LARGEST and math.isclose(whole, number, rel_tol=_CLOSE)
