"""Two real processes that restore agree: each reads its own parts, and both raise or none."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckpt_surgery.core.errors import DataError, Interrupted, PlanError, Problem, SurgeryError
from ckpt_surgery.live import processes
from ckpt_surgery.live.processes import agree
from tests.support.checkpoints import save_standard
from tests.support.ports import free_port

KERNEL = np.arange(64 * 16, dtype=np.float32).reshape(64, 16)
BIAS = np.arange(16, dtype=np.float32)
ROOT = Path(__file__).parents[2]
FLAGS = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
NONE_RETURNS = "process 1 of 2 failed, so none returns a result"
Outcomes = dict[str, list[dict[str, Any]]]
"""What each of the two processes got, by the name of the case."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    path = tmp_path_factory.mktemp("pair") / "checkpoint"
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    kernel = jax.device_put(KERNEL, NamedSharding(mesh, PartitionSpec("data")))
    save_standard(path, {"kernel": kernel, "bias": BIAS, "own": BIAS[:3], "step": 7})
    port = free_port()

    def run(number: int) -> dict[str, dict[str, Any]]:
        command = [sys.executable, "-m", "tests.support.process_pair", str(port), str(number), str(path)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": FLAGS},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outcome: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return outcome

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(run, range(2)))
    return {case: [one[case] for one in found] for case in found[0]}


def errors(outcomes: Outcomes, case: str) -> list[tuple[str, str]]:
    return [(one["error"], one["message"]) for one in outcomes[case]]


