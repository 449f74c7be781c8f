"""Output of plans and runs, their exit codes, and the summary of a CI job."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery import Plan, Result
from ckpt_surgery.cli.parameters.options import PlanOutput
from ckpt_surgery.cli.render.reports import (
    MOST_CHARACTERS,
    Report,
    markdown,
)
from ckpt_surgery.cli.terminal.console import PUBLISHED, Settings, open_terminal
from ckpt_surgery.core.errors import DataError, Interrupted
from tests.support.command_line import run


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Made inside a command, as reports are."""
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("enable_gc", "reuse_memory"):  # they change the process
        monkeypatch.setattr(f"ckpt_surgery.cli.render.reports.{name}", lambda: None)

    def made(*, document: bool = False) -> Report:
        terminal = open_terminal(Settings(), str(tmp_path / "x.json") if document else None)
        return Report(terminal, PlanOutput(full=False, detailed_exitcode=False, report_to=None))

    return made


@pytest.fixture(autouse=True)
def context() -> Any:
    with click.Context(click.Command("plan")) as context:
        yield context


def test_a_run_shows_the_plan_before_it_ends(
    report: Callable[..., Report], plain: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*, progress: Any, on_plan: Callable[[Plan], None]) -> Result:
        on_plan(plain)
        assert "100 leaves → 1: 1 kept" in capsys.readouterr().out
        assert not (tmp_path / "x.json").exists()
        return Result(plain, 0.5, "/out", ("the lock of a dead process was removed",))

    assert report(document=True).carried_out(run) == 0
    assert capsys.readouterr().out == (
        "Warning: the lock of a dead process was removed\nnot verified (`verify` reads it back)\n"
        "done  1 kept · 64 B in 0.50 s · /out\n"
    )
    document = json.loads((tmp_path / "x.json").read_text())
    assert (document["seconds"], document["destination"], document["schema"]) == (0.5, "/out", 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_the_summary_is_an_interruption(
    number: signal.Signals, report: Callable[..., Report], plain: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would otherwise end the process without a word on what is at the destination."""

    def finish(self: Report, result: Result) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Report, "_finish", finish)
    with pytest.raises(Interrupted) as caught:
        report().carried_out(lambda **_: Result(plain, 0.5, "/out"))
    assert caught.value.signal_number == number
    assert click.get_current_context().meta[PUBLISHED] == "/out"


def test_a_run_that_fails_writes_no_document(report: Callable[..., Report], tmp_path: Path) -> None:
    def run(**_: Any) -> Result:
        raise DataError("overflow")

    with pytest.raises(DataError):
        report(document=True).carried_out(run)
    assert not (tmp_path / "x.json").exists()


RECIPE = "version: 1\nrules: [{match: '(?P<n>a)', to: 'p/{n}'}, {match: z, drop: true}]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_b.yaml").write_text(RECIPE)
    save_file({"a": np.zeros(3, np.float32), "z": np.zeros(1, np.float32)}, tmp_path / "m.safetensors")
    return tmp_path


def test_a_plan_and_a_run_are_added_one_after_the_other(here: Path) -> None:
    summary = here / "summary.md"
    arguments = ["a_b.yaml", "m.safetensors", "out.safetensors"]
    text = run("plan", *arguments, GITHUB_STEP_SUMMARY=str(summary)).stdout
    planned = summary.read_text()
    assert planned.startswith("### ckpt-surgery plan: <code>a\\_b.yaml</code>\n")
    assert "\n| leaves | 2 → 1 |\n|---|---|\n| renamed | 1 |\n| dropped | 1 |\n| out | 12 B |\n" in planned
    assert "\n- ⚠️ rules\\[0\\]" in planned
    assert planned.endswith("\n```\n\n</details>\n\n")
    inside = planned.partition("```text\n")[2].partition("\n```")[0]
    assert inside.split("\n\n")[1] in text
    assert run("apply", *arguments, GITHUB_STEP_SUMMARY=str(summary)).exit_code == 0
    applied = summary.read_text().removeprefix(planned)
    title, done = "### ckpt-surgery apply: <code>a\\_b.yaml</code>", "verified: 12 B read back  \ndone  "
    assert applied.startswith(f"{title}\n\n{done}")


def test_no_text_has_a_meaning_in_markdown_and_a_long_diff_is_cut_at_a_line(tower: Plan) -> None:
    plan = replace(tower, recipe="<b>*x*|.yaml")
    text = markdown(plan, "kept  ```x")
    assert "&lt;b&gt;\\*x\\*\\|.yaml</code>\n" in text
    assert "\n````text\nkept  ```x\n````\n" in text
    text = markdown(plan, "\n".join(["x" * 99] * (MOST_CHARACTERS // 50)))
    assert MOST_CHARACTERS - 200 < len(text) < MOST_CHARACTERS + 1000
    assert f"\n{'x' * 99}\n…\n```\n" in text


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "bad.yaml", "m.safetensors"],
        ["apply", "bad.yaml", "m.safetensors", "out.safetensors"],
        ["plan", "a_b.yaml", "gone.safetensors"],
        ["convert", "gone.safetensors", "out.safetensors"],
        ["plan", "a_b.yaml", "m.safetensors", "--no-such-option"],
    ],
)
def test_a_failure_is_added_with_the_text_that_is_printed(here: Path, command: list[str]) -> None:
    summary = here / "summary.md"
    (here / "bad.yaml").write_text("version: 1\nrules: [{match: nothing```, to: b}]\n")
    done = run(*command, GITHUB_STEP_SUMMARY=str(summary))
    assert done.exit_code != 0
    text = summary.read_text()
    assert text.startswith(f"### ❌ ckpt-surgery {command[0]} failed\n")
    problem = done.stderr.split("Error: ")[1].strip()
    assert problem in text
    assert text.count("````" if "```" in problem else "```") == 2  # what is quoted ends no block


def test_a_summary_that_cannot_be_written_hides_no_failure_and_other_commands_add_none(here: Path) -> None:
    done = run("plan", "a_b.yaml", "gone.safetensors", GITHUB_STEP_SUMMARY=str(here))
    assert done.exit_code == 2
    assert "gone.safetensors" in done.stderr
    assert "summary of the step" in done.stderr
    run("inspect", "gone.safetensors", GITHUB_STEP_SUMMARY=str(here / "summary.md"))
    assert not (here / "summary.md").exists()
