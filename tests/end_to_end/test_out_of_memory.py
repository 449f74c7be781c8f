"""Memory that ends, anywhere in a run: exit 1 with the leaf and the budget, or with the stage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.api import inspecting
from ckpt_surgery.cli.render import inspection as render_inspection
from ckpt_surgery.graph.evaluating import Evaluator
from ckpt_surgery.inputs import preparing
from ckpt_surgery.report import distances, values
from ckpt_surgery.runs import destination
from tests.support.command_line import run

HINT = "  Run where more memory is free.\n"
HINT_OF_RUNS = (
    "  Run where more memory is free, or lower the budget (`--memory 512MiB`) or the number of threads "
    "(`--workers 1`).\n"
)
HUGE = "(Unable to allocate 1.00 EiB for an array with shape (1152921504606846976,) and data type int8)"


def exhaust(*_: Any, **__: Any) -> Any:
    return np.empty(1 << 60, np.int8)


def test_a_leaf_and_the_budget_are_named(
    recipe: Callable[[str], Path], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "compute", exhaust)
    path = recipe("version: 1\nrules: [{match: b, value: x + 1}]\n")
    done = run("apply", path, model, tmp_path / "x.npz", "--memory", "256MiB", "-q")
    assert done.exit_code == 1
    assert done.stderr == (
        f"Error: {path}:2:27  rules[0].value  CS073\n"
        f"    rules: [{{match: b, value: x + 1}}]\n{' ' * 30}^^^^^\n"
        f"  `b`: there is not enough memory to write it, with a budget of 256 MiB {HUGE}\n{HINT_OF_RUNS}"
    )
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize(
    ("module", "name", "command", "told"),
    [
        (preparing, "make_plan", ["convert", "SRC", "x.npz"], "make the plan"),
        (preparing, "make_plan", ["plan", "RECIPE", "SRC"], "make the plan"),
        (preparing, "make_plan", ["apply", "PLAN", "x"], "make the plan"),
        (destination, "outputs_of", ["convert", "SRC", "x.npz"], "write the checkpoint"),
        (inspecting, "statistics", ["inspect", "SRC", "--stats"], "inspect the checkpoint"),
        (inspecting, "diff_trees", ["diff", "SRC", "SRC"], "compare the checkpoints"),
        (render_inspection, "inspection_lines", ["inspect", "SRC"], "go on"),
    ],
)
def test_outside_of_tasks_the_stage_is_named(
    module: Any, name: str, command: list[str], told: str, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    places = {"SRC": model, "RECIPE": tmp_path / "r.yaml", "PLAN": tmp_path / "plan.json"}
    places["RECIPE"].write_text("version: 1\n")
    assert run("plan", places["RECIPE"], model, "--out", places["PLAN"]).exit_code == 0
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(module, name, exhaust)
    done = run(*(places.get(word, word) for word in command))
    assert (done.exit_code, done.stderr) == (1, f"Error: there is not enough memory to {told} {HUGE}\n{HINT}")
    assert sorted(tmp_path.iterdir()) == before


def test_while_values_are_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_moments", exhaust)
    done = run("inspect", model, "--stats")
    assert done.exit_code == 1
    assert "there is not enough memory to read `a/kernel`, with a budget of " in done.stderr
    monkeypatch.setattr(distances, "gap", exhaust)
    done = run("diff", model, model, "--values", "--memory", "1GiB")
    assert done.exit_code == 1
    assert "there is not enough memory to read `a/kernel`, with a budget of 1.00 GiB " in done.stderr
