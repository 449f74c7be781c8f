"""Progress: the caller's function, a bar where somebody looks, and nothing in scripts."""

import io
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Interrupted, UsageError
from ckpt_surgery.core.progress import Progress
from ckpt_surgery.system import progress_bars
from ckpt_surgery.system.progress_bars import is_interactive, reported
from tests.support.failing import raising

HALF, WHOLE = Progress(1 << 20, 2 << 20), Progress(2 << 20, 2 << 20)
DOUBLED = "version: 1\nrules:\n  - {match: a, value: x * 2}\n"
Call = Callable[[Path, Any], object]
CALLS: dict[str, Call] = {
    "apply": lambda d, p: ckpt_surgery.apply(DOUBLED, d / "old.npz", dst=d / "new", progress=p),
    "convert": lambda d, p: ckpt_surgery.convert(d / "old.npz", d / "new.safetensors", progress=p),
    "restore": lambda d, p: ckpt_surgery.restore(None, d / "old.npz", progress=p),
    "verify": lambda d, p: ckpt_surgery.verify(d / "old.npz", progress=p),
    "diff": lambda d, p: ckpt_surgery.diff(d / "old.npz", d / "two.npz", values=True, progress=p),
    "inspect": lambda d, p: ckpt_surgery.inspect(d / "old.npz", stats=True, progress=p),
    "infer": lambda d, p: ckpt_surgery.infer(d / "old.npz", d / "two.npz", progress=p),
    "apply_shard": lambda d, p: ckpt_surgery.apply_shard(
        plan_file(d), shard="0/1", dst=d / "new", progress=p
    ),
    "commit": lambda d, p: ckpt_surgery.commit(written_shard(d), verify="full", progress=p),
}


def plan_file(directory: Path) -> Path:
    ckpt_surgery.plan(DOUBLED, directory / "old.npz", out=directory / "plan.json")
    return directory / "plan.json"


def written_shard(directory: Path) -> Path:
    ckpt_surgery.apply_shard(plan_file(directory), shard="0/1", dst=directory / "new")
    return directory / "new"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    np.savez(tmp_path / "old.npz", a=np.arange(50.0))
    np.savez(tmp_path / "two.npz", a=np.arange(50.0) * 2)
    return tmp_path


# --- functions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_a_function_is_told(name: str, directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[Progress] = []
    CALLS[name](directory, told.append)
    assert told[-1].done_bytes == told[-1].total_bytes > 0
    CALLS["inspect"](directory, False)
    CALLS["inspect"](directory, None)  # in a script
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "error", [ValueError("mine"), OSError("mine"), MemoryError("mine"), UsageError("mine")], ids=repr
)
def test_what_a_function_raises_comes_out_as_it_is(name: str, error: Exception, directory: Path) -> None:
    with pytest.raises(type(error)) as raised:
        CALLS[name](directory, raising(lambda: error))
    assert raised.value is error


@pytest.mark.parametrize("function", [ckpt_surgery.apply, ckpt_surgery.restore])
def test_what_on_plan_raises_comes_out_as_it_is(function: Callable[..., object], directory: Path) -> None:
    error = UsageError("mine")
    place = {"dst": directory / "new"} if function is ckpt_surgery.apply else {}
    with pytest.raises(UsageError) as raised:
        function(DOUBLED, directory / "old.npz", on_plan=raising(lambda: error), **place)
    assert raised.value is error
    assert not (directory / "new").exists()


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(OSError, match="later"), reported(lambda progress: None) as report:
        report(HALF)
        raise OSError("later")


@pytest.mark.parametrize("error", [Interrupted(15, "stopped by SIGTERM"), KeyboardInterrupt()])
def test_an_interrupt_is_not_hidden_by_what_a_function_raised(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, reported(raising(lambda: ValueError("mine"))) as report:
        with pytest.raises(ValueError, match="mine"):
            report(HALF)
        raise error
    assert caught.value is error


def test_errors_that_are_their_own_cause_pass() -> None:
    error = ValueError("itself")
    with pytest.raises(ValueError, match="itself"), reported(print):
        raise error from error


@pytest.mark.parametrize("progress", ["yes", 1, []])
def test_what_is_not_a_function_is_refused(progress: Any, directory: Path) -> None:
    with pytest.raises(UsageError, match="`progress`"):
        ckpt_surgery.apply(DOUBLED, directory / "old.npz", dst=directory / "new", progress=progress)


# --- bars -------------------------------------------------------------------------------------------------


def test_an_interactive_session_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal, open(ours, "rb"):
        for stream, interactive in ((terminal, True), (terminal, False), (io.StringIO(), True)):
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stderr", stream)
                patch.setattr(sys, "flags", types.SimpleNamespace(interactive=interactive))
                assert is_interactive() == (stream is terminal and interactive)


def test_a_notebook_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """As IPython tells it, whose terminal has no kernel."""
    assert not is_interactive()
    for kernel in (None, object()):
        shell = types.SimpleNamespace(kernel=kernel)
        ipython = types.SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython", ipython)  # type: ignore[arg-type]
        assert is_interactive() == (kernel is not None)


@pytest.mark.parametrize("number", [0, 1])
def test_the_first_process_alone_shows_a_bar(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_index", lambda: number)
    with reported(True) as report:
        assert (report is None) == (number == 1)


@pytest.mark.parametrize("installed", [True, False])
def test_each_kind_of_work_has_its_own_bar(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    if not installed:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no space"), reported(True) as report:
        report(HALF)
        report(WHOLE)
        report(Progress(1 << 20, 4 << 20, "checking"))
        raise OSError("no space")
    writing, checking, rest = out.getvalue().split("\n")
    assert "writing" in writing
    assert ("2.00M" if installed else "2.00 MiB") in writing
    assert "checking" in checking
    assert rest == ""


def test_a_bar_that_nobody_asked_for_waits_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [100.0]
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(progress_bars, "is_interactive", lambda: True)
    monkeypatch.setattr("ckpt_surgery.system.progress_bars.time.monotonic", lambda: now[0])
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)  # type: ignore[arg-type]
    with reported(None) as report:
        report(HALF)
        assert out.getvalue() == ""
        now[0] += 1
        report(HALF)
        assert out.getvalue() == "\rwriting 1.00 MiB of 2.00 MiB"
