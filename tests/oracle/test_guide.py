"""The examples of Orbax's guide to transformations, as recipes in `recipes/examples/`.

Orbax's `apply_transformations` gives the expected results.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from orbax.checkpoint.transform_utils import Transform, apply_transformations

import ckpt_surgery
from tests.oracle.states import train_state
from tests.oracle.trees import Tree, assert_identical, operate, through_orbax

EXAMPLES = Path(__file__).parents[2] / "recipes" / "examples"

DENSE = {"a": 1, "dense_1": {"kernel": 2, "bias": 3}, "dense_2": {"kernel": 4, "bias": 5}}


@dataclass(frozen=True)
class Example:
    recipe: str
    original: Tree
    transforms: Tree
    new: Tree
    """The tree whose structure the result has; its values are not used."""


GUIDE = [
    Example(
        "rename",
        original={"a": 1, "b": 2},
        transforms={"a2": Transform(original_key="a"), "b2": Transform(original_key="b")},
        new={"a2": ..., "b2": ...},
    ),
    Example(
        "regex-rename",
        original={"a1": 1, "b5": 2},
        transforms={"([a-z])_([0-9])": Transform(original_key=r"\1\2")},
        new={"a_1": ..., "b_5": ...},
    ),
    Example(
        "nested-rename",
        original=DENSE,
        transforms={
            "([a-z]+)_NEW": Transform(original_key=r"\1"),
            "([a-z]+)_([0-9])_NEW/([a-z]+)_1": Transform(original_key=r"\1_\2/\3"),
        },
        new={
            "a_NEW": ...,
            "dense_1_NEW": {"kernel_1": ..., "bias_1": ...},
            "dense_2_NEW": {"kernel_1": ..., "bias_1": ...},
        },
    ),
    Example(
        "value-functions",
        original={"a": 1, "b": 2},
        transforms={
            "a": Transform(value_fn=lambda v: v * 2),
            "b2": Transform(value_fn=lambda v: v * 3, original_key="b"),
        },
        new={"a": ..., "b2": ...},
    ),
    Example(
        "regex-value-functions",
        original={"a1": 1, "a2": 2, "b": 3},
        transforms={
            r"a([0-9]?)\*2": Transform(value_fn=lambda v: v * 2, original_key=r"a\1"),
            r"b([0-9]?)\*3": Transform(value_fn=lambda v: v * 3, original_key=r"b\1"),
        },
        new={"a1*2": ..., "a2*2": ..., "b*3": ...},
    ),
    Example(
        "flatten",
        original=DENSE,
        transforms={
            "([a-z]+)": Transform(original_key=r"\1"),
            "([a-z]+)_([0-9])_([a-z]+)": Transform(original_key=r"\1_\2/\3"),
        },
        new={
            "a": ...,
            "dense_1_kernel": ...,
            "dense_1_bias": ...,
            "dense_2_kernel": ...,
            "dense_2_bias": ...,
        },
    ),
    Example(
        "multi-value-functions",
        original={"a": np.array([1, 2, 3, 4]), "b": {"c": np.array([5, 6, 7, 8])}},
        transforms={
            "a": Transform(multi_value_fn=lambda _, tree: np.asarray(tree["a"][-1])),
            "b": {"c": Transform(multi_value_fn=lambda _, tree: tree["a"] + tree["b"]["c"])},
        },
        new={"a": ..., "b": {"c": ...}},
    ),
    Example(
        "averaging",
        original={"a": {"a_1": 1, "a_2": 2}, "b": {"b_1": 3, "b_2": 4, "b_3": 5}},
        transforms={
            "([a-z]+)": Transform(multi_value_fn=lambda key, tree: sum(tree[key].values()) / len(tree[key]))
        },
        new={"a": ..., "b": ...},
    ),
    Example(
        "named-groups",
        original={"dense_1": {"kernel": 2, "bias": 3}},
        transforms={
            "(?P<layer>[a-z]+)_(?P<num>[0-9])_(?P<weight>[a-z]+)": Transform(
                original_key=r"\g<layer>_\g<num>/\g<weight>"
            )
        },
        new={"dense_1_kernel": ..., "dense_1_bias": ...},
    ),
]


@pytest.mark.parametrize("example", GUIDE, ids=lambda example: example.recipe)
def test_as_in_the_guide(tmp_path: Path, example: Example) -> None:
    ours = operate(tmp_path, EXAMPLES / f"{example.recipe}.yaml", example.original)
    expected = apply_transformations(example.original, example.transforms, example.new)
    assert_identical(ours, through_orbax(tmp_path, expected))


def test_layers_are_inserted_into_a_train_state(tmp_path: Path) -> None:
    old, fresh = train_state(8, 8, start=1), train_state(8, 8, 8, 4, start=100)
    transforms = {
        "(.*)Dense_0(.*)": Transform(use_fallback=True),
        "(.*)Dense_1(.*)": Transform(original_key=r"\1Dense_0\2"),
        "(.*)Dense_2(.*)": Transform(original_key=r"\1Dense_1\2"),
    }
    ours = operate(tmp_path, EXAMPLES / "insert-layers.yaml", old, target=fresh)
    assert_identical(ours, through_orbax(tmp_path, apply_transformations(old, transforms, fresh)))


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {
        *(example.recipe for example in GUIDE),
        "insert-layers",
    }


def test_every_example_is_without_problems_and_says_what_it_does() -> None:
    paths = sorted(EXAMPLES.glob("*.yaml"))
    assert [problems for _, problems in ckpt_surgery.lint(paths)] == [()] * len(paths)
    assert all(path.read_text().startswith("# ") for path in paths)
