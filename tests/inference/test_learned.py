"""Sums and products that one leaf shows, tried on others."""

import numpy as np
import pytest

from ckpt_surgery.inference.finding import resemblance
from ckpt_surgery.inference.formations import Evidence
from ckpt_surgery.inference.learned import found_by_operations
from tests.inference.two_sides import Arrays, normal, sides

LAYERS: Arrays = {f"l_{i}/s": normal(6, seed=i) for i in range(4)}


def values(source: Arrays, target: Arrays, *operations: str) -> dict[str, tuple[str, Evidence]]:
    one, other = sides(source, target)
    found = found_by_operations(operations, one, other, list(source), list(target), resemblance)
    return {formation.target: (str(formation.value), formation.evidence) for formation in found}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"s": LAYERS["l_2/s"] + np.float32(1)}, "x + 1.0"),
        ({"s": np.stack([LAYERS["l_1/s"], LAYERS["l_3/s"]]) + np.float32(1)}, "stack(xs) + 1.0"),
        ({"s": np.stack(list(LAYERS.values()), 1) + np.float32(1)}, "stack(xs, axis=1) + 1.0"),
    ],
)
def test_formations(target: Arrays, said: str) -> None:
    assert values(LAYERS, target, " * sqrt(7)", " + 1.0") == {"s": (said, Evidence.ARITHMETIC)}


def test_parts_are_those_of_the_changed_leaf() -> None:
    whole = {"s": normal(6, 4)}
    target = {f"l/{i}": whole["s"][:, i] * np.float32(2) for i in range(4)}
    made = values(whole, target, " * 2.0")
    assert {text for text, _ in made.values()} == {f"(x * 2.0)[:, {i}]" for i in range(4)}


def test_nothing_is_found_where_nothing_fits() -> None:
    assert values(LAYERS, {"s": normal(6, seed=9)}, " + 1.0") == {}
    assert values({"n": np.arange(4)}, {"m": np.arange(4) + 1}, " + 1") == {}
    assert values(LAYERS, {"s": LAYERS["l_0/s"] + np.float32(1)}) == {}
