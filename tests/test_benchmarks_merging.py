"""The benchmark of merges: what both tools are given, taking turns, and what is said without mergekit."""

import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import ckpt_surgery
from benchmarks import bench, checkpoints, merging
from benchmarks.cases import Bench
from benchmarks.llama import LLAMA_8B, shrunken
from benchmarks.measure import measure_in_turns
from ckpt_surgery.planner.plan import Transfer

SIZE = 400_000


def test_without_mergekit_the_lines_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(merging, "CONFIGS", {"passthrough": merging.CONFIGS["passthrough"]})
    (line,) = merging.merge(Bench(tmp_path, SIZE, (), 1))
    assert (line.work, line.who, line.is_peer) == ("merge two models by passthrough", "ckpt-surgery", False)
    assert line.measured is not None
    assert line.measured.processor > 0
    assert line.note.endswith("no mergekit: `--mergekit DIRECTORY` makes an environment for it")


def test_an_environment_that_cannot_be_made_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = merging.mergekit(tmp_path / "file")
    assert isinstance(found, str)
    assert found.startswith("it could not be installed (")


def test_an_environment_that_is_there_is_used(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mergekit-yaml"
    program.parent.mkdir()
    program.touch()
    assert merging.mergekit(tmp_path) == program
    options = bench.parse(["--only", "merge", "--mergekit", str(tmp_path)])
    assert (options.only, options.mergekit) == (["merge"], tmp_path)


SLOW = ("linear", "slerp")
"""They take as long to plan as another one."""


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.slow if m in SLOW else ()) for m in merging.CONFIGS]
)
def test_the_tool_takes_every_configuration(method: str, tmp_path: Path) -> None:
    model = shrunken(LLAMA_8B, SIZE, "BF16")
    for seed, name in enumerate(("first", "second")):
        checkpoints.build("llama", tmp_path / name, SIZE, seed)
        (tmp_path / name / "config.json").write_text(json.dumps(merging.described(model)))
    config = tmp_path / "merge.yaml"
    config.write_text(json.dumps({**merging.placed(merging.CONFIGS[method], tmp_path), "dtype": "bfloat16"}))
    plan = ckpt_surgery.plan_merge(config)
    layers = 48 if method == "passthrough" else 32
    assert len(plan.steps) == 9 * layers + 3
    computed = {step.transfer is Transfer.COMPUTE for step in plan.steps}
    assert computed == {method != "passthrough"}
    assert plan.warnings == ()


def test_commands_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their processor time is what the kernel says of each; the warm-up does not count."""
    monkeypatch.setattr(os, "sync", lambda: None)
    log = tmp_path / "log"

    def writing(letter: str) -> list[str]:
        return [sys.executable, "-c", f"open({str(log)!r}, 'a').write({letter!r})"]

    used: list[float] = []
    wait = os.wait4

    def watched(pid: int, options: int) -> Any:
        found = wait(pid, options)
        used.append(found[2].ru_utime + found[2].ru_stime)
        return found

    monkeypatch.setattr(os, "wait4", watched)
    cleared: list[Any] = []
    first, second = measure_in_turns([writing("a"), writing("b")], 2, lambda: cleared.append(None))
    assert log.read_text() == "ababab"
    assert (first.runs, second.runs, len(cleared)) == (2, 2, 6)
    assert (first.processor, second.processor) == (median(used[2::2]), median(used[3::2]))
