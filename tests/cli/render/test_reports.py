"""How plans and results are told, and which exit codes follow."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from ckpt_surgery import Plan, Result
from ckpt_surgery.cli.render.reports import CHANGES, Report
from ckpt_surgery.cli.terminal.console import PUBLISHED, Settings, open_terminal
from ckpt_surgery.core.errors import DataError, Interrupted


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Made inside a command, as reports are."""
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("enable_gc", "reuse_memory"):  # they change the process
        monkeypatch.setattr(f"ckpt_surgery.cli.render.reports.{name}", lambda: None)

    def made(*, full: bool = False, document: bool = False, detailed: bool = False) -> Report:
        terminal = open_terminal(Settings(), str(tmp_path / "x.json") if document else None)
        return Report(terminal, full, detailed)

    return made


@pytest.fixture(autouse=True)
def context() -> Any:
    with click.Context(click.Command("plan")) as context:
        yield context


def test_a_plan_is_kept_for_the_end_of_the_program(
    report: Callable[..., Report], tower: Plan, context: click.Context
) -> None:
    report().planned(tower)
    assert context.meta["plan"] is tower


def test_full_reaches_the_diff(
    report: Callable[..., Report], tower: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    report().planned(tower)
    assert "block_{0..47}" in capsys.readouterr().out
    report(full=True).planned(tower)
    assert "block_17" in capsys.readouterr().out


@pytest.mark.parametrize("detailed", [False, True])
def test_exit_codes(report: Callable[..., Report], tower: Plan, plain: Plan, detailed: bool) -> None:
    told = report(detailed=detailed)
    assert told.planned(plain) == 0
    assert told.planned(tower) == (CHANGES if detailed else 0)
    assert told.carried_out(lambda **_: Result(tower, 1.0, "/out")) == (CHANGES if detailed else 0)


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
