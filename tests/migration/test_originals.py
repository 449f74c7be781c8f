"""What is known of the tree that transforms are applied to: the tree itself, or a listing."""

from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.live.tree import live_tree
from ckpt_surgery.migration.originals import Original, original_of_leaves, original_of_live

TREE: Any = {
    "a": [np.float32([1, 2]), {"b": 3}],
    "e": {"dict": {}, "list": [], "none": None},
    "f": 0.5,
    "t": "text",
}


def listed(directory: Path) -> Original:
    ocp.PyTreeCheckpointer().save(directory / "tree", TREE)
    return original_of_leaves(
        {leaf.key.text: leaf for leaf in ckpt_surgery.inspect(directory / "tree").leaves}
    )


@pytest.mark.parametrize("known", ["tree", "listing"])
def test_the_tree_with_other_values(tmp_path: Path, known: str) -> None:
    original = original_of_live(live_tree(TREE)) if known == "tree" else listed(tmp_path)
    assert list(original.numeric) == ["a/0", "a/1/b", "f"]
    assert original.rebuilt({"a/0": 1, "a/1/b": 2, "f": 3}) == {**TREE, "a": [1, {"b": 2}], "f": 3}
    assert [original.number_at(text) for text in original.numeric] == [False, True, True]
    assert original.given("a/1/b", np.asarray(5)) == 5
    assert type(original.given("a/1/b", np.asarray(5))) is int
    assert isinstance(original.given("a/0", np.ones(2)), np.ndarray)
