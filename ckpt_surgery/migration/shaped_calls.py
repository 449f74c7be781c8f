"""Functions of NumPy and JAX that take several calls of the language, for arrays of known shapes."""

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from ckpt_surgery.migration.promotions import NUMPY, of_ml_dtypes
from ckpt_surgery.migration.standins import Call, stand_in_of


def permuted(x: Any, axes: Sequence[int]) -> Any:
    """Permute the axes of an array; returns the array itself if nothing changes."""
    axes = tuple(map(int, axes))
    if axes == tuple(range(x.ndim)):
        return x
    return x.T if axes == tuple(reversed(range(x.ndim))) else x._called("transpose", x, axes)


def _permuted_by(function: Callable[..., np.ndarray]) -> Call:
    """Permute axes as NumPy's function does with an array whose lengths are the numbers of its axes."""
    return lambda x, *arguments, **options: permuted(
        x, function(np.empty(range(x.ndim)), *arguments, **options).shape
    )


def along(axis: int, index: Any) -> tuple[Any, ...]:
    """Index of one axis, not negative."""
    return (*[slice(None)] * axis, index)


def _roll(x: Any, shift: int, axis: int | None = None) -> Any:
    if axis is None:
        return _roll(x.reshape(-1), shift, 0).reshape(x.shape)
    at = normalize_axis_index(axis, x.ndim)
    first = -int(shift) % max(1, x.shape[at])
    return joined([x[along(at, slice(first, None))], x[along(at, slice(first))]], at) if first else x


