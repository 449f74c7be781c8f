"""Saved plans that are looked at, with and without their sources."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.inputs.pinned import show_plan
from tests.support.command_line import run
from tests.support.plans import sealed

RECIPE = r"""
version: 1
params: {scale: 2.0}
rules:
  - match: 'params/(?P<name>\w)'
    to: 'model/${name}'
    value: cast(x * scale, 'float32')
  - {match: 'none|key|layers/2.*', drop: true}
  - {add: fresh, value: "zeros((2,), 'float32')"}
"""


@pytest.fixture
def here(tmp_path: Path, checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved plan over a checkpoint that has every kind of leaf."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoint("standard"), "old")
    Path("r.yaml").write_text(RECIPE)
    done = run("plan", "r.yaml", "old", "new", "--out", "plan.json")
    assert done.exit_code == 0, done.output
    return tmp_path


def test_it_shows_what_the_plan_showed(here: Path) -> None:
    before = run("plan", "r.yaml", "old", "new", "--full").stdout
    document = json.loads(run("plan", "r.yaml", "old", "new", "--json").stdout)
    shutil.rmtree("old")
    shown = run("plan", "plan.json", "--full")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(re.sub(r"^destination .*\n", "", before, flags=re.MULTILINE))
    again = json.loads(run("plan", "plan.json", "--json").stdout)
    assert again.pop("misfits")["source"].startswith("cannot be opened: ")
    assert again == document


SEVERAL = """
version: 1
sources: [one, two]
passes:
  - rules:
      - {match: 'w(\\d)', to: 'v\\1', value: 'mean([x, two[key]])'}
      - {match: 'b/.*', value: 'zeros((2,), "float32")'}
  - rules:
      - {match: 'v(\\d)', to: 'u\\1'}
      - {match: gone, drop: true}
"""


def test_the_page_is_that_of_the_plan(here: Path) -> None:
    """Means, values that are replaced, and the rules of several passes."""
    for name in "ab":
        arrays = {key: np.ones(3, np.float32) for key in ("w0", "w1", "gone", "b/c", "kept/a/b")}
        save_file({**arrays, "b/c": np.ones((2, 2))}, f"{name}.safetensors")
    Path("m.yaml").write_text(SEVERAL)
    given = ["m.yaml", "a.safetensors", "b.safetensors"]
    plan = run("plan", *given, "--out", "m.json", "--report", "before.html", "--full")
    assert "averaged" in plan.stdout
    assert "value replaced" in plan.stdout
    Path("a.safetensors").unlink()
    shown = run("plan", "m.json", "--report", "after.html", "--full")
    assert shown.stdout.startswith(plan.stdout)
    assert Path("after.html").read_text() == Path("before.html").read_text()


def test_it_says_whether_the_sources_fit(here: Path) -> None:
    found = show_plan("plan.json")
    assert found is not None
    assert found.misfits == {"source": None}
    assert found.request.dst == str(here / "new")
    file = max((path for path in Path("old").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    with file.open("ab") as stream:
        stream.write(b"more")
    found = show_plan("plan.json")
    assert found is not None
    assert file.name in str(found.misfits["source"])
    done = run("plan", "plan.json")
    assert (done.exit_code, file.name in done.stdout) == (0, True)
    assert run("apply", "plan.json").exit_code == 2


def test_no_hook_is_loaded(here: Path) -> None:
    Path("hooks.py").write_text("def half(x):\n    return x / 2\n")
    Path("h.yaml").write_text(
        "version: 1\nhooks: hooks.py\nrules: [{match: params/b, value: hooks.half(x)}]\n"
    )
    ckpt_surgery.plan("h.yaml", "old", dst="halved", allow_hooks=True, out="h.json")
    Path("hooks.py").write_text("raise SystemExit('loaded')\n")
    done = run("plan", "h.json", "--full")
    assert (done.exit_code, "params/b" in done.stdout) == (0, True)


@pytest.mark.parametrize("more", [["old"], ["--memory", "1GiB"], ["--overwrite"], ["--out", "b.json"]])
def test_what_the_plan_has_decided_is_refused(here: Path, more: list[str]) -> None:
    done = run("plan", "plan.json", *more)
    assert done.exit_code == 2
    assert more[0] in done.stderr
    assert not Path("b.json").exists()
    done = run("plan", "plan.json", "-q", "--full", "--no-color", CKPT_SURGERY_MEMORY="1GiB")  # taste is not
    assert (done.exit_code, done.output) == (0, "")
    assert run("plan", "plan.json", "--detailed-exitcode").exit_code == 2


@pytest.mark.parametrize(
    ("name", "value"), [("looks", []), ("leaves", []), ("leaves", [99] * 16), ("dropped", [0])]
)
def test_what_contradicts_itself_is_refused(name: str, value: object, here: Path) -> None:
    document = json.loads(Path("plan.json").read_text())
    document["saved"]["looks"][name] = value
    Path("plan.json").write_text(json.dumps(sealed(document)))
    done = run("plan", "plan.json")
    assert (done.exit_code, "not a plan that was saved: saved.looks" in done.stderr) == (2, True)
