"""`opaque`: functions of arrays that are called when a leaf is made."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import DataError, UsageError

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int32)}


def restored(function: Any) -> Any:
    """What `x` becomes where a function of the tree gives it."""
    return ckpt_surgery.restore(lambda tree: {"x": function(tree)}, TREE)["x"]


def test_it_is_not_called_before_a_leaf_is_made() -> None:
    calls: list[Any] = []
    record = ckpt_surgery.opaque(lambda x: calls.append(x.shape) or x)
    ckpt_surgery.plan(lambda tree: {"x": record(tree["a"])}, TREE)
    assert not calls
    assert restored(lambda tree: record(tree["a"])).shape == (2, 3)
    assert calls == [(2, 3)]


@pytest.mark.parametrize(
    ("options", "function"),
    [
        ({"shape": (3, 2)}, lambda x: x.T),
        ({"shape": 2}, lambda x: x.sum(1)),
        ({"shape": ()}, lambda x: x.sum()),
        ({"dtype": "bfloat16"}, lambda x: x.astype("bfloat16")),
        ({"dtype": np.int32, "shape": [6]}, lambda x: x.reshape(-1).astype(np.int32)),
    ],
)
def test_shape_and_dtype_can_be_said(options: Any, function: Any) -> None:
    found = restored(lambda tree: ckpt_surgery.opaque(function, **options)(tree["a"]))
    wanted = np.asarray(function(TREE["a"]))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_results_can_be_computed_with_and_one_function_called_several_times() -> None:
    half = ckpt_surgery.opaque(lambda x: x / 2)

    def change(tree: Any) -> Any:
        once = half(tree["a"])
        return (half(once) + 1)[:, ::2] * half(np.float32([[4.0], [8.0]]))

    np.testing.assert_array_equal(restored(change), change(TREE))


def test_arrays_of_the_program_are_arguments_too() -> None:
    table = np.arange(40, dtype=np.float32).reshape(20, 2)
    take = ckpt_surgery.opaque(lambda x, rows, which: rows[which].sum() + x)
    found = restored(lambda tree: take(tree["a"], table, np.array([1, 3])))
    np.testing.assert_array_equal(found, TREE["a"] + table[[1, 3]].sum())


def test_elsewhere_it_is_the_function() -> None:
    @ckpt_surgery.opaque
    def double(x: Any) -> Any:
        """Twice x."""
        return x * 2

    assert (double(3), double.__name__, double.__doc__) == (6, "double", "Twice x.")


def test_what_it_raises_is_an_error_of_the_data_with_its_line() -> None:
    @ckpt_surgery.opaque
    def fail(x: Any) -> Any:
        raise ValueError("singular")

    with pytest.raises(DataError, match=r"`fail` raised ValueError: singular") as caught:
        restored(lambda tree: fail(tree["a"]))
    assert Path(__file__).name in str(caught.value)
    assert "`x`" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "options"),
    [(3, {}), (len, {"shape": (-1,)}), (len, {"shape": "x"}), (len, {"dtype": "float33"})],
)
def test_what_is_no_function_shape_or_dtype_is_refused(function: Any, options: Any) -> None:
    with pytest.raises(UsageError, match="`opaque`"):
        ckpt_surgery.opaque(function, **options)
