"""Streamed numbers against NumPy's own, on arrays in memory."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, Unreadable
from ckpt_surgery.report import values as compare
from ckpt_surgery.report.differences import NotCompared
from ckpt_surgery.report.histograms import Histogram
from ckpt_surgery.report.leaves import Statistics, Unread
from ckpt_surgery.report.values import MOST_SCALARS, scalar_values, shared_texts
from tests.support.effort import examples
from tests.support.leaves import array_leaf, leaf
from tests.support.memory import MemorySource

MEMORY = 1 << 30


def statistics_of(array: np.ndarray):
    return compare.statistics(MemorySource({"w": array}), MEMORY)["w"]


def difference_of(a: np.ndarray, b: np.ndarray):
    ((found,), _) = compare.value_differences(MemorySource({"w": a}), MemorySource({"w": b}), MEMORY)
    return found


@pytest.mark.parametrize("shape", [(8,) * 6, (300, 300), (5,), ()])
def test_a_few_elements_are_compared_before_all(shape):
    ours, theirs = (MemorySource({"w": np.full(shape, value)}) for value in (1.0, 2.0))
    read, sizes = ours.read, []

    def counted(leaf, region):
        sizes.append(region.size)
        return read(leaf, region)

    ours.read = counted
    same = compare.same_values(ours, theirs, MEMORY)
    assert not same(ours.leaves()["w"], theirs.leaves()["w"])
    assert sizes == [min(compare.SAMPLE, math.prod(shape))]


@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_statistics_are_numpys_in_any_pieces(piece, monkeypatch):
    monkeypatch.setattr(compare, "PIECE", piece)
    array = (np.random.default_rng(0).normal(size=(37, 11)) * 1e3 + 1e6).astype(np.float32)
    found = statistics_of(array)
    wide = array.astype(np.float64)
    assert (found.minimum, found.maximum) == (wide.min(), wide.max())
    assert (found.mean, found.std) == pytest.approx((wide.mean(), wide.std()), rel=1e-12)
    assert (found.nan, found.inf) == (0, 0)


def test_statistics_leave_out_what_is_not_finite_and_count_it():
    found = statistics_of(np.array([1.0, np.nan, np.inf, -np.inf, 3.0]))
    assert (found.minimum, found.maximum, found.mean, found.std, found.nan, found.inf) == (1, 3, 2, 1, 1, 2)
    for array in (np.array([np.nan]), np.zeros((0, 3))):
        found = statistics_of(array)
        assert (found.minimum, found.maximum, found.mean, found.std) == (None,) * 4


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, np.uint8, np.float16]
)
def test_statistics_of_every_kind_of_number(dtype):
    found = statistics_of(np.array([1, 2, 3], dtype))
    assert (found.minimum, found.maximum, found.mean) == (1, 3, 2)
    assert found.std == pytest.approx(math.sqrt(2 / 3), rel=1e-12)


def test_statistics_of_booleans_and_complex_numbers():
    flags = statistics_of(np.array([True, False, True, True]))
    assert (flags.minimum, flags.maximum, flags.mean) == (0, 1, 0.75)
    waves = statistics_of(np.array([1 + 2j, complex(np.nan, 1)], np.complex64))
    assert (waves.minimum, waves.maximum, waves.nan) == (math.sqrt(5), math.sqrt(5), 1)
    found = statistics_of(np.array([3 + 4j, 0, -6 - 8j, complex(0, np.inf)]))
    magnitudes = np.array([5, 0, 10])
    assert (found.minimum, found.maximum, found.nan, found.inf) == (0, 10, 0, 1)
    assert (found.mean, found.std) == pytest.approx((magnitudes.mean(), magnitudes.std()))


@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    "values",
    [
        [1e300, 1.5e300, -1e300, 2e300],
        [1.7e308, -1.7e308, 1.7e308, 1.7e308],
        [1e-200, 3e-200, 5e-200, 1e-300],
        [1.0, -1.0, 1e300, 0.0],
        [-1e300] * 4,
        [0.0] * 4,
        [1e300, 1e-300, 0.0, -5e-324],
    ],
)
def test_statistics_of_numbers_near_the_ends_of_the_range(values, piece, monkeypatch):
    monkeypatch.setattr(compare, "PIECE", piece)
    found = statistics_of(np.array(values))
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = sum((value - mean) ** 2 for value in exact) / len(exact)
    scale = Fraction(2) ** 1100
    std = Fraction(math.isqrt(int(variance * scale**2))) / scale
    assert (found.minimum, found.maximum) == (min(values), max(values))
    assert (found.mean, found.std) == pytest.approx((float(mean), float(std)), rel=1e-12, abs=0)


def test_statistics_of_large_integers_are_exact():
    assert statistics_of(np.array([2**62, 2**62 + 1])).std == 0.5
    assert statistics_of(np.array([2**64 - 1, 2**64 - 3], np.uint64)).std == 1
    found = statistics_of(np.array([-(2**63), 2**63 - 1]))
    assert (found.minimum, found.maximum) == (-(2**63), 2**63 - 1)
    assert found.std == pytest.approx(2**63)


@dataclass
class Damaged(MemorySource):
    """Some arrays cannot be read."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        if leaf.key.text.startswith("bad"):
            raise SourceError(f"`{leaf.key.text}`: its chunk 0.0 is missing", hint="Take another copy.")
        return super().read(leaf, region)


