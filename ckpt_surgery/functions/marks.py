"""Marks of elements: bits of a uint8 that every element made of a marked one gets too.

They tell whether NaN and infinity in a result come from the inputs. Only blocks with such elements get
marks.
"""

from collections.abc import Callable, Sequence

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region

MARK = np.dtype(np.uint8)
BITS = 2
"""Number of bits in use."""

Blocks = Sequence[np.ndarray]
Needs = Callable[[Region], list[tuple[int, Region]]]
"""Regions of the inputs that a region of a result is computed from, as (input number, region)."""
Applied = Callable[[Sequence[ArraySpec], Blocks], np.ndarray]
"""The result of a function for inputs of these shapes and dtypes."""


def as_marks(ins: Sequence[ArraySpec]) -> list[ArraySpec]:
    """Shapes and dtype of the marks of these inputs."""
    return [ArraySpec(spec.shape, MARK) for spec in ins]


def one_by_one(region: Region, needs: Needs, marks: Blocks) -> np.ndarray:
    """The marks of a region of a result, found by asking what each of its elements needs."""
    result: np.ndarray = np.zeros(region.shape, MARK)
    given = list(zip(needs(region), marks, strict=True))
    for index in np.ndindex(region.shape):
        starts = tuple(start + i for start, i in zip(region.starts, index, strict=True))
        for number, part in needs(Region(starts, tuple(start + 1 for start in starts))):
            for (other, whole), block in given:
                if other == number and part.common(whole) == part:
                    result[index] |= np.bitwise_or.reduce(block[part.within(whole)], axis=None)
                    break
    return result


def of_products(apply: Applied, ins: Sequence[ArraySpec], marks: Blocks) -> np.ndarray:
    """The marks of sums of products: an element of the result is marked where one marked factor is in it.

    For each bit and input, the function is applied to 1 at marked elements and 0 at others; the other inputs
    are 1.
    """
    specs = [ArraySpec(spec.shape, np.dtype(np.float32)) for spec in ins]
    ones = [np.ones(block.shape, np.float32) for block in marks]
    found: np.ndarray | None = None
    for number, block in enumerate(marks):
        for bit in range(BITS):
            if not (chosen := block >> bit & 1).any():
                continue
            factors = [*ones[:number], chosen.astype(np.float32), *ones[number + 1 :]]
            joined = (apply(specs, factors) != 0).astype(MARK) << bit
            found = joined if found is None else found | joined
    assert found is not None, "without marks there is nothing to join"
    return np.asarray(found, MARK)