def test_each_process_reads_what_its_devices_need(outcomes: Outcomes) -> None:
    first, second = outcomes["both"]
    rows = {str([start, 0]): (2 * KERNEL[start : start + 16]).tolist() for start in (0, 16, 32, 48)}
    assert first["kernel"] == {key: rows[key] for key in ("[0, 0]", "[16, 0]")}
    assert second["kernel"] == {key: rows[key] for key in ("[32, 0]", "[48, 0]")}
    assert first["bias"] == second["bias"] == {"[0]": BIAS[:8].tolist(), "[8]": BIAS[8:].tolist()}
    assert [one["own"] for one in (first, second)] == [[0, 1, 2]] * 2
    assert [one["step"] for one in (first, second)] == [7, 7]
    own = {"kernel": KERNEL.nbytes // 2, "bias": BIAS.nbytes, "own": 12, "step": 8}
    assert first["read"] == second["read"] == own


def test_plans_that_differ_are_refused_by_both(outcomes: Outcomes) -> None:
    for case, what in [("other param", "the values of params"), ("other axes", "the shardings")]:
        message = (
            f"the processes have made different plans: {what} of process 1 are not those of process 0\n"
            "  Call it with the same arguments in every process."
        )
        assert errors(outcomes, case) == [("PlanError", message)] * 2
        assert [one["read"] for one in outcomes[case]] == [{}, {}]


@pytest.mark.slow("starts several processes")
def test_an_error_in_one_is_raised_in_both(outcomes: Outcomes) -> None:
    for case, expected, reads in [("no source", "UsageError", False), ("read", "SourceError", True)]:
        (kind, of_other), (own_kind, own) = errors(outcomes, case)
        assert kind == own_kind == expected
        said = own.splitlines()[0]
        assert of_other == f"{NONE_RETURNS}: {said}"
        assert bool(outcomes[case][0]["read"]) is reads
        assert outcomes[case][1]["read"] == {}


@pytest.mark.slow("starts several processes")
def test_a_bug_in_one_does_not_leave_the_other_waiting(outcomes: Outcomes) -> None:
    assert errors(outcomes, "bug") == [
        ("SurgeryError", f"{NONE_RETURNS}: RuntimeError: a bug in the program\\nof two lines"),
        ("RuntimeError", "a bug in the program\nof two lines"),
    ]


def test_after_errors_they_still_restore(outcomes: Outcomes) -> None:
    assert list(outcomes)[-1] == "both again"
    assert outcomes["both again"] == outcomes["both"]
    whole = ["both", "from a tree", "computed from a tree", "donated", "both again"]
    assert [case for case in outcomes if "error" not in outcomes[case][0]] == whole
    assert [case for case in outcomes if "error" not in outcomes[case][1]] == whole


def test_a_tree_over_both_moves_from_device_to_device(outcomes: Outcomes) -> None:
    for one, starts in zip(outcomes["from a tree"], [(0, 16), (32, 48)], strict=True):
        rows = {f"[{start}, 0]": KERNEL[start : start + 16].tolist() for start in starts}
        assert one["kernel"] == rows
        assert one["bias"] == {"[0]": BIAS[:8].tolist(), "[8]": BIAS[8:].tolist()}
        assert (one["own"], one["step"], one["read"]) == ([0, 1, 2], 7, {})


@pytest.mark.slow("starts several processes")
def test_a_tree_over_both_is_computed_with_where_each_has_the_parts(outcomes: Outcomes) -> None:
    assert outcomes["computed from a tree"] == [{**one, "read": {}} for one in outcomes["both"]]
    for kind, message in errors(outcomes, "computed across"):
        assert kind == "SourceError"
        assert "`kernel` of (tree) is computed with, but other processes hold a part of it" in message


def test_the_arrays_of_a_state_over_both_are_given_away(outcomes: Outcomes) -> None:
    for one, of_shapes in zip(outcomes["donated"], outcomes["both"], strict=True):
        assert (one["kernel"], one["step"]) == (of_shapes["kernel"], 7)
        assert one["bias"] == {"[0]": BIAS.tolist()}


def test_one_process_asks_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(processes, "_gather")
    assert agree(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        agree(lambda: 1 // 0)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The error, if there is one, that a second process reports."""
    found: list[Exception] = []

    def exchanged(report: Any) -> list[Any]:
        theirs = processes._failure(found[0]) if found else report
        return [processes._decoded(processes._encoded(one)) for one in (report, theirs)]

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "_gather", exchanged)
    return found


def raising(error: BaseException) -> Callable[[], None]:
    def make() -> None:
        raise error

    return make


def test_errors_of_another_process_keep_their_class(other: list[Exception]) -> None:
    assert agree(lambda: 3, lambda made: {"a": str(made)}) == 3
    for error, kind, message in [
        (DataError("too large", "and more", "and more"), DataError, "too large (and 2 more)"),
        (PlanError(Problem("first\nsecond", hint="a hint")), PlanError, "first\nsecond"),
        (KeyError("\x1b"), SurgeryError, "KeyError: '\\x1b'"),
        (DataError("ä\udc80"), DataError, "ä?"),
    ]:
        other[:] = [error]
        with pytest.raises(SurgeryError) as caught:
            agree(lambda: 3)
        assert type(caught.value) is kind
        assert str(caught.value) == f"{NONE_RETURNS}: {message}"


def test_of_a_long_message_the_end_is_left_out(other: list[Exception]) -> None:
    other[:] = [DataError("x" + "ä" * 10_000)]
    with pytest.raises(DataError) as caught:
        agree(lambda: 3)
    text = str(caught.value)
    assert 3_900 < len(text.encode()) < 4_200
    assert text.endswith("ää")


def test_the_own_error_is_raised_where_both_fail(other: list[Exception]) -> None:
    other[:] = [DataError("theirs")]
    with pytest.raises(PlanError, match="mine"):
        agree(raising(PlanError("mine")))


def test_processes_that_are_gone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(report: Any) -> None:
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: connection reset by peer")

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "_gather", gone)
    with pytest.raises(SurgeryError) as caught:
        agree(lambda: 3)
    assert str(caught.value) == "the other processes do not answer: UNAVAILABLE: connection reset by peer"
    with pytest.raises(PlanError, match="mine"):
        agree(raising(PlanError("mine")))


def test_a_signal_ends_a_process_at_once(other: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(processes, "_gather")
    with pytest.raises(Interrupted):
        agree(raising(Interrupted(2, "stopped by SIGINT")))
    with pytest.raises(KeyboardInterrupt):
        agree(raising(KeyboardInterrupt()))
