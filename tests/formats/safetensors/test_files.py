"""Which tensor goes into which file, and where."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.safetensors.files import plan_files
from tests.support.leaves import array_leaf


def leaves(**sizes: int) -> list[Leaf]:
    """Arrays of so many bytes."""
    return [array_leaf(name, (size,), np.dtype(np.uint8)) for name, size in sizes.items()]


@pytest.mark.parametrize(
    ("sizes", "limit", "wanted"),
    [
        ({"a": 5, "b": 5, "c": 1}, 10, ["ab", "c"]),  # just full
        ({"a": 5, "b": 6}, 10, ["a", "b"]),  # one byte too many
        ({"a": 50, "b": 1, "c": 50}, 10, ["a", "b", "c"]),  # larger than a file
        ({"a": 50}, 10, ["a"]),
        ({"a": 5, "b": 50, "c": 5}, None, ["abc"]),
        ({"a": 0, "b": 10, "c": 0}, 10, ["abc"]),  # nothing fits anywhere
        ({"a": 1, "b": 1}, 0, ["a", "b"]),
        ({}, 10, [""]),
    ],
)
def test_files_are_filled_in_the_order_of_the_leaves(
    sizes: dict[str, int], limit: int | None, wanted: list[str]
) -> None:
    found = plan_files(leaves(**sizes), limit)
    assert ["".join(tensor.name for tensor in file.tensors) for file in found] == wanted
    assert sum(file.data_bytes for file in found) == sum(sizes.values())


def test_files_are_numbered_only_where_there_are_several() -> None:
    assert [file.name for file in plan_files(leaves(a=5, b=5), 5)] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert [file.name for file in plan_files(leaves(a=5), 5)] == ["model.safetensors"]
    assert [file.name for file in plan_files(leaves(a=5), None, "x")] == ["x"]


def test_wide_elements_come_first_and_equal_ones_keep_their_order() -> None:
    tensors = [
        array_leaf("byte", (3,), np.dtype(np.uint8)),
        array_leaf("pairs", (6,), np.dtype(ml_dtypes.float4_e2m1fn)),
        array_leaf("wide", (2,), np.dtype(np.float64)),
        array_leaf("half", (3,), np.dtype(np.float16)),
        array_leaf("last", (1,), np.dtype(np.float64)),
    ]
    [file] = plan_files(tensors, None)
    places = [(tensor.name, tensor.start, tensor.stop) for tensor in file.tensors]
    # Two elements of `pairs` share a byte.
    assert places == [
        ("wide", 0, 16),
        ("last", 16, 24),
        ("half", 24, 30),
        ("byte", 30, 33),
        ("pairs", 33, 36),
    ]
    assert file.data_bytes == 36