def test_statistics_tell_of_arrays_that_cannot_be_read():
    """The others' numbers are had nevertheless."""
    source = Damaged({"bad": np.ones(3), "bad words": np.array(["a", "b"]), "good": np.ones(3)})
    assert compare.statistics(source, MEMORY) == {
        "bad": Unread("its chunk 0.0 is missing", damaged=True),
        "bad words": Unread("it is not an array of numbers", damaged=False),
        "good": Statistics(1.0, 1.0, 1.0, 0.0, 0, 0, Histogram(-51, 1 << 51, (3,))),
    }


@dataclass
class Unreadables(MemorySource):
    """Arrays that cannot be read."""

    def leaves(self) -> dict[str, Leaf]:
        why = Unreadable("is of no use", "Drop it.")
        return {text: replace(leaf, unreadable=why) for text, leaf in super().leaves().items()}


def test_what_cannot_be_read_is_told_with_the_reason():
    source = Unreadables({"w": np.array([1.0]), "words": np.array(["a"])})
    reasons = tuple(NotCompared(key, (key,), "it is of no use") for key in ("w", "words"))
    readable = MemorySource(source.arrays)
    for a, b in ((source, source), (source, readable), (readable, source)):
        assert compare.value_differences(a, b, MEMORY) == ((), reasons)
    assert compare.statistics(source, MEMORY)["w"] == Unread("it is of no use", damaged=False)


@pytest.mark.parametrize("dtype", ["S3", "U3", "O", "M8[s]", "m8[s]", "V1"])
def test_what_has_no_numbers_is_not_compared(dtype):
    source = MemorySource({"w": np.zeros(3, dtype), "x": np.ones(3)})
    compared, uncompared = compare.value_differences(source, source, MEMORY)
    assert [one.key for one in compared] == ["x"]
    assert uncompared == (NotCompared("w", ("w",), "it is not an array of numbers"),)
    assert compare.statistics(source, MEMORY)["w"] == Unread("it is not an array of numbers", damaged=False)
    # What is of another dtype is told by its description.
    other = MemorySource({"w": np.zeros(3, "S9")})
    assert compare.value_differences(source, other, MEMORY) == ((), ())


