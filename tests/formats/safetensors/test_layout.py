"""Which tensor goes into which file, and where."""

import numpy as np
import pytest

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.formats.registry import SinkOptions
from ckpt_surgery.formats.safetensors.layout import layout, tensors_by_file
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
    found = tensors_by_file(leaves(**sizes), limit)
    assert ["".join(tensor.name for tensor in tensors) for tensors in found] == wanted
    assert sum(tensors[-1].stop for tensors in found if tensors) == sum(sizes.values())


def test_files_are_numbered_only_where_there_are_several() -> None:
    def names(shard_size: int | None, file_name: str | None = None, **sizes: int) -> list[str]:
        options = SinkOptions(shard_size=shard_size, file_name=file_name)
        return [file.name for file in layout(leaves(**sizes), options)]

    assert names(5, a=5, b=5) == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    assert names(5, a=5) == ["model.safetensors"]
    assert names(None, "x", a=5) == ["x"]


def test_wide_elements_come_first_and_equal_ones_keep_their_order() -> None:
    tensors = [
        array_leaf("byte", (3,), np.dtype(np.uint8)),
        array_leaf("wide", (2,), np.dtype(np.float64)),
        array_leaf("half", (3,), np.dtype(np.float16)),
        array_leaf("last", (1,), np.dtype(np.float64)),
    ]
    [found] = tensors_by_file(tensors, None)
    places = [(tensor.name, tensor.start, tensor.stop) for tensor in found]
    assert places == [("wide", 0, 16), ("last", 16, 24), ("half", 24, 30), ("byte", 30, 33)]
