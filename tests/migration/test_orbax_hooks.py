"""Functions of transforms as hooks: their names, what they get, and what is known of their results."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.migration import orbax_transforms
from ckpt_surgery.migration.orbax_transforms import AddedHooks, TransformHook, inferred


def spec(shape: tuple[int, ...], dtype: Any = np.float32) -> ArraySpec:
    return ArraySpec(shape, np.dtype(dtype))


def cleared(v: Any) -> Any:
    v[0] = 0
    return v


def test_names_are_those_of_the_functions() -> None:
    def _hidden(v: Any) -> Any:
        return v

    def infer_it(v: Any) -> Any:
        return v

    hooks = AddedHooks()
    given = [cleared, cleared, _hidden, lambda v: v, Doubled(), infer_it]
    names = [hooks.added(TransformHook(function, function), function) for function in given]
    assert names == ["cleared", "cleared_2", "hidden", "function", "function_2", "it"]
    assert set(hooks.functions) == {*names, *(f"infer_{name}" for name in names)}


class Doubled:
    def __call__(self, v: Any) -> Any:
        return v * 2


@pytest.mark.parametrize("elements", [1 << 20, 0], ids=["called", "traced"])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda v: v[:, :1] * 2, ((4, 1), np.float32)),
        (lambda v: jnp.mean(v, axis=0), ((6,), np.float32)),
        (lambda v: v.astype(ml_dtypes.bfloat16), ((4, 6), ml_dtypes.bfloat16)),
        (lambda v: np.sort(v) if v[0, 0] > 0 else v[0], ((4, 6), np.float32)),
        (lambda v: 3, ((), np.int64)),
    ],
)
def test_what_is_known_of_a_result(
    monkeypatch: pytest.MonkeyPatch, function: Any, expected: Any, elements: int
) -> None:
    monkeypatch.setattr(orbax_transforms, "CALLED_TO_INFER", elements)
    if elements == 0 and expected[0] == ():
        expected = ((), np.int32)  # as JAX has it
    assert inferred(function, [spec((4, 6))]) == expected


def test_64_bits_are_not_narrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orbax_transforms, "CALLED_TO_INFER", 0)
    assert inferred(lambda v: v * 2, [spec((2,), np.float64)]) == ((2,), np.float64)
