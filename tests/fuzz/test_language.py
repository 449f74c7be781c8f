"""Damaged recipes and saved plans: each is carried out, or refused with a message; nothing else."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import RecipeError, SurgeryError, UsageError
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs import request
from tests.fuzz.fuzzing import damaged, damages, edited, edits, fuzz
from tests.support.directories import names

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").rglob("*.yaml"))

RECIPE = """version: 1
params: {n: 3, some: [1, 2]}
rules:
- {match: 'layers/(?P<i>\\d+)/(.*)', to: 'blocks/${int(i) + 1}/\\2', value: 'concat([x, x * 2], 0)[:, ::-1]'}
- {match: w, let: {a: x > 0, b: 'where(a, x, -x)'}, value: 'cast(b.T, "bfloat16")'}
- {add: 'table/${j}', for: {j: 'range(n)'}, value: 'full([2, 3], 0.5, "float32")'}
- {match: '.*', drop: true, optional: true}
"""
EXPRESSIONS = (
    *("x", "x.T", "x + 1", "x * x", "x[1:3]", "x[:, 0]", "x[::-1]", "x > 0", "-x", "x.shape", "x.dtype"),
    *("cast(E, 'int8')", "concat([E, E])", "stack([E, E], axis=1)", "where(E > 0, E, 0)", "reshape(E, -1)"),
    *("transpose(E, [1, 0])", "E @ E.T", "sum(E, 0)", "mean(E)", "source['w']", "zeros([2, 3], 'float32')"),
    *("take(E, [0, 1], 0)", "E + E", "E[0]", "E[None]", "E[...]", "(E)", "E.T", "[E, E]", "E if E else E"),
    *("1 // 0", "2 ** 200", "'a'", "None", "x.ndim"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    arrays = {f"layers/{i}/k": np.ones((2, 4), np.float32) for i in range(3)}
    np.savez(tmp_path / "x.npz", w=np.arange(12, dtype=np.float32).reshape(3, 4), **arrays)
    return tmp_path


@pytest.mark.parametrize("file", [RECIPES[0], RECIPES[len(RECIPES) // 2]], ids=["first", "middle"])
def test_a_damaged_recipe_of_the_package(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    recipe = tmp_path / "recipe.yaml"

    def check(changes: object) -> None:
        recipe.write_bytes(damaged(whole, changes))
        try:
            request.read_recipe(recipe)
        except (RecipeError, UsageError) as error:
            assert str(error)

    fuzz(check, damages())


def test_a_damaged_recipe(place: Path) -> None:
    recipe = place / "recipe.yaml"

    def check(changes: object) -> None:
        recipe.write_bytes(damaged(RECIPE.encode(), changes))
        _carried_out_or_refused(recipe, place)

    fuzz(check, damages())


@pytest.mark.slow("tries random expressions")
def test_random_expressions(place: Path) -> None:
    """Put together from pieces, some of which mean nothing."""
    recipe = place / "recipe.yaml"

    def check(pieces: list[str]) -> None:
        value = "E"
        for piece in pieces:
            value = value.replace("E", piece, 1)
        value = value.replace("E", "x")
        rule = {"match": "w", "value": value}
        recipe.write_text(json.dumps({"version": 1, "rules": [rule]}))
        _carried_out_or_refused(recipe, place)

    fuzz(check, st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=9))


def test_a_damaged_plan(place: Path) -> None:
    recipe, plan = place / "recipe.yaml", place / "plan.json"
    recipe.write_text(RECIPE)
    applying.plan(recipe, place / "x.npz", out=plan, dst=place / "never.npz")
    document = json.loads(plan.read_text())

    def check(changes: object) -> None:
        plan.write_text(json.dumps(edited(document, changes)))
        _carried_out_or_refused(plan, place)

    fuzz(check, edits())


def _carried_out_or_refused(recipe: Path, place: Path) -> None:
    sources = [] if recipe.suffix == ".json" else [place / "x.npz"]
    before = names(place)
    try:
        applying.apply(recipe, *sources, dst=place / "out.npz", memory=64 << 20, workers=1)
    except SurgeryError as error:
        assert str(error)
        assert error.exit_code in (1, 2, 3)
        assert shown(str(error).replace("\n", " "))
        assert names(place) == before
    else:
        for made in place.glob("out.npz*"):  # with the record beside it
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        assert names(place) == before
