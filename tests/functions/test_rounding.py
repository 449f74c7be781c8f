"""Casts to floats against exact arithmetic: one rounding, to the nearest value, ties to even.

The oracle rounds a fraction to a multiple of the type's quantum at its size; that those multiples are the
values of the type is checked against the table of all of them.
"""

import functools
import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.dtypes import converted, dtype_named, has_infinity, has_nan, kind
from ckpt_surgery.core.errors import DataError
from ckpt_surgery.functions.base import Function
from ckpt_surgery.functions.create import Arange, Full
from ckpt_surgery.functions.dtypes import Cast, Rounded, number_as
from ckpt_surgery.functions.operators import Binary
from ckpt_surgery.functions.quantization import Quantize
from tests.support.comparing import same
from tests.support.evaluation import evaluate
from tests.support.slow import slow

POWERS = "float8_e8m0fnu"
"""Has powers of two only: neither zero nor a sign."""
FORMATS = {
    # significant digits, exponent of the smallest subnormal number, the largest number
    "float64": (53, -1074, Fraction(2) ** 1024 - Fraction(2) ** 971),
    "float32": (24, -149, Fraction(2) ** 128 - Fraction(2) ** 104),
    "bfloat16": (8, -133, Fraction(2) ** 128 - Fraction(2) ** 120),
    "float16": (11, -24, Fraction(65504)),
    "float8_e3m4": (5, -6, Fraction(31, 2)),
    "float8_e4m3": (4, -9, Fraction(240)),
    "float8_e4m3fn": (4, -9, Fraction(448)),
    "float8_e4m3fnuz": (4, -10, Fraction(240)),
    "float8_e4m3b11fnuz": (4, -13, Fraction(30)),
    "float8_e5m2": (3, -16, Fraction(57344)),
    "float8_e5m2fnuz": (3, -17, Fraction(57344)),
    "float6_e2m3fn": (4, -3, Fraction(15, 2)),
    "float6_e3m2fn": (3, -4, Fraction(28)),
    "float4_e2m1fn": (2, -1, Fraction(6)),
}
TARGETS = (*FORMATS, POWERS)
SOURCES = (
    *("bool", "int2", "int4", "int8", "int16", "int32", "int64"),
    *("uint2", "uint4", "uint8", "uint16", "uint32", "uint64"),
    *TARGETS,
)


def nearest(value: Fraction, name: str) -> Fraction | None:
    """The value of the type that is nearest; None where it is beyond the largest."""
    if name == POWERS:
        return _nearest_power(value)
    digits, lowest, largest = FORMATS[name]
    if not value:
        return value
    exponent = max(_exponent(value) - digits + 1, lowest)
    quanta, rest, unit = _divided(value, exponent)
    quanta += 2 * rest > unit or (2 * rest == unit and quanta % 2)
    found = Fraction(quanta << max(exponent, 0), 1 << max(-exponent, 0))
    return found if abs(found) <= largest else None


def _nearest_power(value: Fraction) -> Fraction | None:
    """Of one digit both neighbours are odd, and a tie goes to the larger one (IEEE 754-2019, 4.3.1)."""
    if value <= 0:
        return None
    power = Fraction(2) ** max(_exponent(value), -127)
    found = 2 * power if 2 * value >= 3 * power else power
    return found if found <= Fraction(2) ** 127 else None


def _exponent(value: Fraction) -> int:
    """That of the largest power of two which is not above |value|."""
    guess = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return guess if _divided(abs(value), guess)[0] else guess - 1


def _divided(value: Fraction, exponent: int) -> tuple[int, int, int]:
    """`value / 2**exponent` in integers, which are faster than fractions: quotient, rest, and the divisor."""
    divisor = value.denominator << max(exponent, 0)
    return *divmod(value.numerator << max(-exponent, 0), divisor), divisor


@functools.cache
def table(name: str) -> tuple[Fraction, ...]:
    """All finite values of a type of at most 16 bits, from its bits."""
    dtype = dtype_named(name)
    codes = np.arange(2 ** ml_dtypes.finfo(dtype).bits).astype(f"u{dtype.itemsize}")
    with np.errstate(all="ignore"):
        values = codes.view(dtype).astype(np.float64)
    return tuple(sorted({Fraction(value) for value in values[np.isfinite(values)].tolist()}))