def joined(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Concatenate arrays along an axis; a single one is returned itself."""
    if len(arrays) == 1:
        return arrays[0]
    return stand_in_of(*arrays)._called("concat", list(arrays), axis=axis)


def _split(x: Any, indices_or_sections: Any, axis: int = 0, split: Any = np.split) -> list[Any]:
    at = normalize_axis_index(axis, x.ndim)
    places = split(np.arange(x.shape[at]), indices_or_sections)
    return [x[along(at, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0))] for p in places]


def _unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    at = normalize_axis_index(axis, x.ndim)
    return tuple(x[along(at, i)] for i in range(x.shape[at]))


def _at_least(function: Callable[..., Any]) -> Call:
    """Add axes as NumPy's function does."""
    return lambda x: x.reshape(function(np.broadcast_to(0, x.shape)).shape)


def _stacked(function: Callable[..., Any], axis: int) -> Call:
    """Add axes as NumPy's function does, and concatenate along this axis, if there is one."""

    def stacked(tup: Any) -> Any:
        arrays = [_at_least(function)(x) for x in tup]
        return joined(arrays, min(axis, arrays[0].ndim - 1))

    return stacked


def _pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if isinstance(pad_width, Mapping):
        axes = {normalize_axis_index(axis, x.ndim): width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(axes.get(axis, 0), 2) for axis in range(x.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2)).tolist()
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        if mode == "constant":
            rest = x.shape[:axis], x.shape[axis + 1 :]
            pairs = zip((before, after), values[axis], strict=True)
            first, last = (_full((*rest[0], width, *rest[1]), value, x) for width, value in pairs)
            x = joined([part for part in (first, x, last) if part.shape[axis]], axis)
        elif mode in ("edge", "reflect", "symmetric", "wrap"):
            places: Any = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
            x = x[along(axis, places)]
        else:
            raise x._recorder.refused(f"it calls `pad` with mode={mode!r}", x)
    return x


def _full(shape: tuple[int, ...], value: Any, like: Any) -> Any:
    """Make an array of one number, with the dtype of another array."""
    number = np.array(value).astype(like.dtype)
    if np.isfinite(number):
        return like._called("full", shape, number.item(), like.dtype)
    return broadcast_to(like._recorder.operand(number), shape)


def _repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        return _repeat(x.reshape(-1), repeats, 0)
    at = normalize_axis_index(axis, x.ndim)
    if np.ndim(repeats) == 0:
        return x._called("repeat", x, int(repeats), at)
    return x[along(at, np.repeat(np.arange(x.shape[at]), np.asarray(repeats)))]


def _take(x: Any, indices: Any, axis: int | None = None) -> Any:
    if axis is None:
        return _take(x.reshape(-1), indices, 0)
    at = normalize_axis_index(axis, x.ndim)
    places = np.asarray(indices)
    selected = x[along(at, places.reshape(-1))]
    return selected.reshape((*x.shape[:at], *places.shape, *x.shape[at + 1 :]))


def broadcast_to(x: Any, shape: Any) -> Any:
    """Repeat an array along axes of length 1, and new ones."""
    lengths = np.broadcast_to(np.broadcast_to(0, x.shape), shape).shape  # raises NumPy's error
    own = (1,) * (len(lengths) - x.ndim) + tuple(x.shape)
    reps = tuple(1 if a == b else b for a, b in zip(own, lengths, strict=True))
    whole = x.reshape(own)
    return whole if set(reps) <= {1} else whole._called("tile", whole, reps)


def _triangle(symbol: str) -> Call:
    def function(m: Any, k: int = 0) -> Any:
        rows, columns = m.shape[-2:]
        row = m._called("arange", rows, dtype="int32").reshape(rows, 1)
        column = m._called("arange", -int(k), columns - int(k), dtype="int32")
        zero = False if m.dtype == np.bool_ else 0
        return m._called("where", row._operated(symbol, row, column), m, zero)

    return function


def _einsum(pattern: str, *arrays: Any, optimize: Any = None) -> Any:
    pattern = pattern.replace(" ", "")
    if "..." in pattern:
        pattern = _expanded(pattern, [np.ndim(x) if not hasattr(x, "ndim") else x.ndim for x in arrays])
    return stand_in_of(*arrays)._called("einsum", pattern, *arrays)


def _expanded(pattern: str, ndims: Sequence[int]) -> str:
    """Expand `...` in a pattern to letters."""
    left, arrow, result = pattern.partition("->")
    terms = left.split(",")
    # Numbers of axes that `...` stands for.
    counts = [n - len(t.replace("...", "")) for t, n in zip(terms, ndims, strict=True)]
    most = max(count for term, count in zip(terms, counts, strict=True) if "..." in term)
    batch = "".join([c for c in string.ascii_letters if c not in pattern][:most])
    written = [t.replace("...", batch[most - n :]) for t, n in zip(terms, counts, strict=True)]
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        result = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return f"{','.join(written)}->{result.replace('...', batch)}"


def _check_rounding(a: Any, b: Any) -> None:
    """Refuse products that NumPy sums in a narrow dtype: `dot` does, unlike `matmul`."""
    for x in (a, b):
        if hasattr(x, "_called") and x._recorder.library == NUMPY and of_ml_dtypes(x.dtype):
            raise x._recorder.refused(f"NumPy's `dot` rounds each partial sum to {x.dtype.name}", x)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    _check_rounding(a, b)
    if np.ndim(axes) == 0:
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    ours, theirs = normalize_axis_tuple(axes[0], a.ndim), normalize_axis_tuple(axes[1], b.ndim)
    return contracted(a, b, list(zip(ours, theirs, strict=True)), [])


def contracted(a: Any, b: Any, summed: Sequence[tuple[int, int]], batch: Sequence[tuple[int, int]]) -> Any:
    """Multiply two arrays and sum over pairs of axes; the result has batch axes first, then the others."""
    letters = string.ascii_letters
    ours = [letters[i] for i in range(a.ndim)]
    theirs = [letters[a.ndim + i] for i in range(b.ndim)]
    for i, j in (*summed, *batch):
        theirs[j] = ours[i]
    left = [ours[i] for i, _ in batch]
    shared = {ours[i] for i, _ in (*summed, *batch)}
    rest = [c for c in (*ours, *theirs) if c not in shared]
    return _einsum(f"{''.join(ours)},{''.join(theirs)}->{''.join((*left, *rest))}", a, b)


def _dot(a: Any, b: Any, inner: bool = False) -> Any:
    """Product as of `dot`, or as of `inner`, which sums over the last axes."""
    stand_in = stand_in_of(a, b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return stand_in._operated("*", a, b)
    _check_rounding(a, b)
    if inner or b.ndim > 2 or (a.ndim > 2 and b.ndim == 2):
        return contracted(a, b, [(a.ndim - 1, b.ndim - 1 if inner else max(0, b.ndim - 2))], [])
    return stand_in._operated("@", a, b)


SHAPED: Mapping[str, Call] = {
    "swapaxes": _permuted_by(np.swapaxes),
    "moveaxis": _permuted_by(np.moveaxis),
    "matrix_transpose": _permuted_by(np.matrix_transpose),
    "roll": _roll,
    "split": _split,
    "array_split": lambda x, indices_or_sections, axis=0: _split(
        x, indices_or_sections, axis, np.array_split
    ),
    "vsplit": _split,
    "hsplit": lambda x, indices_or_sections: _split(x, indices_or_sections, min(1, x.ndim - 1)),
    "dsplit": lambda x, indices_or_sections: _split(x, indices_or_sections, 2),
    "unstack": _unstack,
    "atleast_1d": _at_least(np.atleast_1d),
    "atleast_2d": _at_least(np.atleast_2d),
    "atleast_3d": _at_least(np.atleast_3d),
    "vstack": _stacked(np.atleast_2d, 0),
    "hstack": _stacked(np.atleast_1d, 1),
    "dstack": _stacked(np.atleast_3d, 2),
    "column_stack": _stacked(lambda x: x if x.ndim > 1 else x.reshape(-1, 1), 1),
    "pad": _pad,
    "broadcast_to": broadcast_to,
    "tril": _triangle(">="),
    "triu": _triangle("<="),
    "tensordot": _tensordot,
    "inner": lambda a, b: _dot(a, b, inner=True),
    "repeat": _repeat,
    "take": _take,
    "einsum": _einsum,
    "dot": _dot,
}
"""Functions that arrays of known shapes have, by name."""
