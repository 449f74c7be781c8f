"""Packaged recipes run on real checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ckpt_surgery.api import applying
from tests.recipes.running import Run, Save
from tests.support.checkpoints import quiet, restored
from tests.support.heavy import ocp


@pytest.fixture
def hf(tmp_path: Path) -> Path:
    return tmp_path / "hf"


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def saved(name: str, tree: Any) -> Path:
        with quiet():
            ocp.PyTreeCheckpointer().save(tmp_path / name, tree)
        return tmp_path / name

    return saved


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Applies a packaged recipe, or a recipe's text; gives what Orbax restores, by key."""

    def ran(recipe: str, *sources: Path, name: str = "new", **options: Any) -> Mapping[str, Any]:
        if not recipe.startswith("@"):
            (tmp_path / f"{name}.yaml").write_text(recipe)
            recipe = str(tmp_path / f"{name}.yaml")
        applying.apply(recipe, *sources, dst=tmp_path / name, **options)
        return restored(tmp_path / name)

    return ran
