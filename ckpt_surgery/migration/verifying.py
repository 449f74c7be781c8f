"""Verify an expression on sample arrays against the function that it was traced from."""

import enum
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import Interrupted, SurgeryError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Array, Read
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Leaves, Scope

UNITS = 16
"""Tolerance in units in the last place of the largest value: sums have no fixed order."""
SOURCE = "source"
X = "x"


class Verdict(enum.Enum):
    SAME = "the same result"
    DIFFERENT = "another result"
    NARROWED = "the same values, in the 32 bits that JAX makes of 64"
    FAILS = "the function fails, so that nothing is known"
    UNSAID = "the function has a result, and the expression an error"


class Samples(Leaves):
    """Arrays by key; remembers which ones an expression looked up."""

    name = SOURCE

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.arrays = arrays

    def lookup(self, text: str) -> Array | None:
        array = self.arrays.get(text)
        return None if array is None else lazy(text, array)

    def kind(self, text: str) -> str | None:
        return LeafKind.ARRAY.value if text in self.arrays else None

    def keys(self) -> Collection[str]:
        return self.arrays.keys()


def lazy(text: str, array: np.ndarray) -> Array:
    """Wrap an array as expressions see a leaf."""
    leaf = Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec(array.shape, array.dtype))
    return Array(Read(SOURCE, leaf), array.dtype)


def verdict(
    expression: str,
    function: Callable[[], Any],
    arrays: Mapping[str, np.ndarray],
    key: str = "",
) -> Verdict:
    """Compare the expression with a call of the function.

    `arrays`: the leaves of `source` by key, and `x`. `key`: what the expression calls `key`.
    """
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function()
            wanted = np.asarray(result)
    except (Interrupted, MemoryError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit):  # noqa: BLE001  (whatever it does with values that are not for it)
        return Verdict.FAILS
    if wanted.dtype.kind in "OUS":
        return Verdict.UNSAID
    try:
        computed = _evaluated(expression, arrays, key)
    except SurgeryError:
        return Verdict.UNSAID
    if _agree(computed, wanted):
        return Verdict.SAME
    narrowed = not isinstance(result, np.ndarray | np.generic) and _is_wider(computed, wanted)
    return Verdict.NARROWED if narrowed else Verdict.DIFFERENT


def _is_wider(computed: np.ndarray | None, wanted: np.ndarray) -> bool:
    """True if `computed` has 64 bits and `wanted` 32, and nothing else differs."""
    if computed is None or computed.dtype.itemsize != 8 or computed.dtype.kind != wanted.dtype.kind:
        return False
    return wanted.dtype.itemsize == 4 and _agree(computed.astype(wanted.dtype), wanted)


def _evaluated(expression: str, arrays: Mapping[str, np.ndarray], key: str) -> np.ndarray | None:
    """Evaluate the expression on these arrays; None if the value is not an array. Raises SurgeryError."""
    names: dict[str, Any] = {SOURCE: Samples(arrays), "key": key}
    if X in arrays:
        names[X] = lazy(X, arrays[X])
    value = parse(expression).evaluate(Scope(names, key))
    if not isinstance(value, Array):
        return None
    node = value.rounded_to_declared()
    return evaluate(node, Region.whole(node.spec.shape), lambda s, leaf, r: arrays[leaf.key.text][r.slices])


def _agree(computed: np.ndarray | None, wanted: np.ndarray) -> bool:
    if computed is None or (computed.shape, computed.dtype) != (wanted.shape, wanted.dtype):
        return False
    if computed.dtype.kind in "biu" or not computed.size:
        return bool(np.array_equal(computed, wanted))
    kind = np.complex128 if computed.dtype.kind == "c" else np.float64
    a, b = computed.astype(kind), wanted.astype(kind)
    finite = np.isfinite(b)
    units = UNITS * float(ml_dtypes.finfo(computed.dtype).eps)  # type: ignore[no-untyped-call]
    near = float(np.max(np.abs(b[finite]), initial=0.0)) * units
    return bool(np.allclose(a, b, rtol=0, atol=near, equal_nan=True))
