"""Whether arrays, and all that checkpoints hold, are the same bit for bit."""

from collections.abc import Mapping
from typing import Any


def same(found: Any, wanted: Any) -> bool:
    """Whether two arrays have equal dtype, shape and bits: NaN equals itself, and -0.0 is not 0.0."""
    return bits(found) == bits(wanted)


def bits(array: Any) -> tuple[Any, tuple[int, ...], bytes]:
    """All that makes an array: dtype, shape, and the bytes of its elements in C order."""
    return array.dtype, array.shape, array.tobytes()


def assert_same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Assert equal keys; arrays of equal dtypes, shapes and bits; other values that compare equal."""
    assert sorted(found) == sorted(wanted)
    for key, value in wanted.items():
        if hasattr(value, "dtype"):
            assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape), key
            assert found[key].tobytes() == value.tobytes(), key
        else:
            assert found[key] == value, key
