"""Whether arrays and values are equal, element by element."""

import ml_dtypes
import numpy as np
import pytest

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.inference.expressions.formations import Evidence, Formation, X
from ckpt_surgery.inference.values import comparing
from ckpt_surgery.inference.values.comparing import equal, equal_elements
from ckpt_surgery.planner.cutting import side_by_side
from tests.inference.two_sides import side

NAN = np.array([1.0, np.nan, -0.0], np.float32)


@pytest.mark.parametrize(
    ("made", "wanted", "same"),
    [
        (NAN, NAN.copy(), True),
        (NAN, np.array([1.0, -np.nan, -0.0], np.float32), True),  # NaN is NaN, whatever its bits
        (NAN, np.array([1.0, np.nan, 0.0], np.float32), False),  # but zeros have a sign
        (NAN, np.array([np.nan, 1.0, -0.0], np.float32), False),
        (NAN.astype(ml_dtypes.bfloat16), NAN.astype(ml_dtypes.bfloat16), True),
        (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2).copy().reshape(2, 3), True),
        (
            np.arange(6).reshape(2, 3).T,
            np.arange(6).reshape(2, 3).T.copy(),
            True,
        ),  # in another order of memory
        (np.arange(6).reshape(2, 3), np.arange(6), False),
        (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.uint32), False),
        (np.zeros((0, 3)), np.zeros((0, 3)), True),
        (np.array(5), np.array(5), True),
    ],
)
def test_equal(made: np.ndarray, wanted: np.ndarray, same: bool) -> None:
    assert equal(made, wanted) is same


@pytest.mark.parametrize("at", [0, comparing.ELEMENTS - 1, comparing.ELEMENTS, 3 * comparing.ELEMENTS - 1])
def test_the_last_of_many_elements_counts_too(at: int) -> None:
    one = np.zeros(3 * comparing.ELEMENTS, np.int8)
    other = one.copy()
    assert equal(one, other)
    other[at] = 1
    assert not equal(one, other)


def test_a_leaf_is_compared_in_regions_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is made small for that; each element is read once, on both sides."""
    monkeypatch.setattr(comparing, "side_by_side", lambda values, budget: side_by_side(values, 1))
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    source, target = side({"a": array}), side({"b": array})
    read = target.read
    assert read is not None
    regions: list[Region] = []

    def counted(leaf: Leaf, region: Region) -> np.ndarray:
        regions.append(region)
        return read(leaf, region)

    object.__setattr__(target, "read", counted)
    assert equal_elements(Formation("b", ("a",), X, Evidence.VALUES, ""), source, target)
    assert len(regions) > 1
    assert sum(region.size for region in regions) == 12
