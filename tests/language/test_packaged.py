"""Recipes that come with the package: by name, wherever a recipe is wanted."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.libraries import shipped
from ckpt_surgery.language import packaged
from ckpt_surgery.language.loading import load_recipe
from tests.support.command_line import run

ROOT = Path(__file__).parent.parent.parent
NAMES = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_right_and_says_what_it_is_for(name: str) -> None:
    assert ckpt_surgery.lint([f"@{name}"]) == [(f"@{name}", ())]
    assert load_recipe(f"@{name}").recipe.hooks is None
    summary = packaged.summary(packaged.packaged_recipes()[name])
    assert summary.endswith(".")
    assert len(summary) < 120
    header = (ROOT / "recipes" / f"{name}.yaml").read_text().partition("version:")[0]
    assert re.search(rf"^# +ckpt-surgery apply @{name} ", header, flags=re.MULTILINE)


@pytest.mark.parametrize("recipe", ["recipe.yaml", "./@cast", "a/@cast", "cast"])
def test_other_paths_are_files(recipe: str) -> None:
    assert packaged.recipe_path(recipe) == recipe


def test_a_name_that_there_is_not() -> None:
    for recipe, says in (
        ("@casst", "no recipe `@casst` comes with the package; did you mean `@cast`?"),
        (
            "@llama",
            "no recipe `@llama` comes with the package; there are `@hf-llama3-to-jax`, `@hf-llama4-to-jax`, "
            "`@jax-to-hf-llama3`, `@jax-to-hf-llama4`",
        ),
        ("@", "no recipe `@` comes with the package"),
        ("@../pyproject", "no recipe `@../pyproject` comes with the package"),
        ("@cast.yaml", "no recipe `@cast.yaml` comes with the package; did you mean `@cast`?"),
    ):
        with pytest.raises(UsageError) as caught:
            load_recipe(recipe)
        assert str(caught.value) == (
            f"{says}\n  `ckpt-surgery recipes` lists them; a file of that name is `./{recipe}`."
        )


def test_the_list_and_one_of_them_printed() -> None:
    done = run("recipes")
    assert (done.exit_code, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("@")] == [f"@{name}" for name in NAMES]
    told = " ".join(" ".join(lines).split())
    assert "@cast A whole checkpoint, or one of its trees, in another floating-point type. @drop" in told
    assert last == f"in {shipped('recipes')}"
    for name in ("cast", "@cast"):
        assert run("recipes", name).stdout == (ROOT / "recipes" / "cast.yaml").read_text()
    assert run("recipes", "casst").exit_code == 2


def test_its_problems_and_a_saved_plan_have_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", n=np.arange(2))
    done = run("plan", "@cast", str(tmp_path / "old.npz"))
    assert done.exit_code == 2
    assert re.match(r"Error: @cast:\d+:\d+  rules\[0\]\.match  CS\d+\n", done.stderr)
    np.savez(tmp_path / "old.npz", w=np.ones(2, np.float32))
    plan = tmp_path / "plan.json"
    applying.plan("@cast", tmp_path / "old.npz", out=plan, dst=tmp_path / "new.safetensors")
    assert json.loads(plan.read_text())["recipe"]["path"] == "@cast"
    applying.apply(plan)
    assert str(load_file(tmp_path / "new.safetensors")["w"].dtype) == "bfloat16"


@pytest.mark.parametrize(
    ("recipe", "more"),
    [("@stack-layers", ""), ("@hf-llama3-to-jax", "; the same is true of 10 more rules")],
)
def test_one_that_is_made_for_other_names(recipe: str, more: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **{f"params/CheckpointBlk_{n}/w": np.ones(2) for n in range(12)})
    done = run("plan", recipe, str(tmp_path / "in.npz"))
    assert done.exit_code == 2
    assert done.stderr.count("claims nothing") == 1
    assert f"the rule claims nothing: no key matches{more}\n" in done.stderr
    assert (
        f"  `{recipe}` looks for other names than `params/CheckpointBlk_{{0..11}}/w`, which this checkpoint "
        f"has. `ckpt-surgery recipes {recipe}` says what it looks for, and which params it takes.\n"
    ) in done.stderr
