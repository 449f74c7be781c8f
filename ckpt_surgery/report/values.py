"""The values of leaves, streamed: statistics of one checkpoint, differences between two.

Leaves that are reported as equal were compared element by element; leaves that cannot be compared are listed
apart.

Memory is bounded: at any time a small part of the budget is read, or one stored chunk where that is larger (a
compressed chunk can only be decoded whole). Arithmetic is done on pieces of `PIECE` elements, in float64.
"""

import math
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region, Shape, chunk_regions
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.protocols import OpaqueSource, Source
from ckpt_surgery.core.text import shown
from ckpt_surgery.report.differences import Uncompared, ValueDifference
from ckpt_surgery.report.leaves import Statistics, Unread

READ_BYTES = 32 << 20
"""Largest number of bytes of one leaf that are read at once, unless a single chunk is larger."""
PIECE = 1 << 20
"""Number of elements that are converted to float64 at once."""


@dataclass(frozen=True)
class Comparison:
    """Comparisons of the values of two checkpoints, in A's order."""

    values: tuple[ValueDifference, ...]
    uncompared: tuple[Uncompared, ...]


def value_differences(a: Source, b: Source, memory: int, without_values: Collection[str] = ()) -> Comparison:
    """How far apart the values are, for every array that has the same shape in both.

    Numbers of any two dtypes are compared as numbers; elements of another dtype, the same in both, are
    compared by their bytes. `memory` is the budget in bytes. `without_values`: texts of the keys of leaves of
    which one of the two has shape and dtype alone. Raises SourceError where bytes are missing or damaged.
    """
    left, right = a.leaves(), b.leaves()
    pairs = [(left[key], right[key]) for key in left if key in right and _comparable(left[key], right[key])]
    found: list[ValueDifference | Uncompared] = []
    for x, y in pairs:
        if x.key.text in without_values:
            found.append(Uncompared(x.key.text, "one of the two has its shape and dtype, and no value"))
            continue
        with _reading(x, memory):
            found.append(_compared(a, b, x, y, memory))
    return Comparison(
        tuple(one for one in found if isinstance(one, ValueDifference)),
        tuple(one for one in found if isinstance(one, Uncompared)),
    )


def statistics(source: Source, memory: int) -> dict[str, Statistics | Unread]:
    """The statistics of every leaf with an array, or why it has none, by key text.

    `memory` is the budget in bytes. Raises SourceError where the leaves cannot be listed.
    """
    arrays = {key: leaf for key, leaf in source.leaves().items() if leaf.spec is not None}
    return {key: _statistics_or_reason(source, leaf, memory) for key, leaf in arrays.items()}


def read_regions(leaf: Leaf, memory: int) -> Iterator[Region]:
    """Disjoint regions that cover the leaf; each has at most an eighth of `memory` bytes, or is one chunk."""
    assert leaf.spec is not None, "only leaves with an array are read"
    return chunk_regions(leaf.spec.shape, read_block(leaf, memory))


