"""`--report`: the page is written as other documents are, with the recipe that the plan was made from."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from ckpt_surgery.api.report_page import recipe_text
from ckpt_surgery.language.yaml.parsing import parse_document
from ckpt_surgery.report.html import RuleLines
from tests.support.command_line import run

RECIPE = """\
version: 1
rules:
  - match: 'opt/.*'
    drop: true
  # One that no checkpoint has.
  - match: 'none'
    optional: true
  - match: 'a/(?P<n>.*)'
    to: 'b/${n}'
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file({name: np.ones((2, 3), np.float32) for name in ("a/x", "opt/mu")}, "m.safetensors")
    Path("r.yaml").write_text(RECIPE)
    return tmp_path


def muted(page: Path) -> list[int]:
    return [int(n) for n in re.findall(r'id="L(\d+)" class="muted"', page.read_text())]


def leaves_in(page: Path) -> list[str]:
    found = re.search(r'id="data">(.*?)</script>', page.read_text())
    assert found
    data = json.loads(found[1])
    return [leaf[0] for leaf in (*data["leaves"], *data["dropped"])]


def test_a_plan_and_a_run_have_a_page(place: Path) -> None:
    assert run("plan", "r.yaml", "m.safetensors", "--report", "plan.html").exit_code == 0
    done = run("apply", "r.yaml", "m.safetensors", "n.npz", "--report", "run.html", "--json", "r.json")
    assert done.exit_code == 0
    for name in ("plan.html", "run.html"):
        assert leaves_in(place / name) == ["b/x", "opt/mu"]
        assert muted(place / name) == [6, 7]
    assert "<dt>time</dt>" not in (place / "plan.html").read_text()
    assert "<dt>time</dt>" in (place / "run.html").read_text()
    assert json.loads((place / "r.json").read_text())["destination"] == "n.npz"
    assert run("apply", "r.yaml", "m.safetensors", "x", "--dry-run", "--report", "dry.html").exit_code == 0
    assert leaves_in(place / "dry.html") == ["b/x", "opt/mu"]
    assert run("convert", "m.safetensors", "c.npz", "--report", "convert.html").exit_code == 0
    assert leaves_in(place / "convert.html") == ["a/x", "opt/mu"]
    assert "The plan has no recipe" in (place / "convert.html").read_text()


def test_a_saved_plan_has_its_recipe_while_that_is_the_same(place: Path) -> None:
    assert run("plan", "r.yaml", "m.safetensors", "--format=npz", "--out=p.json").exit_code == 0
    refused = run("apply", "p.json", "one.npz", "--shard", "0/2", "--report", "x.html")
    assert "--report does not go with --shard" in refused.stderr
    assert run("apply", "p.json", "one.npz", "--report", "one.html").exit_code == 0
    assert muted(place / "one.html") == [6, 7]
    Path("r.yaml").write_text(RECIPE + "unmatched: keep\n")
    assert run("apply", "p.json", "two.npz", "--report", "two.html").exit_code == 0
    Path("r.yaml").unlink()
    assert run("apply", "p.json", "three.npz", "--report", "three.html").exit_code == 0
    for name in ("two.html", "three.html"):
        assert "its file was removed or has changed" in (place / name).read_text()
        assert leaves_in(place / name) == ["b/x", "opt/mu"]


PASSES = """\
version: 1
passes:
  - when: "count('x') > 0"
    rules:
      - match: 'x'
        drop: true

  - rules:
      - match: 'a'  # what remains
        to:
          'b': x
          'c': >
            x
            + x

      - {match: 'd', drop: true}
# The end.
"""


def test_rules_end_with_their_last_value() -> None:
    found = recipe_text(parse_document(PASSES, "r.yaml"))
    assert list(found.lines) == PASSES.splitlines()
    assert found.rules == [
        RuleLines("passes[0].rules[0]", 5, 6, True),  # a pass may not be run
        RuleLines("passes[1].rules[0]", 9, 14, False),
        RuleLines("passes[1].rules[1]", 16, 16, False),
    ]
    assert recipe_text(parse_document("version: 1\n", "r.yaml")).rules == []


def test_lines_are_counted_as_rules_count_them() -> None:
    text = "version: 1\r\nrules:\r  - match: 'a\u2028b'\n    drop: true\n"
    found = recipe_text(parse_document(text, "r.yaml"))
    assert list(found.lines) == ["version: 1", "rules:", "  - match: 'a\u2028b'", "    drop: true"]
    assert found.rules == [RuleLines("rules[0]", 3, 4, False)]
