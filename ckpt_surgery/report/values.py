"""The values of leaves, streamed: statistics of one checkpoint, differences between two.

Leaves that are reported as equal were compared element by element; leaves that cannot be compared are listed
apart.

Memory is bounded: at any time a small part of the budget is read, or one stored chunk where that is larger (a
compressed chunk can only be decoded whole). Arithmetic is done on pieces of `PIECE` elements, in float64.
"""

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.folding import escaped
from ckpt_surgery.core.leaves import Leaf, LeafKind, read_regions
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.progress import READING, ByteCounter, Report
from ckpt_surgery.core.protocols import Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.report import distances
from ckpt_surgery.report.differences import ComparedLeaf, NotCompared
from ckpt_surgery.report.histograms import NO_VALUES, Histogram, histogram
from ckpt_surgery.report.leaves import Statistics, Unread

PIECE = 1 << 20
"""Number of elements that are converted to float64 at once."""


def value_differences(
    a: Source,
    b: Source,
    memory: int,
    without_values: Collection[str] = (),
    *,
    keys: Collection[str] | None = None,
    tolerance: distances.Tolerance = distances.EXACT,
    progress: Report | None = None,
) -> tuple[tuple[ComparedLeaf, ...], tuple[NotCompared, ...]]:
    """Distances of the values of arrays that have the same shape in both; and arrays that are not compared.

    Numbers of any two dtypes are compared as numbers; other elements are not. `memory` is the budget in
    bytes. `without_values`: texts of the keys of leaves of which one of the two has shape and dtype alone.
    `keys`: texts of the keys that are compared; None: all. Elements within the tolerance count as the same.
    `progress` is told the bytes of A that are compared. Raises SourceError where bytes are missing or
    damaged.
    """
    left, right = a.leaves(), b.leaves()
    meant = [(left[key], right[key]) for key in left if key in right and (keys is None or key in keys)]
    pairs = [pair for pair in meant if _comparable(*pair)]
    read = ByteCounter(sum(x.nbytes for x, _ in pairs), progress, READING)
    compared: list[ComparedLeaf] = []
    uncompared = [
        NotCompared(x.key.text, x.key.names, f"both are objects of the type {x.type}")
        for x, y in meant
        if x.kind is y.kind is LeafKind.OBJECT and x.type == y.type
    ]
    for x, y in pairs:
        key, names = x.key.text, x.key.names
        if (why := _why_uncompared(x, y, without_values)) is not None:
            uncompared.append(NotCompared(key, names, why))
        else:
            total = distances.Gap()
            with _reading(x, memory):
                for pieces in _pairs(a, b, x, y, read_regions(x, memory)):
                    total += distances.gap(*pieces, tolerance)
            measured = (total.max_abs, total.max_rel, total.cosine)
            compared.append(ComparedLeaf(key, names, total.same, *measured))
        read.add(x.nbytes)
    return tuple(compared), tuple(uncompared)


def statistics(
    source: Source, memory: int, leaves: Iterable[Leaf] | None = None, progress: Report | None = None
) -> dict[str, Statistics | Unread]:
    """The statistics of every leaf with an array, or why it has none, by key text.

    `memory` is the budget in bytes. `leaves`: those of the source that are read; None: all. `progress` is
    told the bytes that are read. Raises SourceError where the leaves cannot be listed.
    """
    listed = source.leaves().values() if leaves is None else leaves
    arrays = [leaf for leaf in listed if leaf.spec is not None]
    read = ByteCounter(sum(leaf.nbytes for leaf in arrays), progress, READING)
    by_key = {}
    for leaf in arrays:
        by_key[leaf.key.text] = _statistics_of(source, leaf, memory)
        read.add(leaf.nbytes)
    return by_key


SAMPLE = 256
"""Number of elements that are compared before all are."""


def same_values(
    a: Source, b: Source, memory: int, without_values: Collection[str] = ()
) -> Callable[[Leaf, Leaf], bool]:
    """Make a function that tells whether all elements of an array of A and one of B are known to be equal.

    It compares a few elements first, so that most arrays that differ are not read. It raises SourceError for
    damaged bytes. `memory` is the budget in bytes; `without_values`: see `value_differences`.
    """

    def same(left: Leaf, right: Leaf) -> bool:
        if not _comparable(left, right) or _why_uncompared(left, right, without_values) is not None:
            return False
        assert left.spec is not None
        rest, lengths = SAMPLE, []
        for length in reversed(left.spec.shape):
            lengths.append(min(length, max(rest, 1)))
            rest //= max(lengths[-1], 1)
        sample = Region.whole(tuple(reversed(lengths)))
        with _reading(left, memory):
            regions = itertools.chain([sample], read_regions(left, memory))
            return all(distances.gap(*pieces).same for pieces in _pairs(a, b, left, right, regions))

    return same


