"""Random transforms on random trees: the recipe gives what Orbax gives, wherever Orbax gives anything."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orbax.checkpoint.transform_utils import Transform, apply_transformations

import ckpt_surgery
from ckpt_surgery.migration.orbax_transforms import from_orbax_transforms
from tests.oracle.trees import Tree, assert_identical
from tests.support.effort import examples

NAMES = ("a", "b", "ab", "c")
PATTERNS = (
    ".*",
    "a.*",
    ".*b",
    "(.*)/b",
    "([abc]+)",
    "([abc]+)(/.*)?",
    "[^/]*",
    "(?P<n>a|b).*",
    "c|ab",
    r"\w+",
    "a",
)
KEYS = ("first", "second", "old/a", "old/b", r"old/\1", r"old/\g<n>", "second", "first")


OLD = {
    "first": np.full((2, 3), 100, np.float32),
    "second": np.full((2, 3), 200, np.float32),
    "old": {name: np.full((2, 3), 300 + i, np.float32) for i, name in enumerate(NAMES)},
}
"""What every original has besides, so that most transforms find what they name."""


def tenfold(value: Any) -> Any:
    return value * 10


def both(key: str, tree: Tree) -> Any:
    return tree["first"] + tree["second"] * 2


def leaf(start: int) -> Any:
    return st.integers(start, start + 9).map(lambda n: np.full((2, 3), n, np.float32))


def trees(start: int) -> Any:
    inner = st.one_of(leaf(start), st.fixed_dictionaries({"a": leaf(start), "b": leaf(start)}))
    return st.dictionaries(st.sampled_from(NAMES), inner, min_size=2)


@st.composite
def transforms_of(draw: st.DrawFn) -> Tree:
    """Transforms whose regular expressions overlap."""
    keys = st.sampled_from(KEYS)
    fixed = [Transform(use_fallback=True)] * 4 + [Transform(multi_value_fn=both)] * 3
    made = st.one_of(
        st.sampled_from([*fixed, Transform(), Transform(value_fn=tenfold)]),
        keys.map(lambda key: Transform(original_key=key)),
        keys.map(lambda key: Transform(original_key=key, value_fn=tenfold)),
    )
    found: Tree = draw(st.dictionaries(st.sampled_from(PATTERNS), made, min_size=3, max_size=5))
    return {pattern: t for pattern, t in found.items() if has_groups(pattern, t.original_key or "")}


def has_groups(pattern: str, key: str) -> bool:
    """Whether the regular expression has the groups that a key names; others are refused."""
    return (r"\1" not in key or "(" in pattern) and ("<n>" in pattern or "<n>" not in key)


@pytest.mark.slow("tries random transforms")
@examples(40)
@given(trees(0), trees(50), transforms_of(), st.booleans())
def test_overlapping_transforms(original: Tree, new: Tree, transforms: Tree, default: bool) -> None:
    original = {**original, **OLD}
    recipe = from_orbax_transforms(transforms, default_to_original=default)
    assert not recipe.hooks
    try:
        expected = apply_transformations(original, transforms, new, default)
    except ValueError:  # a key that the original does not have, of a transform that may be overruled
        return
    assert_identical(ckpt_surgery.restore(recipe, original, target=new), expected)
