"""The program itself, on checkpoints that Orbax wrote and reads back."""

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from ckpt_surgery.core.errors import Interrupted
from ckpt_surgery.graph.evaluating import Evaluator
from tests.support.checkpoints import restored
from tests.support.command_line import run
from tests.support.recipes import write_recipe

RECIPE = r"""
version: 1
params: {factor: 2}
rules:
  - match: 'params/layer_(?P<n>\d+)/wi'
    to: 'model/block_${n}/kernel'
  - match: 'params/layer_(?P<n>\d+)/ln'
    to: 'model/scale'
    by: int(n)
    value: stack(xs, axis=0) * factor
  - match: 'opt/.*'
    drop: true
"""
LAYERS = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("program") / "src"
    layers = {
        f"layer_{i}": {"wi": jnp.full((4, 8), i, jnp.bfloat16), "ln": np.full(3, i + 0.5, np.float32)}
        for i in range(LAYERS)
    }
    tree = {"params": layers, "opt": {"mu": np.array([np.nan, 1.0, 3.0])}, "step": 7}
    ocp.PyTreeCheckpointer().save(path, tree)
    return path


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path, RECIPE)


restores = pytest.mark.filterwarnings("ignore:Sharding info not provided when restoring:UserWarning")
"""Orbax's remark on a restore without a target: the sharding is the one that the file names."""


@restores
def test_apply_writes_what_plan_said(source, recipe, tmp_path):
    planned = run("plan", recipe, source, "--json")
    assert planned.exit_code == 0, planned.stderr
    destination = tmp_path / "dst"
    applied = run("apply", recipe, source, destination, "--json")
    assert applied.exit_code == 0, applied.stderr
    before, after = json.loads(planned.stdout), json.loads(applied.stdout)
    assert after["destination"] == str(destination)
    assert (before["leaves"], before["dropped"]) == (after["leaves"], after["dropped"])
    assert before["summary"] | {"kept": 1, "renamed": 12, "transformed": 1, "dropped": 1} == before["summary"]
    assert "renamed      params/layer_{0..11}/wi → model/block_{0..11}/kernel" in applied.stderr
    assert "\nDROPPED      opt/mu " in applied.stderr

    restored = ocp.PyTreeCheckpointer().restore(destination)
    assert restored["step"] == 7
    expected = 2 * np.arange(0.5, LAYERS)[:, None] * np.ones(3)
    np.testing.assert_array_equal(restored["model"]["scale"], expected)
    np.testing.assert_array_equal(
        np.asarray(restored["model"]["block_11"]["kernel"], np.float32), np.full((4, 8), 11)
    )
    assert set(restored) == {"model", "step"}


def test_dry_runs_write_nothing(source, recipe, tmp_path):
    for command, code in ((("apply", recipe), 2), (("convert",), 0)):
        done = run(*command, source, tmp_path / "dst", "--dry-run", "--detailed-exitcode")
        assert done.exit_code == code, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml"]


def test_diff_compares_values(source, tmp_path):
    other = tmp_path / "other"
    assert run("apply", "-e", "params/layer_4/ln = x * 2", source, other).exit_code == 0
    assert run("diff", source, other, "--exit-code").exit_code == 0
    done = run("diff", source, other, "--values", "--exit-code", "--json")
    assert done.exit_code == 3
    (unequal,) = [value for value in json.loads(done.stdout)["values"] if not value["equal"]]
    assert unequal == {
        "key": "params/layer_4/ln",
        "components": ["params", "layer_4", "ln"],
        "equal": False,
        "max_abs": 4.5,
        "max_rel": 0.5,
        "cosine": pytest.approx(1.0),
    }
    assert "values       params/layer_4/ln  max abs 4.5" in done.stderr


def test_diff_of_a_path_with_itself_is_told(source, tmp_path):
    (tmp_path / "link").symlink_to(source)
    told = f"Warning: A and B are the same path, {source}\n"
    for other in (source, f"{source}/", tmp_path / "link"):
        assert told in run("diff", source, other, "-q").stderr


