"""What Orbax's own tests of `transform_utils` look at, and where recipes differ on purpose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flax.struct
import numpy as np
import pytest
from orbax.checkpoint.transform_utils import (
    Transform,
    apply_transformations,
    intersect_trees,
    merge_trees,
)

from ckpt_surgery.core.errors import SurgeryError
from tests.oracle.trees import Tree, assert_identical, operate, through_orbax

UNSET = -1
"""A value of the new tree that must not be in the result."""

ORIGINAL = {"a": 0, "b": 1, "c": {"a": 2, "e": 3}}


@flax.struct.dataclass
class Inner:
    x: Mapping[str, int]
    y: list[int]


@flax.struct.dataclass
class Before:
    a: int
    b: np.ndarray
    c: Inner


@flax.struct.dataclass
class After:
    a1: int
    b: np.ndarray
    c: Inner
    d: float
    e: int
    f: list[int]


@flax.struct.dataclass
class Merged:
    a: int
    b: Mapping[str, int]
    f: int
    g: int


@dataclass(frozen=True)
class Case:
    reason: str
    original: Tree
    transforms: Tree
    new: Tree
    default_to_original: bool = True

    def oracle(self) -> Tree:
        return apply_transformations(self.original, self.transforms, self.new, self.default_to_original)


CASES = [
    Case(
        "no rule at all: the target's structure, the source's values",
        original=ORIGINAL,
        transforms={},
        new={"a": UNSET, "b": UNSET, "c": {"a": UNSET, "e": UNSET}},
    ),
    Case(
        "nothing in common: all from the target",
        original={"z": 5},
        transforms={},
        new={"a": 1},
    ),
    Case(
        "renamed, moved up, copied twice, dropped, taken from the target by rule and by default",
        original=ORIGINAL,
        transforms={
            "a1": Transform(original_key="a"),
            "c": {"a": Transform()},
            "e1": Transform(original_key="c/e"),
            "f": Transform(use_fallback=True),
            "ca1": Transform(original_key="c/a"),
            "ca2": Transform(original_key="c/a"),
        },
        new={"a1": UNSET, "c": {"a": UNSET}, "e1": UNSET, "f": None, "g": 100, "ca1": UNSET, "ca2": UNSET},
    ),
    Case(
        "the target is preferred: fallback means the source's value then",
        original=ORIGINAL,
        transforms={"a": Transform(use_fallback=True), "b1": Transform(original_key="b")},
        new={"a": UNSET, "c": {"a": 10, "e": 11}, "b1": UNSET, "f": None, "g": 2},
        default_to_original=False,
    ),
    Case(
        "the source is preferred: fallback for a key that only the target has",
        original=ORIGINAL,
        transforms={"f": Transform(use_fallback=True)},
        new={"a": 2, "b": 3, "c": {"a": 7, "e": 8}, "f": 20},
    ),
    Case(
        "regular expressions with groups, on several levels, with and without a value",
        original={
            "a1": 1,
            "c": {"a2": {"d": 2}, "a3": 3},
            "d": {"e1": 2, "e2": 4},
            "f": {"e3": 6, "e4": {"a": 1}},
        },
        transforms={
            r"(.*)x(\d.*)": Transform(original_key=r"\1a\2"),
            r"(.*)y(\d)": Transform(original_key=r"\1e\2", value_fn=lambda v: v * 2),
        },
        new={
            "x1": UNSET,
            "c": {"x2": {"d": UNSET}, "x3": UNSET},
            "d": {"y1": UNSET, "y2": UNSET},
            "f": {"y3": UNSET},
        },
    ),
    Case(
        "a value function on every leaf",
        original={"a": np.arange(3.0), "b": {"c": np.arange(4, dtype=np.int16)}, "n": 5, "r": 0.5},
        transforms={".*": Transform(value_fn=lambda v: v * 2)},
        new={"a": np.zeros(3), "b": {"c": np.zeros(4, np.int16)}, "n": UNSET, "r": float(UNSET)},
    ),
    Case(
        "functions of several values: many to one, one to many, many to many",
        original=ORIGINAL,
        transforms={
            "a": Transform(multi_value_fn=lambda _, tree: tree["a"] * 2 + 20),
            "c": {"a": Transform(multi_value_fn=lambda _, tree: tree["c"]["a"] + tree["c"]["e"])},
            "w": Transform(multi_value_fn=lambda _, tree: tree["a"] + tree["b"]),
            "x1": Transform(multi_value_fn=lambda _, tree: tree["a"] + tree["b"] * 2),
            "y": Transform(multi_value_fn=lambda _, tree: tree["a"]),
            "z": Transform(multi_value_fn=lambda _, tree: tree["a"]),
        },
        new={"a": UNSET, "c": {"a": UNSET}, "w": UNSET, "x1": UNSET, "y": UNSET, "z": UNSET},
    ),
    Case(
        "trees that are not dicts: dataclasses and lists",
        original=Before(a=10, b=np.arange(3), c=Inner(x={"i": 0, "j": 1}, y=[4, 5, 6])),
        transforms=After(
            a1=Transform(original_key="a"),
            b=Transform(multi_value_fn=lambda _, tree: tree.b * 2),
            c=Inner(x={"i": Transform(), "j": Transform()}, y=[Transform(), Transform(), Transform()]),
            d=Transform(use_fallback=True),
            e=Transform(multi_value_fn=lambda _, tree: tree.c.y[0]),
            f=[
                Transform(multi_value_fn=lambda _, tree: tree.c.y[1]),
                Transform(multi_value_fn=lambda _, tree: tree.c.y[2]),
            ],
        ),
        new=After(
            a1=UNSET,
            b=np.zeros(3, int),
            c=Inner(x={"i": UNSET, "j": UNSET}, y=[UNSET] * 3),
            d=7,
            e=UNSET,
            f=[UNSET] * 2,
        ),
    ),
]


REFUSED = [
    Case(
        "the rule's own key is not in the source",
        original={"a": 1},
        transforms={"b": Transform()},
        new={"b": UNSET},
    ),
    Case(
        "the original key is not in the source",
        original=ORIGINAL,
        transforms={r"(\w)1": Transform(original_key=r"\1")},
        new={"a1": UNSET, "q1": UNSET},
    ),
    Case(
        "the target is preferred, and fallback asks for a source leaf that is not there",
        original=ORIGINAL,
        transforms={"f": Transform(use_fallback=True)},
        new={"a": 2, "f": 20},
        default_to_original=False,
    ),
]


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    """Orbax gives an empty tree, which it then refuses to save; a recipe is refused at once."""
    empty = apply_transformations(ORIGINAL, {}, {})
    assert empty == {}
    with pytest.raises(ValueError, match="empty"):
        through_orbax(tmp_path, empty)
    with pytest.raises(SurgeryError):
        operate(tmp_path, "{version: 1, unmatched: drop, rules: []}", ORIGINAL)
    assert not (tmp_path / "result").exists()


ONE: dict[str, Any] = {"a": 1, "b": {"c": 2, "d": 3}}
TWO: dict[str, Any] = {"a": 2, "b": {"c": 4, "e": 6}}
FOUR: dict[str, Any] = {"f": 7, "g": 8}

MERGE = """
version: 1
sources: [one, two, four]
rules:
  - {match: '.*', source: four}
  - {match: '.*', source: two, when: 'not has(four[key])'}
  - {match: '.*', source: one, when: 'not has(two[key]) and not has(four[key])'}
  - {match: '.*', source: '*', drop: true}
