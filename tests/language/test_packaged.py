"""Recipes that come with the package: by name, wherever a recipe is wanted."""

import json
import re
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

import ckpt_surgery
from ckpt_surgery.api import applying
from ckpt_surgery.core.errors import UsageError
from ckpt_surgery.core.libraries import shipped
from ckpt_surgery.language import packaged
from ckpt_surgery.language.loading import load_recipe
from tests.support.command_line import run

ROOT = Path(__file__).parent.parent.parent
NAMES = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    ocp.PyTreeCheckpointer().save(tmp_path / "old", {"w": np.ones((2, 3), np.float32), "n": np.arange(2)})
    return tmp_path / "old"


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_right_and_says_what_it_is_for(name: str) -> None:
    assert ckpt_surgery.lint([f"@{name}"]) == [(f"@{name}", ())]
    assert load_recipe(f"@{name}").recipe.hooks is None
    summary = packaged.summary(packaged.packaged_recipes()[name])
    assert summary.endswith(".")
    assert len(summary) < 120
    text = (ROOT / "recipes" / f"{name}.yaml").read_text()
    header = text.partition("version:")[0]
    assert f"#     ckpt-surgery apply @{name} " in re.sub(
        r"^# +(?=ckpt)", "#     ", header, flags=re.MULTILINE
    )


@pytest.mark.parametrize("recipe", ["recipe.yaml", "./@cast", "a/@cast", "cast"])
def test_other_paths_are_files(recipe: str) -> None:
    assert packaged.recipe_path(recipe) == recipe


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("@casst", "no recipe `@casst` comes with the package; did you mean `@cast`?"),
        (
            "@llama",
            "no recipe `@llama` comes with the package; there are `@hf-llama3-to-jax`, `@hf-llama4-to-jax`, "
            "`@jax-to-hf-llama3`, `@jax-to-hf-llama4`",
        ),
        ("@", "no recipe `@` comes with the package"),
        ("@../pyproject", "no recipe `@../pyproject` comes with the package"),
        ("@examples/rename", "no recipe `@examples/rename` comes with the package"),
        ("@cast.yaml", "no recipe `@cast.yaml` comes with the package; did you mean `@cast`?"),
    ],
)
def test_a_name_that_there_is_not(recipe: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_recipe(recipe)
    assert str(caught.value) == (
        f"{says}\n  `ckpt-surgery recipes` lists them; a file of that name is `./{recipe}`."
    )


def test_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("recipes")
    assert (done.exit_code, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("@")] == [f"@{name}" for name in NAMES]
    told = " ".join(" ".join(lines).split())
    assert "@cast A whole checkpoint, or one of its trees, in another floating-point type. @drop" in told
    assert last == f"in {shipped('recipes')}"


@pytest.mark.parametrize("name", ["cast", "@cast"])
def test_one_of_them_printed(name: str) -> None:
    done = run("recipes", name)
    assert done.exit_code == 0
    assert done.stdout == (ROOT / "recipes" / "cast.yaml").read_text()
    assert run("recipes", "casst").exit_code == 2


@pytest.mark.slow("runs a packaged recipe in all ways")
def test_one_is_planned_linted_applied_and_told_by_its_name(old: Path, tmp_path: Path) -> None:
    assert run("lint", "@cast").stdout == "@cast: no problems\n"
    made = json.loads(run("plan", "@cast", str(old), "--json", "-").stdout)
    assert made["recipe"]["path"] == "@cast"
    done = run("apply", "@cast", str(old), str(tmp_path / "new"), "--set", "dtype=float16")
    assert done.exit_code == 0, done.output
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "new")
    assert {name: str(value.dtype) for name, value in restored.items()} == {"w": "float16", "n": "int64"}


def test_its_problems_are_told_by_its_name(tmp_path: Path) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "old", {"n": np.arange(2)})
    done = run("plan", "@cast", str(tmp_path / "old"))
    assert done.exit_code == 2
    assert re.match(r"Error: @cast:\d+:\d+  rules\[0\]\.match  CS\d+\n", done.stderr)


def test_a_saved_plan_keeps_the_name(old: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    applying.plan("@cast", old, out=plan)
    assert json.loads(plan.read_text())["recipe"]["path"] == "@cast"
    applying.apply(plan, dst=tmp_path / "new")
    assert str(ocp.PyTreeCheckpointer().restore(tmp_path / "new")["w"].dtype) == "bfloat16"


# --- any number of sources --------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> list[str]:
    for i in range(3):
        ocp.PyTreeCheckpointer().save(tmp_path / str(i), {"w": np.full((2, 3), i, np.float32)})
    return [str(tmp_path / str(i)) for i in range(3)]


@pytest.mark.parametrize("count", [2, 3])
def test_the_last_path_is_the_destination(count: int, three: list[str], tmp_path: Path) -> None:
    paths = [*three[:count], str(tmp_path / "mean")]
    planned = json.loads(run("plan", "@average", *paths, "--json", "-").stdout)
    assert list(planned["sources"]) == ["first", "second", "source_3"][:count]
    assert planned["leaves"][0]["sources"] == [f"{name}:w" for name in planned["sources"]]
    done = run("apply", "@average", *paths)
    assert done.exit_code == 0, done.output
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "mean")["w"]
    np.testing.assert_array_equal(restored, np.full((2, 3), sum(range(count)) / count, np.float32))


@pytest.mark.parametrize(
    ("recipe", "more"),
    [("@stack-layers", ""), ("@hf-llama3-to-jax", "; 10 more rules claim nothing either")],
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