DIFFERENCES = [
    ([1.0, 2.0], [1.0, 2.0], (True, 0.0, 0.0, 1.0), "equal"),
    ([1.0, 2.5], [1.0, 2.0], (False, 0.5, 0.25, pytest.approx(6 / math.sqrt(7.25 * 5))), "apart"),
    ([np.nan, 1.0], [np.nan, 1.0], (True, 0.0, 0.0, 1.0), "NaN in one place"),
    ([np.nan, 1.0], [2.0, 1.0], (False, np.inf, np.inf, None), "NaN in A only"),
    ([np.inf, 1.0], [np.inf, 1.0], (True, 0.0, 0.0, 1.0), "one infinity"),
    ([np.inf, 1.0], [-np.inf, 1.0], (False, np.inf, np.inf, None), "two infinities"),
    ([np.inf, 1.0], [3.0, 1.0], (False, np.inf, np.inf, None), "infinite in A only"),
    ([3.0, 1.0], [np.inf, 1.0], (False, np.inf, np.inf, None), "infinite in B only"),
    ([1.0, 1.0], [0.0, 1.0], (False, 1.0, np.inf, pytest.approx(1 / math.sqrt(2))), "zero in B"),
    ([0.0, 0.0], [0.0, 0.0], (True, 0.0, 0.0, None), "zeros have no direction"),
    ([-0.0], [0.0], (True, 0.0, 0.0, None), "signs of zero"),
    ([1.0, -1.0], [-1.0, 1.0], (False, 2.0, 2.0, -1.0), "opposite"),
    ([1e300, 0.0], [1e300, 1e300], (False, 1e300, 1.0, pytest.approx(1 / math.sqrt(2))), "squares beyond it"),
    ([1.7e308], [-1.7e308], (False, np.inf, 2.0, -1.0), "a distance beyond float64"),
    ([1e-200, 0.0], [1e-200, 1e-200], (False, 1e-200, 1.0, pytest.approx(1 / math.sqrt(2))), "below it"),
    ([5e-324], [1e-323], (False, 5e-324, 0.5, 1.0), "subnormal"),
    ([1e100], [1e100], (True, 0.0, 0.0, pytest.approx(1)), "products of squares beyond float64"),
    ([1e-100], [-1e-100], (False, 2e-100, 2.0, pytest.approx(-1)), "products of squares below float64"),
]


@pytest.mark.parametrize(("a", "b", "expected", "reason"), DIFFERENCES, ids=[row[-1] for row in DIFFERENCES])
def test_value_differences(a, b, expected, reason):
    found = difference_of(np.array(a), np.array(b))
    assert (found.equal, found.max_abs, found.max_rel, found.cosine) == expected, reason


def test_differences_of_integers_are_exact():
    a, b = np.array([2**63 - 1, 2**62]), np.array([2**63 - 1, 2**62 + 1])
    found = difference_of(a, b)
    assert (found.equal, found.max_abs) == (False, 1.0)
    extremes = difference_of(np.array([-(2**63)]), np.array([2**63 - 1]))
    assert extremes.max_abs == float(2**64)
    mixed = difference_of(np.array([2**64 - 1], np.uint64), np.array([-1], np.int64))
    assert (mixed.equal, mixed.max_abs) == (False, float(2**64))


def test_differences_across_dtypes():
    a = np.array([1.0, 1.0009765625], np.float32)
    found = difference_of(a, a.astype(ml_dtypes.bfloat16))
    assert (found.equal, found.max_abs) == (False, 0.0009765625)
    real = np.array([1.0, np.nan, 2.0])
    assert difference_of(real, real.astype(complex)).equal
    assert not difference_of(real, np.array([1, np.nan, 2 + 1j])).equal


NAN = np.nan
COMPLEX = [
    (3 + 4j, 0j, False, "no part is the same"),
    (complex(NAN, 1), complex(NAN, 1), True, "NaN in one part of both"),
    (complex(NAN, 1), complex(NAN, 2), False, "the other part differs"),
    (complex(1, NAN), complex(NAN, 1), False, "NaN in different parts"),
    (complex(NAN, NAN), complex(NAN, NAN), True, "NaN in both parts"),
    (complex(NAN, NAN), complex(NAN, 0), False, "NaN in one part more"),
    (complex(np.inf, NAN), complex(np.inf, NAN), True, "infinite and NaN"),
    (complex(np.inf, 1), complex(np.inf, 2), False, "infinite, and the other part differs"),
]


@pytest.mark.parametrize(("a", "b", "equal", "reason"), COMPLEX, ids=[row[-1] for row in COMPLEX])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_parts_of_complex_numbers(dtype, a, b, equal, reason):
    found = difference_of(np.array([1, a], dtype), np.array([1, b], dtype))
    assert found.equal == equal, reason
    assert (found.max_abs == 0) == equal


