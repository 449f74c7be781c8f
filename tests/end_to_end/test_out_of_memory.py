"""Memory that ends, anywhere in a run: exit 1 with the leaf and the budget, or with the stage."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckpt_surgery.api import inspecting
from ckpt_surgery.cli.render import inspection as render_inspection
from ckpt_surgery.graph.checked import Evaluator
from ckpt_surgery.inputs import preparing
from ckpt_surgery.report import values
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


def test_a_hook_of_the_user(recipe: Callable[[str], Path], model: Path, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("def grow(x):\n    raise MemoryError\n")
    path = recipe("version: 1\nhooks: hooks.py\nrules: [{match: b, value: hooks.grow(x)}]\n")
    done = run("apply", path, model, tmp_path / "x.npz", "--allow-hooks", "--memory", "256MiB", "-q")
    assert done.exit_code == 1
    assert "`b`: there is not enough memory to write it, with a budget of 256 MiB\n" in done.stderr


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
    monkeypatch.setattr(values, "gap", exhaust)
    done = run("diff", model, model, "--values", "--memory", "1GiB")
    assert done.exit_code == 1
    assert "there is not enough memory to read `a/kernel`, with a budget of 1.00 GiB " in done.stderr


@pytest.mark.slow("starts programs with little memory")
def test_after_publication_the_destination_is_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the document cannot be written, or a person interrupts."""
    out = tmp_path / "x.npz"
    complete = f"\n\n{out} itself is new and complete\n"
    full = OSError(errno.ENOSPC, "No space left on device")
    for failure, code in (
        (full, 5),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), 1),
    ):
        out.unlink(missing_ok=True)

        def fail(*_: Any, failure: BaseException = failure) -> Any:
            raise failure

        monkeypatch.setattr("ckpt_surgery.cli.render.plan.result_lines", fail)
        done = run("convert", model, out)
        assert (done.exit_code, done.stderr.endswith(complete), out.exists()) == (code, True, True)