# The 65,536 values of types of 16 bits take long; the oracle treats them as it does those of 8.
@pytest.mark.parametrize(
    "name",
    [
        slow(name) if name in ("bfloat16", "float16") else name
        for name in TARGETS
        if name not in ("float32", "float64")
    ],
)
def test_the_oracle_has_the_values_of_the_type(name: str) -> None:
    values = table(name)
    assert all(nearest(value, name) == value for value in values[:: 1 + len(values) // 500])
    middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    tiny = Fraction(1, 2**200)
    for i in {*range(0, len(middles), 1 + len(middles) // 300), 0, len(middles) - 1}:
        assert nearest(middles[i] - tiny, name) == values[i]
        assert nearest(middles[i] + tiny, name) == values[i + 1]
        assert nearest(middles[i], name) in values[i : i + 2]
    if name != POWERS:
        assert max(values) == FORMATS[name][2]


def critical(source: str, target: str) -> np.ndarray:
    """Values of `source` where it matters: those of `target`, half-way between two, and next to either."""
    dtype = dtype_named(source)
    if dtype.itemsize < 2:
        codes = np.arange(256).astype(np.uint8)
        return codes.astype(dtype) if kind(dtype) in "biu" else codes.view(dtype)
    points = [float(p) for p in _points(target) if abs(p) <= Fraction(2) ** 1023]
    exact = np.array([*points, *(-p for p in points)])
    if kind(dtype) == "f":
        with np.errstate(all="ignore"):
            near = exact.astype(np.float64 if dtype.itemsize == 8 else np.float32)
            up, down = (np.nextafter(near, near.dtype.type(end)) for end in (np.inf, -np.inf))
            found = np.concatenate([near, up, down, np.float32([0.0, -0.0, np.nan, np.inf])]).astype(dtype)
        return np.unique(found.view(f"u{dtype.itemsize}")).view(dtype)
    low, high = (int(end) for end in (ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max))
    whole = {round(p) + d for p in exact.tolist() for d in (-1, 0, 1)} | {low, high}
    return np.array([n for n in whole if low <= n <= high], dtype)


@functools.cache
def _points(target: str) -> tuple[Fraction, ...]:
    """Some of the values that are not negative, what follows the largest, and all that is half-way."""
    random = np.random.default_rng(0)
    if target == POWERS:
        values = [*table(target), Fraction(2) ** 128]
    else:
        digits, lowest, largest = FORMATS[target]
        top = _exponent(largest)
        quantum = Fraction(2) ** (top - digits + 1)
        values = [Fraction(n) * Fraction(2) ** lowest for n in range(40)]
        for exponent in {*range(max(lowest, -150), min(top, 130) + 1), *range(20, min(top, 64)), top}:
            drawn = random.integers(2 ** (digits - 1), 2**digits, 4).tolist()
            starts = {2 ** (digits - 1), 2**digits - 1, *drawn}
            unit = Fraction(2) ** max(exponent - digits + 1, lowest)
            values += [n * unit for n in starts] + [(n + 1) * unit for n in starts]
        values = [value for value in values if value <= largest] + [largest - quantum, largest + quantum]
    ordered = sorted(set(values))
    return (*ordered, *((a + b) / 2 for a, b in itertools.pairwise(ordered)))


def exactly(value: object) -> Fraction:
    return Fraction(value) if isinstance(value, int) else Fraction(float(value))  # type: ignore[arg-type]


def plain(array: np.ndarray) -> list[int | float]:
    """Python's numbers."""
    if kind(array.dtype) in "biu":
        wide = array.astype(np.uint64 if kind(array.dtype) == "u" else np.int64)
        return list(map(int, wide.tolist()))
    return list(array.astype(np.float64).tolist())


@functools.cache
def split(source: str, target: str) -> tuple[list[int], list[int], list[Fraction | None], np.ndarray]:
    """Which of the critical values fit and which do not, what all of them round to, and the values."""
    array = critical(source, target)
    rounded: list[Fraction | None] = []
    fit: list[int] = []
    lost: list[int] = []
    for i, value in enumerate(plain(array)):
        if math.isfinite(value):
            rounded.append(nearest(exactly(value), target))
            (lost if rounded[-1] is None else fit).append(i)
        else:
            rounded.append(None)
            has = has_nan(dtype_named(target)) if math.isnan(value) else has_infinity(dtype_named(target))
            (fit if has else lost).append(i)
    return fit, lost, rounded, array


PAIRS = [(source, target) for source in SOURCES for target in TARGETS if source != target]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_cast_rounds_once(source: str, target: str) -> None:
    fit, lost, rounded, array = split(source, target)
    dtype = dtype_named(target)
    found, values = evaluate(Cast(dtype), [array[fit]]), plain(array)
    for i, result in zip(fit, plain(found), strict=True):
        value = values[i]
        if rounded[i] is None:
            assert result == value or (math.isnan(result) and math.isnan(value))
        else:
            assert exactly(result) == rounded[i], value
            if result == 0 and kind(array.dtype) == "f" and "fnuz" not in source + target:
                assert math.copysign(1, result) == math.copysign(1, value)
    for i in lost[:: 1 + len(lost) // 15]:
        with pytest.raises(DataError):
            evaluate(Cast(dtype), [array[[i]]])


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_does_not_fit_is_clamped_or_infinite(source: str, target: str) -> None:
    fit, lost, _, array = split(source, target)
    dtype = dtype_named(target)
    values = plain(array)
    lost = [i for i in lost if not math.isnan(values[i])]
    largest = 2.0**127 if target == POWERS else float(FORMATS[target][2])
    smallest = 2.0**-127 if target == POWERS else -largest
    whole = evaluate(Cast(dtype, "saturate"), [array[[*fit, *lost]]])
    assert same(whole[: len(fit)], evaluate(Cast(dtype), [array[fit]]))
    assert plain(whole[len(fit) :]) == [largest if values[i] > smallest else smallest for i in lost]
    if has_nan(dtype):
        found = plain(evaluate(Cast(dtype, "inf"), [array[lost]]))
        expected = [math.copysign(math.inf, values[i]) if has_infinity(dtype) else math.nan for i in lost]
        np.testing.assert_array_equal(found, expected)


BIT = 2.0**-40
ONCE: list[tuple[Function, list[np.ndarray], str, list[float]]] = [
    # function, arrays, dtype of the result, its values; by way of float32 each would be rounded twice
    (Cast(dtype_named("bfloat16")), [np.array([1 + 2**-8 + BIT])], "bfloat16", [1.0078125]),
    (Cast(dtype_named("bfloat16")), [np.array([2**24 + 2**16 + 1], np.int32)], "bfloat16", [16908288]),
    (Rounded(dtype_named("bfloat16")), [np.array([1 + 2**-8 + BIT])], "bfloat16", [1.0078125]),
    (Arange(1 + 2**-8 + BIT, 3, 1, dtype_named("bfloat16")), [], "bfloat16", [1.0078125, 2.0]),
    (Full((1,), 1 + 2**-8 + BIT, dtype_named("bfloat16")), [], "bfloat16", [1.0078125]),
    (Full((1,), 2**62 + 2**54 + 1, dtype_named("bfloat16")), [], "bfloat16", [2.0**62 + 2.0**55]),
    (Full((1,), 2**90 + 2**66 + 1, dtype_named("float32")), [], "float32", [2.0**90 + 2.0**67]),
    (Full((1,), 2**90 + 2**37 + 1, dtype_named("complex128")), [], "complex128", [2.0**90 + 2.0**38]),
    (
        Binary("==", right=2**62 + 2**38 + 1),
        [np.array([2.0**62, 2.0**62 + 2.0**39], np.float32)],
        "bool",
        [False, True],
    ),
    (
        Binary("*", right=2**62 + 2**38 + 1),  # in float32, which has one value in 2**39
        [np.array([1], np.float32)],
        "float32",
        [2.0**62 + 2.0**39],
    ),
    (
        Quantize(dtype_named("float8_e4m3fn")),  # the scale is 1
        [np.array([448, 1 + 2**-4 + BIT])],
        "float8_e4m3fn",
        [448, 1.125],
    ),
]


def test_wherever_floats_become_narrower() -> None:
    for function, arrays, name, values in ONCE:
        assert same(evaluate(function, arrays), np.array(values).astype(dtype_named(name)))


def test_a_layout_is_kept_and_nan_stays_what_it_was() -> None:
    array = np.array([[1 + 2**-8 + BIT, np.nan, -np.nan], [0.0, -0.0, 2.0]]).T
    found = converted(array, dtype_named("bfloat16"))
    assert found.strides == (2, 6)
    by_way_of_float32 = array.astype(np.float32).astype(dtype_named("bfloat16"))
    assert same(found[0:1, 0], np.array([1.0078125]).astype(found.dtype))
    assert same(found.ravel()[1:], by_way_of_float32.ravel()[1:])


def test_large_blocks_are_rounded_in_tiles() -> None:
    array = np.linspace(-3, 3, 700_000).reshape(700, 1000)
    found = converted(array, dtype_named("bfloat16"))
    for at in np.random.default_rng(0).integers(0, array.size, 500).tolist():
        assert exactly(plain(found.ravel()[[at]])[0]) == nearest(Fraction(array.ravel()[at]), "bfloat16")


def test_a_real_number_beyond_a_complex_type_is_an_error() -> None:
    complex64 = np.dtype(np.complex64)
    with pytest.raises(DataError, match=r"1e\+300 is out of range"):
        evaluate(Cast(complex64), [np.array([1e300])])
    assert evaluate(Cast(complex64), [np.array([1.5])]).tolist() == [1.5 + 0j]
    assert number_as(2, complex64) == 2
