"""`invert`, as a function and as a command, on checkpoints."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ckpt_surgery
from ckpt_surgery.cli.documents.schemas import document_schema
from ckpt_surgery.core.errors import UsageError
from tests.support.command_line import run
from tests.support.comparing import assert_same
from tests.support.recipes import write_recipe

THERE = """\
version: 1
rules:
  - {match: 'l(?P<i>.)', to: l, by: int(i), value: stack(xs)}
  - {match: half, value: "cast(x, 'float16')"}
  - {match: gone, drop: true}
"""
ARRAYS = {f"l{i}": np.arange(6, dtype=np.float32) + i for i in range(3)}
LOSSY = ARRAYS | {"half": np.ones(2, np.float32), "gone": np.ones(2, np.float32)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text("\n".join(THERE.splitlines()[:3]) + "\n")
    Path("lossy.yaml").write_text(THERE)
    save_file(ARRAYS, "old.safetensors")
    save_file(LOSSY, "more.safetensors")
    return tmp_path


def test_the_way_back_of_a_checkpoint(here: Path) -> None:
    back = ckpt_surgery.invert("stack.yaml", "old.safetensors", out="back.yaml")
    assert (back.irreversible, back.problems, back.sampled) == ((), (), ())
    assert Path("back.yaml").read_text() == back.recipe
    ckpt_surgery.apply("stack.yaml", "old.safetensors", dst="new")
    ckpt_surgery.apply("back.yaml", "new", dst="again.safetensors")
    assert_same(load_file("again.safetensors"), ARRAYS)


def test_what_does_not_come_back_is_named(here: Path) -> None:
    back = ckpt_surgery.invert("lossy.yaml", "more.safetensors")
    told = {one.key: one.why for one in back.irreversible}
    assert told == {"half": "keeps float16 of its float32", "gone": "dropped by rules[2]"}
    assert back.problems == ()
    assert "# does not come back: `half`: keeps float16 of its float32\n" in back.recipe
    ckpt_surgery.apply("lossy.yaml", "more.safetensors", dst="new")
    ckpt_surgery.apply(back.recipe, "new", dst="again.safetensors")
    assert_same(load_file("again.safetensors"), ARRAYS)
    rounded = "version: 1\nrules: [{match: a, value: sqrt(x)}]\n"
    nothing = ckpt_surgery.invert(rounded, {"a": np.ones(2, np.float32)})
    assert ([one.key for one in nothing.irreversible], nothing.problems) == (["a"], ())


TREE = {
    "params": {"w": np.ones((2, 3), np.float32), "b": np.arange(3)},
    "name": "a string",
    "none": None,
    "key": jax.random.key(0),
    "step": 7,
    "slots": [np.zeros(2), {"count": np.int32(1)}],
}


def test_strings_keys_and_empty_nodes_of_a_tree_come_back() -> None:
    moved = """
version: 1
rules:
  - {match: 'params/(.*)', to: 'model/\\1'}
  - {match: name, to: called}
  - {match: key, to: rngs/0}
  - {match: none, to: nothing}
  - {match: step, to: count, value: x + 1}
"""
    back = ckpt_surgery.invert(moved, TREE)
    assert (back.irreversible, back.problems) == ((), ())
    there = {step.leaf.key.text for step in ckpt_surgery.plan(moved, TREE).steps}
    assert {"called", "rngs/0", "nothing", "count", "slots/1/count"} <= there


def test_params_and_targets_are_those_that_are_given(here: Path) -> None:
    recipe = "version: 1\nparams: {axis: 0}\nrules: [{match: 'l.', to: l, value: 'stack(xs, axis=axis)'}]\n"
    back = ckpt_surgery.invert(recipe, "old.safetensors", set={"axis": 1})
    assert "x[:, " in back.recipe
    filled = "version: 1\nrules: [{fill: new, fallback: true}]\n"
    target = {"l0": np.zeros(6, np.float32), "new": np.ones(1)}
    back = ckpt_surgery.invert(filled, {"l0": ARRAYS["l0"]}, target=target)
    assert back.irreversible == ()
    assert "{match: new, drop: true}" in back.recipe


def test_the_draft_is_not_written_over_what_is_read(here: Path) -> None:
    with pytest.raises(UsageError):
        ckpt_surgery.invert("stack.yaml", "old.safetensors", out="stack.yaml")
    assert Path("stack.yaml").read_text().startswith("version: 1\n")


# --- the command ------------------------------------------------------------------------------------------


def test_the_recipe_is_on_stdout_and_the_rest_on_stderr(here: Path) -> None:
    done = run("invert", "lossy.yaml", "more.safetensors")
    assert done.exit_code == 3
    assert done.stdout == ckpt_surgery.invert("lossy.yaml", "more.safetensors").recipe
    assert done.stderr.splitlines() == [
        "does not come back: `gone`: dropped by rules[2]",
        "does not come back: `half`: keeps float16 of its float32",
    ]


def test_the_document_and_a_file_for_the_recipe(here: Path) -> None:
    done = run("invert", "lossy.yaml", "more.safetensors", "--json", "-")
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == 3
    assert document == {
        "schema": 1,
        "recipe": ckpt_surgery.invert("lossy.yaml", "more.safetensors").recipe,
        "irreversible": [
            {"key": "gone", "why": "dropped by rules[2]"},
            {"key": "half", "why": "keeps float16 of its float32"},
        ],
        "problems": [],
    }
    assert set(document) == set(document_schema("invert")["properties"])
    done = run("invert", "stack.yaml", "old.safetensors", "--out", "back.yaml", "--no-check")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "everything comes back\n", "")
    assert run("lint", "back.yaml").exit_code == 0


@pytest.mark.parametrize(
    ("value", "number", "comes_back"),
    [
        ("x * 2", 3e38, False),
        ("sqrt(x)", 1.5, False),
        ("x * 2", 1.5, True),
        ("x / 2", 1e-45, False),
        ("x / 2", 1e-30, True),
        ("x / 0.5", 3e38, False),
        ("(x * 2).T", 3e38, False),
        ("-x", 3e38, True),
    ],
)
def test_values_decide_whether_doubled_and_halved_leaves_come_back(value, number, comes_back, tmp_path):
    source = tmp_path / "source.npz"
    np.savez(source, w=np.float32([[1, number]]), v=np.float32([1]))
    recipe = write_recipe(tmp_path, f"version: 1\nrules:\n  - {{match: w, value: '{value}'}}\n")
    found = ckpt_surgery.invert(recipe, source)
    assert [one.key for one in found.irreversible] == ([] if comes_back else ["w"])
    assert found.problems == ()
    unread = ckpt_surgery.invert(recipe, source, check=False)
    assert [one.key for one in unread.irreversible] == ([] if value == "-x" else ["w"])


def test_the_command_takes_the_config_that_describes_the_model(tmp_path: Path) -> None:
    save_file({"a": np.ones((6, 2), np.float32)}, tmp_path / "old.safetensors")
    (tmp_path / "model.json").write_text('{"n_head": 3}')
    recipe = "version: 1\nparams:\n  heads: {default: 8, config: n_head}\n"
    recipe += "rules: [{match: a, to: 'a${heads}'}]\n"
    (tmp_path / "r.yaml").write_text(recipe)
    arguments = (tmp_path / "r.yaml", tmp_path / "old.safetensors", "--config", tmp_path / "model.json")
    done = run("invert", *arguments)
    assert done.exit_code == 0, done.output
    assert "match: a3" in done.stdout
