"""Functions of NumPy and JAX that take several calls of the language, for arrays of known shapes."""

import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ckpt_surgery.migration.promotions import NUMPY, of_ml_dtypes
from ckpt_surgery.migration.standins import Call, stand_in_of


def axis_of(axis: Any, ndim: int) -> int:
    """Normalize an axis. Raises NumPy's error if it is out of range."""
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(int(axis), ndim)
    return int(axis) % ndim


def _axes_of(axes: Any, ndim: int) -> list[int]:
    given = axes if isinstance(axes, Sequence | np.ndarray) else [axes]
    return [axis_of(axis, ndim) for axis in given]


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


def cut(x: Any, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Any:
    """Slice along one axis."""
    return x[(*[slice(None)] * axis, slice(start, stop, step))]


def _roll(x: Any, shift: int, axis: int | None = None) -> Any:
    if axis is None:
        return _roll(x.reshape(-1), shift, 0).reshape(x.shape)
    at = axis_of(axis, x.ndim)
    first = -int(shift) % x.shape[at] if x.shape[at] else 0
    return joined([cut(x, at, first, None), cut(x, at, None, first)], at) if first else x


def joined(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Concatenate arrays along an axis; a single one is returned itself."""
    if len(arrays) == 1:
        return arrays[0]
    return stand_in_of(*arrays)._called("concat", list(arrays), axis=axis)


def _split(x: Any, indices_or_sections: Any, axis: int = 0, equal: bool = True) -> list[Any]:
    """Split as `np.split` does, or if not `equal`, as `np.array_split`: the first parts are longer by 1."""
    at = axis_of(axis, x.ndim)
    stops = indices_or_sections
    if np.ndim(stops) == 0:
        parts = int(stops)
        if parts < 1:
            raise ValueError("number sections must be larger than 0.")
        each, more = divmod(x.shape[at], parts)
        if more and equal:
            raise ValueError("array split does not result in an equal division")
        stops = [each * i + min(i, more) for i in range(1, parts)]
    stops = list(map(int, stops))
    return [cut(x, at, a, b) for a, b in zip([0, *stops], [*stops, x.shape[at]], strict=True)]


def _unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    at = axis_of(axis, x.ndim)
    return tuple(x[(*[slice(None)] * at, i)] for i in range(x.shape[at]))


def _at_least(ndim: int) -> Call:
    def function(x: Any) -> Any:
        if x.ndim >= ndim:
            return x
        if ndim == 3 and x.ndim:
            return x[None, :, None] if x.ndim == 1 else x[:, :, None]
        return x.reshape((1,) * (ndim - x.ndim) + tuple(x.shape))

    return function


def _stacked(ndim: int, axis: int) -> Call:
    def function(tup: Any) -> Any:
        arrays = [_at_least(ndim)(x) for x in tup]
        return joined(arrays, 0 if axis == 1 and arrays[0].ndim == 1 else axis)

    return function


def _pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if isinstance(pad_width, Mapping):
        axes = {axis_of(axis, x.ndim): width for axis, width in pad_width.items()}
        pad_width = [axes.get(axis, 0) for axis in range(x.ndim)]
        pad_width = [(w, w) if np.ndim(w) == 0 else w for w in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2))
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        if mode == "constant":
            shape = list(x.shape)
            parts = [x]
            for at, (width, value) in enumerate(zip((before, after), values[axis].tolist(), strict=True)):
                filler = _full((*shape[:axis], width, *shape[axis + 1 :]), value, x)
                parts = [*parts, filler] if at else [filler, *parts]
            x = joined([part for part in parts if part.shape[axis]], axis)
        elif mode in ("edge", "reflect", "symmetric", "wrap"):
            places: Any = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)  # type: ignore[call-overload]
            x = x[(*[slice(None)] * axis, places)]
        else:
            raise x._recorder.refused(f"it calls `pad` with mode={mode!r}", x)
    return x


def _full(shape: tuple[int, ...], value: Any, like: Any) -> Any:
    """Make an array of one number, with the dtype of another array."""
    number = np.array(value).astype(like.dtype)
    if np.isfinite(number):
        return like._called("full", shape, number.item(), like.dtype)
    return _broadcast_to(like._recorder.operand(number), shape)


def _repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        return _repeat(x.reshape(-1), repeats, 0)
    at = axis_of(axis, x.ndim)
    if np.ndim(repeats) == 0:
        return x._called("repeat", x, int(repeats), at)
    places = np.repeat(np.arange(x.shape[at]), np.asarray(repeats))
    return x[(*[slice(None)] * at, places)]


def _take(x: Any, indices: Any, axis: int | None = None) -> Any:
    if axis is None:
        return _take(x.reshape(-1), indices, 0)
    at = axis_of(axis, x.ndim)
    places = np.asarray(indices)
    selected = x[(*[slice(None)] * at, places.reshape(-1))]
    return selected.reshape((*x.shape[:at], *places.shape, *x.shape[at + 1 :]))


def _broadcast_to(x: Any, shape: Any) -> Any:
    lengths = tuple(map(int, shape)) if np.ndim(shape) else (int(shape),)
    np.broadcast_to(np.broadcast_to(np.zeros(()), x.shape), lengths)  # raises NumPy's error
    own = (1,) * (len(lengths) - x.ndim) + tuple(x.shape)
    reps = tuple(1 if a == b else b for a, b in zip(own, lengths, strict=True))
    whole = x.reshape(own)
    return whole if math.prod(reps) == 1 and 0 not in reps else whole._called("tile", whole, reps)


def _triangle(symbol: str) -> Call:
    def function(m: Any, k: int = 0) -> Any:
        rows, columns = m.shape[-2:]
        row = m._called("arange", rows, dtype="int32").reshape(rows, 1)
        column = m._called("arange", -int(k), columns - int(k), dtype="int32")
        zero = False if m.dtype == np.bool_ else 0
        return m._called("where", row._operated(symbol, row, column), m, zero)

    return function


# --- products ---


def _einsum(pattern: str, *arrays: Any, optimize: Any = None) -> Any:
    first = stand_in_of(*arrays)
    if "..." in pattern:
        pattern = _expanded(pattern, [np.ndim(x) if not hasattr(x, "ndim") else x.ndim for x in arrays])
    return first._called("einsum", pattern.replace(" ", ""), *arrays)


def _expanded(pattern: str, ndims: Sequence[int]) -> str:
    """Expand `...` in a pattern to letters."""
    left, arrow, result = pattern.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [c for c in string.ascii_letters if c not in pattern]
    most = max(n - len(t.replace("...", "")) for t, n in zip(terms, ndims, strict=True) if "..." in t)
    batch = "".join(free[:most])
    written = [
        t.replace("...", batch[most - (n - len(t.replace("...", ""))) :])
        for t, n in zip(terms, ndims, strict=True)
    ]
    if not arrow:
        every = left.replace("...", "").replace(",", "")
        result = "..." + "".join(sorted(c for c in set(every) if every.count(c) == 1))
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
    ours, theirs = _axes_of(axes[0], a.ndim), _axes_of(axes[1], b.ndim)
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


def _dot(a: Any, b: Any) -> Any:
    stand_in = stand_in_of(a, b)
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return stand_in._operated("*", a, b)
    _check_rounding(a, b)
    if b.ndim > 2 or (a.ndim > 2 and b.ndim == 2):
        return contracted(a, b, [(a.ndim - 1, max(0, b.ndim - 2))], [])
    return stand_in._operated("@", a, b)


def _inner(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    _check_rounding(a, b)
    return contracted(a, b, [(a.ndim - 1, b.ndim - 1)], [])


SHAPED: Mapping[str, Call] = {
    "swapaxes": _permuted_by(np.swapaxes),
    "moveaxis": _permuted_by(np.moveaxis),
    "matrix_transpose": _permuted_by(np.matrix_transpose),
    "roll": _roll,
    "split": _split,
    "array_split": lambda x, indices_or_sections, axis=0: _split(x, indices_or_sections, axis, False),
    "vsplit": _split,
    "hsplit": lambda x, indices_or_sections: _split(x, indices_or_sections, min(1, x.ndim - 1)),
    "dsplit": lambda x, indices_or_sections: _split(x, indices_or_sections, 2),
    "unstack": _unstack,
    "atleast_1d": _at_least(1),
    "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3),
    "vstack": _stacked(2, 0),
    "hstack": _stacked(1, 1),
    "dstack": _stacked(3, 2),
    "column_stack": lambda tup: joined([x if x.ndim > 1 else x.reshape(-1, 1) for x in tup], 1),
    "pad": _pad,
    "broadcast_to": _broadcast_to,
    "tril": _triangle(">="),
    "triu": _triangle("<="),
    "fliplr": lambda m: m[:, ::-1],
    "flipud": lambda m: m[::-1],
    "tensordot": _tensordot,
    "outer": lambda a, b: a.reshape(-1)[:, None] * b.reshape(-1)[None, :],
    "inner": _inner,
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x, axis=None: x.size if axis is None else x.shape[axis],
}
"""Functions that only arrays of known shapes support, by name."""

WITH_SHAPES: Mapping[str, Call] = {
    "repeat": _repeat,
    "take": _take,
    "einsum": _einsum,
    "dot": _dot,
}
"""Functions that are written differently for arrays of known shapes."""
