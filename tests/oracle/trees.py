"""Saving, operating on and restoring small trees, with stock Orbax at both ends."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckpt_surgery.api import applying
from tests.support.heavy import ocp

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


def assert_same(ours: Tree, expected: Tree, where: str = "") -> None:
    """Assert that containers, keys, types and dtypes are the same, and values equal bit for bit."""
    assert type(ours) is type(expected), f"{where}: {type(ours)} is not {type(expected)}"
    if isinstance(expected, dict):
        assert ours.keys() == expected.keys(), where
        for name, value in expected.items():
            assert_same(ours[name], value, f"{where}/{name}")
    elif isinstance(expected, list):
        assert len(ours) == len(expected), where
        for i, value in enumerate(expected):
            assert_same(ours[i], value, f"{where}/{i}")
    elif hasattr(expected, "dtype"):
        a, b = np.asarray(ours), np.asarray(expected)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), where
    else:
        assert ours == expected, where