@dataclass(frozen=True)
class _Moments:
    """Count, mean and sum of squared deviations of the finite values seen so far."""

    count: int = 0
    mean: float = 0.0
    """Divided by 2**exponent, so that no square of a deviation leaves the range of float64."""
    squares: float = 0.0
    """Divided by 4**exponent."""
    exponent: int = distances.SMALLEST
    minimum: float = math.inf
    maximum: float = -math.inf
    nan: int = 0
    inf: int = 0
    histogram: Histogram = NO_VALUES

    def __add__(self, other: "_Moments") -> "_Moments":
        """Moments of both: Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm"."""
        count = self.count + other.count
        share = other.count / count if count else 0.0
        exponent = max(self.exponent, other.exponent)
        (mean, squares), (other_mean, other_squares) = self._scaled_to(exponent), other._scaled_to(exponent)
        delta = other_mean - mean
        squares += other_squares + delta * delta * self.count * share
        low, high = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        counts = self.nan + other.nan, self.inf + other.inf, self.histogram + other.histogram
        return _Moments(count, mean + delta * share, squares, exponent, low, high, *counts)

    def _scaled_to(self, exponent: int) -> tuple[float, float]:
        """Mean and squares for an exponent that is as large, or larger."""
        by = self.exponent - exponent
        return distances.scaled(self.mean, by), distances.scaled(self.squares, 2 * by)


def _statistics_of(source: Source, leaf: Leaf, memory: int) -> Statistics | Unread:
    """The statistics of one array. An array that cannot be read does not stop the others from being read."""
    if (why := _why_unread(leaf)) is not None:
        return Unread(why, damaged=False)
    total = _Moments()
    try:
        with _reading(leaf, memory):
            for region in read_regions(leaf, memory):
                for piece in _pieces(source.read(leaf, region)):
                    total += _moments(piece)
    except SourceError as error:
        return Unread(without_key(leaf, error), damaged=True)
    if not total.count:
        return Statistics(None, None, None, None, total.nan, total.inf)
    low, high, mean = total.minimum, total.maximum, distances.scaled(total.mean, total.exponent)
    mean = mean if math.isinf(high) else min(max(mean, low), high)  # rounding takes it beyond no value
    deviation = distances.scaled(math.sqrt(total.squares / total.count), total.exponent)
    return Statistics(low, high, mean, deviation, total.nan, total.inf, total.histogram)


def _why_unread(leaf: Leaf) -> str | None:
    """Reason why an array is not read, as a sentence; None if it is."""
    if leaf.unreadable is not None:
        return f"it {leaf.unreadable.why}"
    return None if is_numeric(leaf) else "it is not an array of numbers"


def _reading(leaf: Leaf, memory: int) -> AbstractContextManager[None]:
    return memory_errors(f"read `{shown(leaf.key.printed)}`", memory)


def without_key(leaf: Leaf, error: SourceError) -> str:
    """Message of an error, without the key at its beginning."""
    why = "; ".join(problem.message for problem in error.problems)
    return why.removeprefix(f"`{shown(leaf.key.printed)}`: ")


def _moments(piece: np.ndarray) -> _Moments:
    """The moments of one piece; of complex numbers, those of their magnitudes."""
    if distances.whole_numbers(piece.dtype):
        return _moments_of_integers(piece)
    # Of shape (elements, 1), or (elements, 2), real and imaginary, if complex.
    parts = distances.wide(piece).view(np.float64).reshape(piece.size, -1)
    nan = int(np.count_nonzero(np.isnan(parts).any(axis=-1)))
    inf = int(np.count_nonzero(np.isinf(parts).any(axis=-1)))
    finite = parts[np.isfinite(parts).all(axis=-1)]
    if not finite.size:
        return _Moments(nan=nan, inf=inf)
    exponent = distances.exponent_of(finite)
    values = distances.scaled_down(finite, exponent)
    numbers = finite[:, 0]
    if finite.shape[1] == 2:
        values = np.hypot(values[:, 0], values[:, 1])
        with np.errstate(over="ignore"):  # a magnitude of complex128 can be beyond float64
            numbers = np.ldexp(values, 0 if exponent == distances.SMALLEST else exponent)
    values = values.reshape(-1)
    mean = float(values.mean())
    squares = float(np.square(values - mean).sum())
    low, high = float(numbers.min()), float(numbers.max())
    bars = histogram(numbers[np.isfinite(numbers)])
    return _Moments(values.size, mean, squares, exponent, low, high, nan, inf, bars)


