"""Saving, operating on and restoring small trees, with stock Orbax at both ends."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.api import applying
from tests.support.heavy import jax, ocp

Tree = Any


def save(path: Path, tree: Tree) -> Path:
    ocp.PyTreeCheckpointer().save(path, tree)
    return path


def restore(path: Path) -> Tree:
    """The tree that stock Orbax restores when it is given no structure: nested dicts and lists."""
    return ocp.PyTreeCheckpointer().restore(path)


def through_orbax(directory: Path, tree: Tree) -> Tree:
    """The tree that a checkpoint of `tree` gives: all containers become dicts and lists."""
    return restore(save(directory / "expected", tree))


def operate(
    directory: Path, recipe: str | Mapping[str, Any] | Path, *originals: Tree, target: Tree = None
) -> Tree:
    """Save the trees, apply the recipe (YAML text, a mapping, or a file), restore the result."""
    if not isinstance(recipe, Path):
        text = recipe if isinstance(recipe, str) else json.dumps(recipe)
        recipe = directory / "recipe.yaml"
        recipe.write_text(text)
    sources = [save(directory / f"source_{i}", tree) for i, tree in enumerate(originals)]
    towards = None if target is None else save(directory / "target", target)
    applying.apply(recipe, *sources, dst=directory / "result", target=towards)
    return restore(directory / "result")


def assert_identical(ours: Tree, theirs: Tree) -> None:
    """Assert that two trees have the same containers, and leaves of the same types, dtypes and bits."""
    structures: list[Any] = [jax.tree.structure(ours), jax.tree.structure(theirs)]
    assert structures[0] == structures[1]
    for (path, one), (_, other) in zip(
        jax.tree_util.tree_leaves_with_path(ours), jax.tree_util.tree_leaves_with_path(theirs), strict=True
    ):
        where = jax.tree_util.keystr(path)
        assert type(one) is type(other), where
        if isinstance(other, np.ndarray | np.generic | jax.Array):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), where
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), where
        else:
            assert one is other or one == other, where
