"""Functions of arrays, called with arrays and traced, and what the recipe language makes of the traces."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

import jax
import ml_dtypes
import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.graph.evaluating import evaluate
from ckpt_surgery.language.expressions.parsing import parse
from ckpt_surgery.language.expressions.scope import Scope
from ckpt_surgery.language.hooks import HookFunctions
from ckpt_surgery.migration.agreement import Samples
from ckpt_surgery.migration.functions.tracing import tracing
from ckpt_surgery.migration.recorded_arrays import StandIn
from ckpt_surgery.migration.stand_in_arrays import ArrayRecorder, source_stand_in

DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "int8", "uint8", "bool")


def dtype_called(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random values, negative ones too, with some zeros; small enough that few results are out of range."""
    random = np.random.default_rng(seed)
    found = dtype_called(dtype)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if found.kind in "iu":
        return random.integers(0 if found.kind == "u" else -5, 6, shape).astype(found)
    return np.asarray(random.normal(size=shape) * 3).astype(np.float32).astype(found)


def whole_numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random small whole numbers, whose sums are exact in whatever order they are added."""
    random = np.random.default_rng(seed)
    low = 0 if dtype in ("uint8", "bool") else -3
    return random.integers(low, 2 if dtype == "bool" else 4, shape).astype(dtype_called(dtype))


def traced(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[Any, ArrayRecorder]:
    """What the function gives for stand-ins of the leaves `a`, `b`, `c`, …"""
    recorder = ArrayRecorder()
    stand_ins = [
        source_stand_in(
            "source", Leaf(Key.parse(text), LeafKind.ARRAY, ArraySpec(a.shape, a.dtype)), recorder
        )
        for text, a in named(arrays).items()
    ]
    with tracing(recorder, function):
        result = function(*stand_ins)
    return result, recorder


def expression_of(value: Any) -> str:
    """The text of a stand-in's expression."""
    return ast.unparse(value._node)


def named(arrays: tuple[np.ndarray, ...]) -> Mapping[str, np.ndarray]:
    return dict(zip("abcdefgh", arrays, strict=False))


def computed(value: StandIn, recorder: ArrayRecorder, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What the recipe language makes of the expression."""
    functions: dict[str, Callable[..., Any]] = {}
    for name, constant in recorder.constants.items():
        functions[name] = lambda constant=constant: constant
        functions[f"infer_{name}"] = lambda constant=constant: (constant.shape, constant.dtype)
    scope = Scope({"source": Samples(arrays), "hooks": HookFunctions(functions)})
    found = parse(expression_of(value)).evaluate(scope)
    node = found.rounded_to_declared()
    whole = Region.whole(node.spec.shape)
    return np.asarray(evaluate(node, whole, lambda s, leaf, r: arrays[leaf.key.text][r.slices]))


def check(function: Callable[..., Any], *arrays: np.ndarray, units: int = 0) -> None:
    """Whether expressions and function give the same, bit for bit, or else as near as `units` last places."""
    result, recorder = traced(function, *arrays)
    with np.errstate(all="ignore"):
        wanted = function(*(array.copy() for array in arrays))
    ours, theirs = jax.tree.leaves(result), jax.tree.leaves(wanted)
    assert len(ours) == len(theirs)
    for value, array in zip(ours, theirs, strict=True):
        assert isinstance(value, StandIn), value
        assert value.shape == np.shape(array), expression_of(value)
        assert value.dtype == array.dtype, expression_of(value)
        assert value.library == ("jax" if isinstance(array, jax.Array) else "numpy"), repr(value)
        compare(computed(value, recorder, named(arrays)), np.asarray(array), expression_of(value), units)


def compare(found: np.ndarray, wanted: np.ndarray, expression: str, units: int = 0) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), expression
    if units:
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        near = units * float(ml_dtypes.finfo(found.dtype).eps) * max(1.0, float(np.abs(b).max(initial=0)))
        assert np.allclose(a, b, rtol=0, atol=near, equal_nan=True), expression
        return
    nans = found != found
    assert np.array_equal(nans, wanted != wanted), expression
    same = found.tobytes() == wanted.tobytes()
    assert same or found[~nans].tobytes() == wanted[~nans].tobytes(), (expression, found, wanted)