def _moments_of_integers(piece: np.ndarray) -> _Moments:
    """The moments of integers and bools; deviations are those from the smallest one, which are exact."""
    low, high = int(piece.min()), int(piece.max())
    exact = piece.astype(np.uint64 if piece.dtype == np.uint64 else np.int64)
    offsets = (exact.view(np.uint64) - np.uint64(low % 2**64)).astype(np.float64)
    shift = float(offsets.mean())
    squares = float(np.square(offsets - shift).sum())
    bars = histogram(piece.astype(np.float64))
    return _Moments(piece.size, low + shift, squares, 0, low, high, 0, 0, bars)


def is_numeric(leaf: Leaf) -> bool:
    """Whether a leaf has an array of numbers, not of objects, texts, dates or records."""
    if leaf.spec is None:
        return False
    dtype = leaf.spec.dtype
    return dtype.kind not in "OSUMm" and dtype.type is not np.void


def _comparable(a: Leaf, b: Leaf) -> bool:
    """Whether both have arrays of one shape, of numbers or of one dtype. Others differ in descriptions."""
    if a.spec is None or b.spec is None or a.spec.shape != b.spec.shape:
        return False
    return (is_numeric(a) and is_numeric(b)) or a.spec.dtype == b.spec.dtype


def _why_uncompared(a: Leaf, b: Leaf, without_values: Collection[str]) -> str | None:
    """Reason why the elements of two comparable leaves are not compared; None if they are."""
    if a.key.text in without_values or b.key.text in without_values:
        return "one of the two has its shape and dtype, and no value"
    return _why_unread(b if a.unreadable is None else a)


def _pieces(block: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in C order, in pieces of at most `PIECE`."""
    flat = np.ascontiguousarray(block).reshape(-1)
    return (flat[i : i + PIECE] for i in range(0, flat.size, PIECE))


def _pairs(
    a: Source, b: Source, left: Leaf, right: Leaf, regions: Iterable[Region]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The elements of two arrays in these regions, piece by piece."""
    for region in regions:
        yield from zip(_pieces(a.read(left, region)), _pieces(b.read(right, region)), strict=True)


MOST_SCALARS = 32
"""Number of arrays without axes that are read for a listing; each can take a request to a store."""

LONGEST_TEXT = 40
"""Number of characters of a string that a line shows."""

Scalar = bool | int | float | complex
Values = Mapping[str, Scalar | Unread]
"""Values of arrays without axes, or why they could not be read, by the text of the leaf's key."""

_DIGITS = re.compile("[0-9]+")


def scalar_values(source: Source, leaves: Iterable[Leaf]) -> dict[str, Scalar | Unread]:
    """The values of the first `MOST_SCALARS` numbers without axes among the leaves, which have values."""
    kinds = (LeafKind.SCALAR, LeafKind.ARRAY)
    numbers = (leaf for leaf in leaves if leaf.kind in kinds and is_numeric(leaf))
    scalars = [leaf for leaf in numbers if leaf.spec is not None and leaf.spec.shape == ()]
    return {leaf.key.text: _value(source, leaf) for leaf in scalars[:MOST_SCALARS]}


def _value(source: Source, leaf: Leaf) -> Scalar | Unread:
    try:
        array = source.read(leaf, Region((), ()))
    except SourceError as error:
        return Unread(without_key(leaf, error), damaged=True)
    if array.dtype.kind == "b":
        return bool(array)
    if distances.whole_numbers(array.dtype):
        return int(array)
    return complex(array) if array.dtype.kind == "c" else float(array)


def shared_texts(leaves: Sequence[Leaf], values: Values) -> dict[str, str]:
    """The values as text by key text: `= 10`, `"adam"`.

    Among leaves whose keys differ in indices only, either all have one, and the same, or none has any: then
    such leaves can share a line.
    """
    texts = {leaf.key.text: _text(leaf, values) for leaf in leaves}
    if not any(texts.values()):
        return {}
    alike: dict[str, set[str]] = {}
    for key, text in texts.items():
        alike.setdefault(_DIGITS.sub("0", key), set()).add(text)
    return {key: text for key, text in texts.items() if text and len(alike[_DIGITS.sub("0", key)]) == 1}


def _text(leaf: Leaf, values: Values) -> str:
    if leaf.string is not None:
        cut = len(leaf.string) > LONGEST_TEXT
        return f'"{escaped(leaf.string[:LONGEST_TEXT])}{"…" if cut else ""}"'
    value = values.get(leaf.key.text)
    if value is None:
        return ""
    if isinstance(value, Unread):
        return f"not read: {shown(value.why)}"
    return f"= {value:.6g}" if isinstance(value, float | complex) else f"= {value}"
