"""Small arrays for comparing a function with its expression."""

import ast
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec

SHAPES = ((4, 6), (4, 4), (6,), (2, 4, 6), (2, 3, 4, 6), ())
"""Shapes for a function without known inputs."""
DTYPES = ("float32", "float64", "int64", "int32", "float16", "bfloat16")
"""Dtypes with which such a function is tried, in a shape that it works on."""
OF_JAX = ("float32", "int32", "bfloat16")
"""Dtypes of which it is also tried on arrays of JAX."""
EITHER = ("int32", "bfloat16")
"""Dtypes whose sums and quotients have other dtypes in NumPy than in JAX."""
MOST_ELEMENTS = 1 << 22
"""Limit on the elements of a sample whose shape follows from the numbers in an expression."""


def drawn(spec: ArraySpec, seed: int) -> np.ndarray:
    """Draw random values without 0: positive and negative ones, if the dtype has both."""
    random = np.random.default_rng(seed)
    if spec.dtype == np.bool_:
        return np.asarray(random.integers(0, 2, spec.shape) > 0)
    if spec.dtype.kind in "iu":
        signs = 1 if spec.dtype.kind == "u" else random.choice([-1, 1], spec.shape)
        return np.asarray(random.integers(1, 7, spec.shape) * signs).astype(spec.dtype)
    return np.asarray(random.normal(size=spec.shape) * 2).astype(spec.dtype)


def as_jax(array: np.ndarray) -> Any:
    """Convert to an array of JAX with the same values."""
    import jax.numpy as jnp

    return jnp.asarray(array)


def usual_specs(expression: str) -> Iterator[ArraySpec]:
    """Yield specs of float32 arrays that fit a function with this expression."""
    for shape in dict.fromkeys((*SHAPES, *_shapes_of_numbers(expression))):
        yield ArraySpec(shape, np.dtype(np.float32))


def _shapes_of_numbers(expression: str) -> Iterator[tuple[int, ...]]:
    """Yield shapes that are large enough for an expression's indices, and fit its reshapes."""
    tree = ast.parse(expression, mode="eval")
    numbers = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    largest = max(numbers, default=0)
    if 1 < largest <= 1024:
        yield from ((2 * largest,), (largest + 1, largest + 1), (3, 2 * largest), (2 * largest, 3))
    elif 1024 < largest <= MOST_ELEMENTS // 8:
        yield from ((2 * largest,), (2 * largest, 3), (3, 2 * largest))
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            lengths = [n.value for n in node.elts if isinstance(n, ast.Constant) and type(n.value) is int]
            size = math.prod(lengths)
            if 0 < size <= MOST_ELEMENTS // 2:
                yield (size,)
                yield (2 * size,)


def shrunk(spec: ArraySpec) -> ArraySpec:
    """Shrink an array of the same rank. Axes of equal length stay equal, also across arrays."""
    return ArraySpec(tuple(n if n < 16 else 4 + n % 13 for n in spec.shape), spec.dtype)