def test_plan_tells_of_the_destination_and_of_what_it_reads(source, recipe, tmp_path):
    run("convert", source, tmp_path / "run", "--dst-step", "10")
    done = run("plan", recipe, tmp_path / "run", tmp_path / "dst", "--json")
    assert done.exit_code == 0, done.stderr
    assert f"source       {tmp_path}/run  (orbax, step 10, item default, " in done.stderr
    assert json.loads(done.stdout)["sources"]["source"]["step"] == 10
    steps = run("plan", recipe, source, tmp_path / "run", "--overwrite")
    assert steps.exit_code == 4
    assert "Replace one of them: `--dst-step 10`" in steps.stderr
    one = run("plan", recipe, source, tmp_path / "run", "--overwrite", "--dst-step", "10")
    assert one.exit_code == 0, one.stderr
    assert run("apply", recipe, source, tmp_path / "run", "--dry-run").exit_code == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml", "run"]


def test_diff_tells_lists_from_dicts(tmp_path):
    w = np.arange(3.0)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "list", {"w": [w, w]})
        checkpointer.save(tmp_path / "dict", {"w": {"0": w, "1": w}})
    done = run("diff", tmp_path / "list", tmp_path / "dict", "--values", "--exit-code", "--json")
    assert (done.exit_code, json.loads(done.stdout)["different"]) == (3, True)
    # A format without lists stores them as such dicts: there is nothing to tell.
    for name in ("x.safetensors", "x.npz", "x.msgpack", "x.zarr"):
        assert run("convert", tmp_path / "list", tmp_path / name).exit_code == 0
        done = run("diff", tmp_path / "list", tmp_path / name, "--values", "--exit-code")
        assert done.exit_code == 0, done.stdout


def test_hostile_keys_are_escaped(tmp_path):
    path = tmp_path / "src"
    ocp.PyTreeCheckpointer().save(path, {"[red]a": np.ones(2), "b\x1b[35m\nc": np.ones(3)})
    for arguments in (("inspect", path), ("plan", "-e", r"s|([^\n]*)(\n.)?|x\1\2|", path)):
        done = run(*arguments, FORCE_COLOR="1", TERM="xterm-256color")
        assert done.exit_code == 0, done.stderr
        assert "[red]a" in done.stdout
        assert "b\\x1b[35m\\nc" in done.stdout
        assert "\x1b[35m" not in done.stdout


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even while the result is verified, after less was written than is noted at once."""
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", **{"a b": np.arange(6.0)})

    def stopped(*arguments: Any, **options: Any) -> Any:
        raise Interrupted(signal.SIGTERM, "stopped by SIGTERM")

    command = ["apply", "-e", "a b = x * 2", "in.npz", "out"]
    with monkeypatch.context() as patched:
        patched.setattr("ckpt_surgery.runs.run.verify_and_publish", stopped)
        done = run(*command)
    assert done.exit_code == 128 + signal.SIGTERM
    (hint,) = (line.strip() for line in done.stderr.splitlines() if "Go on from there" in line)
    words = shlex.split(hint.partition(": ")[2])
    assert words == ["ckpt-surgery", *command, "--resume"]
    writes: list[Any] = []
    monkeypatch.setattr(Evaluator, "compute", lambda *given: writes.append(given))
    again = run(*words[1:])
    assert (again.exit_code, writes) == (0, []), again.output
    np.testing.assert_array_equal(restored(tmp_path / "out")["a b"], np.arange(6.0) * 2)


def test_the_commands_that_demo_prints_work_and_it_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("demo")
    assert done.exit_code == 0
    commands = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("  ckpt-surgery ")]
    assert [words[1] for words in commands] == ["inspect", "plan", "apply"]
    for _, *words in commands:
        assert run(*words).exit_code == 0
    old, new = (ocp.PyTreeCheckpointer().restore(tmp_path / "demo" / name) for name in ("old", "new"))
    layers = [old["params"][f"layer_{i}"]["mlp"]["wi"]["kernel"] for i in range(3)]
    stacked = new["params"]["layers"]["mlp"]["wi"]["kernel"]
    np.testing.assert_array_equal(stacked, np.stack(layers).astype(stacked.dtype))
    assert (stacked.dtype.name, new["step"]) == ("bfloat16", 1000)
    (tmp_path / "mine").mkdir()
    assert run("demo", "mine").exit_code == 4
    assert list((tmp_path / "mine").iterdir()) == []