"""

INTERSECT = """
version: 1
sources: [one, two]
unmatched: drop
rules:
  - {match: '.*', source: two, when: 'has(one[key])'}
"""


def test_merged_trees(tmp_path: Path) -> None:
    target = Merged(a=UNSET, b={"c": UNSET, "d": UNSET, "e": UNSET}, f=UNSET, g=UNSET)
    (tmp_path / "plain").mkdir()
    assert_identical(operate(tmp_path / "plain", MERGE, ONE, TWO, FOUR), merge_trees(ONE, TWO, {}, FOUR))
    ours = operate(tmp_path, MERGE, ONE, TWO, FOUR, target=target)
    assert_identical(ours, through_orbax(tmp_path, merge_trees(ONE, TWO, {}, FOUR, target=target)))


def test_intersected_trees(tmp_path: Path) -> None:
    assert_identical(operate(tmp_path, INTERSECT, ONE, TWO), intersect_trees(ONE, TWO))


@pytest.mark.parametrize(
    ("first", "second"), [("a.*", "ab"), ("ab", "a.*")], ids=["the wider first", "the narrower first"]
)
def test_the_first_rule_wins(tmp_path: Path, first: str, second: str) -> None:
    """In Orbax the last match wins, in the sorted order of the expressions, whatever order they have."""
    times: dict[str, Callable[[int], int]] = {"a.*": lambda v: v * 10, "ab": lambda v: v * 100}
    original = {"ab": 1, "ac": 1}
    transforms = {name: Transform(value_fn=times[name]) for name in (first, second)}
    assert apply_transformations(original, transforms, original) == {"ab": 100, "ac": 10}

    factors = {"a.*": 10, "ab": 100}
    rules = [{"match": name, "value": f"x * {factors[name]}"} for name in (first, second)]
    if first == "a.*":
        rules[1]["optional"] = True  # nothing is left for it
    ours = operate(tmp_path, {"version": 1, "rules": rules}, original)
    assert ours == {"ab": factors[first], "ac": 10}