def read_block(leaf: Leaf, memory: int) -> Shape:
    """The shape of the regions of `read_regions`."""
    assert leaf.spec is not None
    limit = max(1, min(READ_BYTES, memory // 8) // leaf.spec.dtype.itemsize)
    return _block(leaf.spec.shape, _unit(leaf), limit)


def _unit(leaf: Leaf) -> Shape:
    """Shape of the smallest region that can be read alone: a chunk, or one element if none is encoded."""
    assert leaf.spec is not None
    if leaf.manifest is None or leaf.manifest.codec.name == "raw":
        return (1,) * leaf.spec.ndim
    return leaf.manifest.chunk_shape


def _block(shape: Shape, unit: Shape, limit: int) -> Shape:
    """Shape of a block of whole units with at most `limit` elements, grown along the last axes first.

    It has at least one unit.
    """
    block = [min(u, n) if n else 1 for u, n in zip(unit, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        others = math.prod(block) // block[axis]
        units = max(1, limit // (others * unit[axis]))
        block[axis] = max(1, min(shape[axis], units * unit[axis]))
    return tuple(block)


# --- one checkpoint ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Moments:
    """Count, mean and sum of squared deviations of the finite values seen so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    minimum: float | None = None
    maximum: float | None = None
    nan: int = 0
    inf: int = 0

    def __add__(self, other: "_Moments") -> "_Moments":
        """Moments of both: Chan, Golub and LeVeque (1979), "Updating formulae and a pairwise algorithm"."""
        count = self.count + other.count
        share = other.count / count if count else 0.0
        delta = other.mean - self.mean
        return _Moments(
            count,
            self.mean + delta * share,
            self.squares + other.squares + delta * delta * self.count * share,
            min((m for m in (self.minimum, other.minimum) if m is not None), default=None),
            max((m for m in (self.maximum, other.maximum) if m is not None), default=None),
            self.nan + other.nan,
            self.inf + other.inf,
        )


def _statistics_or_reason(source: Source, leaf: Leaf, memory: int) -> Statistics | Unread:
    """The statistics of one array. An array that cannot be read does not stop the others from being read."""
    if not is_numeric(leaf):
        return Unread(_why_no_numbers(source, leaf, memory), damaged=False)
    try:
        with _reading(leaf, memory):
            return _statistics_of(source, leaf, memory)
    except SourceError as error:
        return Unread(_without_key(leaf, error), damaged=True)


def _reading(leaf: Leaf, memory: int) -> AbstractContextManager[None]:
    return memory_errors(f"read `{shown(leaf.key.text)}`", memory)


def _why_no_numbers(source: Source, leaf: Leaf, memory: int) -> str:
    """The reason that the source gives when the array is read; a general one if it gives none."""
    try:
        for region in islice(read_regions(leaf, memory), 1):
            source.read(leaf, region)
    except SourceError as error:
        return _without_key(leaf, error)
    return "it is no array of numbers"


def _without_key(leaf: Leaf, error: SourceError) -> str:
    why = "; ".join(problem.message for problem in error.problems)
    return why.removeprefix(f"`{shown(leaf.key.text)}`: ")


def _statistics_of(source: Source, leaf: Leaf, memory: int) -> Statistics:
    total = _Moments()
    for region in read_regions(leaf, memory):
        for piece in _pieces(source.read(leaf, region)):
            total += _moments(piece)
    if not total.count:
        return Statistics(None, None, None, None, total.nan, total.inf)
    std = math.sqrt(total.squares / total.count)
    return Statistics(total.minimum, total.maximum, total.mean, std, total.nan, total.inf)


def _moments(piece: np.ndarray) -> _Moments:
    """The moments of one piece. A complex number is two real values, but one NaN and one infinity at most."""
    if _whole_numbers(piece.dtype):
        wide = piece.astype(np.float64)
        low, high, nan, inf = int(piece.min()), int(piece.max()), 0, 0
    else:
        values = _parts(piece)
        finite = np.isfinite(values)
        wide = values[finite]
        nan = int(np.count_nonzero(np.isnan(values).any(axis=-1)))
        inf = int(np.count_nonzero(np.isinf(values).any(axis=-1)))
        if not wide.size:
            return _Moments(nan=nan, inf=inf)
        low, high = wide.min(), wide.max()
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float64 they are inf or NaN
        mean = float(wide.mean())
        squares = float(np.square(wide - mean).sum())
    lowest = low if isinstance(low, int) else float(low)
    highest = high if isinstance(high, int) else float(high)
    return _Moments(wide.size, mean, squares, lowest, highest, nan, inf)


# --- two checkpoints ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gap:
    """How far apart the values seen so far are."""

    equal: bool = True
    max_abs: float = 0.0
    max_rel: float = 0.0
    dot: float = 0.0
    norm_a: float = 0.0
    """Sum of squares."""
    norm_b: float = 0.0

    def __add__(self, other: "_Gap") -> "_Gap":
        return _Gap(
            self.equal and other.equal,
            max(self.max_abs, other.max_abs),
            max(self.max_rel, other.max_rel),
            self.dot + other.dot,
            self.norm_a + other.norm_a,
            self.norm_b + other.norm_b,
        )

    @property
    def cosine(self) -> float | None:
        product = self.norm_a * self.norm_b
        # One root is exact for equal norms; two roots stay within the range of float64.
        two_roots = math.sqrt(self.norm_a) * math.sqrt(self.norm_b)
        scale = math.sqrt(product) if 1e-300 < product < math.inf else two_roots
        if not (0.0 < scale < math.inf and math.isfinite(self.dot)):
            return None
        return max(-1.0, min(1.0, self.dot / scale))


def is_numeric(leaf: Leaf) -> bool:
    """Whether a leaf has an array of numbers, not of objects, texts, dates or records."""
    if leaf.spec is None:
        return False
    dtype = leaf.spec.dtype
    return dtype.kind not in "OSUMm" and dtype.type is not np.void


def _comparable(a: Leaf, b: Leaf) -> bool:
    """Whether both have arrays of the same shape, either of numbers or of the same dtype.

    Other leaves differ in their descriptions already.
    """
    if a.spec is None or b.spec is None or a.spec.shape != b.spec.shape:
        return False
    return (is_numeric(a) and is_numeric(b)) or a.spec.dtype == b.spec.dtype


def _compared(a: Source, b: Source, left: Leaf, right: Leaf, memory: int) -> ValueDifference | Uncompared:
    if not is_numeric(left):
        return _compared_by_bytes(a, b, left, right, memory)
    total = _Gap()
    for region in read_regions(left, memory):
        blocks = _pieces(a.read(left, region)), _pieces(b.read(right, region))
        for x, y in zip(*blocks, strict=True):
            total += _gap(x, y)
    return ValueDifference(left.key.text, total.equal, total.max_abs, total.max_rel, total.cosine)


def _compared_by_bytes(
    a: Source, b: Source, left: Leaf, right: Leaf, memory: int
) -> ValueDifference | Uncompared:
    assert left.spec is not None
    for source, leaf in ((a, left), (b, right)):
        if not isinstance(source, OpaqueSource) or left.spec.dtype.hasobject:
            return Uncompared(leaf.key.text, _why_no_numbers(source, leaf, memory))
    assert isinstance(a, OpaqueSource)
    assert isinstance(b, OpaqueSource)
    try:
        equal = all(
            _same_bytes(a.opaque_elements(left, region), b.opaque_elements(right, region))
            for region in read_regions(left, memory)
        )
    except SourceError as error:
        return Uncompared(left.key.text, _without_key(left, error))
    return ValueDifference(left.key.text, equal, None, None, None)


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


def _gap(a: np.ndarray, b: np.ndarray) -> _Gap:
    """How far apart two pieces of the same length are."""
    whole = _whole_numbers(a.dtype) and _whole_numbers(b.dtype)
    wide_x, wide_y = _alike(_wide(a), _wide(b))
    x, y = (_integers(a), _integers(b)) if whole else (wide_x, wide_y)
    same = x == y if whole else _same(x, y) & _exact(a) & _exact(b)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        apart = _distance(x, y) if whole else np.abs(wide_x - wide_y)
        apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
        if (rounded := ~same & (apart == 0)).any():
            apart[rounded] = np.maximum(_rounding(a[rounded]), _rounding(b[rounded]))
        relative = np.where(same, 0.0, apart / np.abs(wide_y))
        relative = np.where(np.isnan(relative), np.inf, relative)
        finite = np.isfinite(wide_x) & np.isfinite(wide_y)
        u, v = wide_x[finite], wide_y[finite]
        products = [float(np.vdot(p, q).real) for p, q in ((u, v), (u, u), (v, v))]
    return _Gap(bool(same.all()), float(apart.max()), float(relative.max()), *products)


def _same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which elements are equal or NaN in both; the parts of complex numbers are compared one by one."""
    u, v = (wide.view(np.float64).reshape(wide.size, -1) for wide in (x, y))
    same: np.ndarray = ((u == v) | (np.isnan(u) & np.isnan(v))).all(axis=-1)
    return same


def _exact(piece: np.ndarray) -> np.ndarray:
    """Which elements float64 represents exactly; not all integers of 64 bits are."""
    if piece.dtype not in (np.int64, np.uint64):
        return np.ones(piece.shape, bool)
    wide = piece.astype(np.float64)
    beyond = wide >= (2.0**63 if piece.dtype == np.int64 else 2.0**64)
    exact: np.ndarray = ~beyond & (np.where(beyond, 0, wide).astype(piece.dtype) == piece)
    return exact


def _rounding(piece: np.ndarray) -> np.ndarray:
    """How far each element is from its rounding to float64."""
    lost, inexact = np.zeros(piece.shape), ~_exact(piece)
    lost[inexact] = [abs(int(value) - int(float(value))) for value in piece[inexact]]
    return lost


def _distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """|x - y| of 64-bit integers, exact before it is rounded to float64."""
    if x.dtype != y.dtype:
        apart: np.ndarray = np.abs(x.astype(object) - y.astype(object))
    else:
        # In two's complement the difference modulo 2**64 is right even where int64 overflows.
        apart = np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
    rounded: np.ndarray = apart.astype(np.float64)
    return rounded


# --- elements ----------------------------------------------------------------------------------------


def _pieces(block: np.ndarray) -> Iterator[np.ndarray]:
    """The elements in C order, in pieces of at most `PIECE`."""
    flat = np.ascontiguousarray(block).reshape(-1)
    return (flat[i : i + PIECE] for i in range(0, flat.size, PIECE))


def _whole_numbers(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is of integers, those of ml_dtypes included, or of booleans."""
    return dtype.kind in "iub" or dtype.name.startswith(("int", "uint"))


def _integers(piece: np.ndarray) -> np.ndarray:
    wide: np.ndarray = piece.astype(np.uint64 if piece.dtype == np.uint64 else np.int64)
    return wide


def _wide(piece: np.ndarray) -> np.ndarray:
    """The numbers as float64, or as complex128 where they are complex."""
    wide: np.ndarray = piece.astype(np.complex128 if piece.dtype.kind == "c" else np.float64)
    return wide


def _alike(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays in one dtype, complex if either is."""
    both = np.result_type(x, y)
    return x.astype(both, copy=False), y.astype(both, copy=False)


def _parts(piece: np.ndarray) -> np.ndarray:
    """The numbers as float64 of shape (elements, 1), or (elements, 2), real and imaginary, if complex."""
    return _wide(piece).view(np.float64).reshape(piece.size, -1)
