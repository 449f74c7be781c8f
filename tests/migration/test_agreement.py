"""An expression against its function: the same, another result, or nothing known."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ckpt_surgery.migration.agreement import Verdict, verdict

X = np.float32([[1, -2], [3, 4]])


@pytest.mark.parametrize(
    ("expression", "function", "expected"),
    [
        ("x * 2", lambda v: v * 2, Verdict.SAME),
        ("x * 2", lambda v: jnp.asarray(v) * 2, Verdict.SAME),
        ("x * 2", lambda v: v * 2.0001, Verdict.DIFFERENT),
        ("x * 2", lambda v: (v * 2).T, Verdict.DIFFERENT),
        ("x * 2", lambda v: (v * 2)[0], Verdict.DIFFERENT),
        ("x * 2", lambda v: (v * 2).astype(np.float64), Verdict.DIFFERENT),
        ("x.shape[0]", lambda v: v.shape[0], Verdict.UNSAID),
        ("x / 0", lambda v: v / 0, Verdict.SAME),
        ("x[5]", lambda v: v[5], Verdict.FAILS),
        ("x[:5]", lambda v: v[:5], Verdict.UNSAID),
        ("x", lambda v: "text", Verdict.UNSAID),
        ("source['x'] + x", lambda v: v + v, Verdict.SAME),
        ("source[key] + x", lambda v: v + v, Verdict.SAME),
        ("source['y']", lambda v: v, Verdict.UNSAID),
    ],
)
def test_verdicts(expression: str, function: Callable[[Any], Any], expected: Verdict) -> None:
    assert verdict(expression, lambda: function(X), {"x": X}, "x") is expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda v: v * 3, Verdict.SAME),
        (lambda v: jnp.asarray(v) * 3, Verdict.UNSAID),
        (lambda v: jnp.asarray(v) * 4, Verdict.DIFFERENT),
        (lambda v: (v * 3).astype(np.int32), Verdict.DIFFERENT),
    ],
)
def test_64_bits(function: Callable[[Any], Any], expected: Verdict) -> None:
    array = np.arange(4)
    assert verdict("x * 3", lambda: function(array), {"x": array}) is expected
