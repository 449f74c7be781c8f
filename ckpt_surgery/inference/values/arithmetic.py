"""Sums and products with one number that take a leaf of the source to one of the target.

The number is guessed from the least and the largest value of both, and written as a person would write it:
`1`, `sqrt(64)`, `1 / sqrt(64)`. Then the sums of hashes of the result have to be those of the target, and in
the end every element.
"""

import math
from collections.abc import Iterator

from ckpt_surgery.inference.values.fingerprints import Limits

_CLOSE = 1e-2
"""Largest relative error of a number that is guessed from rounded values."""
_LARGEST = 1 << 20
"""Largest number that is tried, or whose root is, as a factor or a divisor."""


def operations(given: Limits, wanted: Limits) -> Iterator[str]:
    """Yield text to append to an array, such as ` * sqrt(64)` or ` + 1.0`, most likely first."""
    if given is None or wanted is None or given[0] == given[1] or wanted[0] == wanted[1]:
        return
    (low, high), (new_low, new_high) = given, wanted
    shift = new_high - high
    if abs((new_low - low) - shift) <= _CLOSE * max(map(abs, (low, high, new_low, new_high))):
        for number in dict.fromkeys([float(round(shift)), shift]):
            if number:
                yield f" + {number!r}" if number > 0 else f" - {-number!r}"
    for ends in ((new_low, new_high), (new_high, new_low)):
        old, new = max(zip((low, high), ends, strict=True), key=lambda pair: abs(pair[0]))
        factor = new / old
        errors = [abs(low * factor - ends[0]), abs(high * factor - ends[1])]
        if factor and max(errors) <= _CLOSE * abs(new):
            yield from _products(factor)


def _products(factor: float) -> Iterator[str]:
    """Products with a whole number, its root, the inverse of either, or the factor itself."""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    inverse = 1 / size
    numbers = (size, inverse, size * size, inverse * inverse)
    forms = ("{}{}.0", "({}1 / {})", "{}sqrt({})", "({}1 / sqrt({}))")
    for number, form in zip(numbers, forms, strict=True):
        whole = round(number) if number < 2 * _LARGEST else 0
        trivial = whole == 1 and not sign
        if 0 < whole <= _LARGEST and math.isclose(whole, number, rel_tol=_CLOSE) and not trivial:
            yield f" * {form.format(sign, whole)}"
    if factor != 1:
        yield f" * {factor!r}"