@pytest.mark.parametrize(
    ("integer", "other", "max_abs"),
    [
        (np.int64(2**53 + 1), np.float64(2**53), 1.0),
        (np.int64(2**63 - 1), np.float64(2**63), 1.0),
        (np.uint64(2**64 - 1), np.float64(2**64), 1.0),
        (np.int64(-(2**53) - 1), np.float32(-(2**53)), 1.0),
        (np.int64(2**62 + 1), complex(2**62), 1.0),
        (np.int64(2**53), np.float64(2**53), 0.0),
        (np.int64(-(2**63)), np.float64(-(2**63)), 0.0),
        (np.uint64(2**63), np.float32(2**63), 0.0),
    ],
)
def test_integers_that_no_float_is(integer, other, max_abs):
    """Whatever float64 makes of them, they are not the same."""
    for a, b in ((integer, other), (other, integer)):
        found = difference_of(np.array([a]), np.array([b]))
        assert (found.equal, found.max_abs) == (max_abs == 0, max_abs)


def test_only_common_leaves_of_one_shape_are_compared():
    a = MemorySource({"w": np.ones(2), "x": np.ones(2), "y": np.ones(2)})
    b = MemorySource({"y": np.ones(2), "w": np.ones(2), "x": np.ones(3), "z": np.ones(2)})
    assert [v.key for v in compare.value_differences(a, b, MEMORY)[0]] == ["w", "y"]


@examples(60)
@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.floats(width=32)), st.integers(1, 9))
def test_pieces_do_not_change_a_difference(array, piece):
    other = array[::-1]
    before = difference_of(array, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "PIECE", piece)
        after = difference_of(array, other)
    assert (after.equal, after.max_abs, after.max_rel) == (before.equal, before.max_abs, before.max_rel)
    assert after.cosine == (None if before.cosine is None else pytest.approx(before.cosine, abs=1e-9))


def test_reading_is_bounded():
    source = MemorySource({"w": np.ones((1024, 128))}, {"w": (8, 128)}, "zstd")
    compare.statistics(source, 1 << 20)
    assert max(math.prod(region.shape) for region in source.regions) * 8 <= (1 << 20) // 8


@pytest.mark.parametrize(
    ("array", "value", "text"),
    [
        (np.array(7, np.int64), 7, "= 7"),
        (np.array(2**63 + 1, np.uint64), 2**63 + 1, "= 9223372036854775809"),
        (np.array(True), True, "= True"),
        (np.array(0.1, np.float32), float(np.float32(0.1)), "= 0.1"),
        (np.array(1.5, ml_dtypes.bfloat16), 1.5, "= 1.5"),
        (np.array(3, ml_dtypes.int4), 3, "= 3"),
        (np.array(np.nan), np.nan, "= nan"),
        (np.array(1 + 2j), 1 + 2j, "= 1+2j"),
    ],
)
def test_values_of_numbers(array, value, text):
    source = MemorySource({"x": array})
    leaves = list(source.leaves().values())
    found = scalar_values(source, leaves)
    np.testing.assert_equal(found, {"x": value})
    assert type(found["x"]) is type(value)
    assert shared_texts(leaves, found) == {"x": text}


def test_only_numbers_without_axes_are_read_and_only_a_few_of_them():
    scalars = {f"x{i}": np.array(i) for i in range(MOST_SCALARS + 5)}
    source = MemorySource({"a": np.zeros(1), "b": np.array("text"), **scalars})
    assert list(scalar_values(source, source.leaves().values()).values()) == list(range(MOST_SCALARS))
    assert len(source.regions) == MOST_SCALARS


def test_a_value_that_cannot_be_read_is_told():
    source = Damaged({"bad": np.array(2)})
    leaves = list(source.leaves().values())
    found = scalar_values(source, leaves)
    assert found == {"bad": Unread("its chunk 0.0 is missing", damaged=True)}
    escaped = {"bad": Unread("its chunk is\x1b missing", damaged=True)}
    assert shared_texts(leaves, escaped) == {"bad": "not read: its chunk is\\x1b missing"}


def test_texts_of_strings():
    for text, shown in (("a{b}\n", '"a\\{b\\}\\n"'), ("x" * 41, f'"{"x" * 40}…"')):
        assert shared_texts([replace(leaf("name", "string"), string=text)], {}) == {"name": shown}


def test_leaves_that_differ_in_indices_have_one_value_or_none():
    leaves = [array_leaf(key, ()) for key in ("a/0", "a/1", "b/0", "b/1", "c/0", "c/1")]
    values = {"a/0": 1, "a/1": 1, "b/0": 1, "b/1": 2, "c/0": 1}
    assert shared_texts(leaves, values) == {"a/0": "= 1", "a/1": "= 1"}
