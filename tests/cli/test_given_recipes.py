"""Recipes that a command is given, as a file or as rules."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support.command_line import run

RULES = ("-e", r"s|params/old/(.*)|params/new/\1|", "-e", "drop:opt/.*", "-e", "step = x + 1")
PRINTED = r"""# yaml-language-server: $schema=recipe.schema.json
version: 1
rules:
  - {match: params/old/(.*), to: params/new/\1}
  - {match: opt/.*, drop: true}
  - {match: step, value: x + 1}

"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    arrays = {"params/old/w": np.arange(6.0), "opt/mu": np.zeros(6), "step": np.int32(7)}
    np.savez(tmp_path / "in.npz", **arrays)
    return tmp_path / "in.npz"


def test_rules_without_a_file(source: Path, tmp_path: Path) -> None:
    done = run("apply", *RULES, source, tmp_path / "out.safetensors")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(PRINTED)
    found = load_file(tmp_path / "out.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        "params/new/w": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "step": 8,
    }


def test_what_is_printed_is_a_recipe_that_does_the_same(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(PRINTED.removesuffix("\n"))
    ways = [(RULES, ()), ((), (file,))]
    plans = [json.loads(run("plan", *rules, "--json", "-", *path, source).stdout) for rules, path in ways]
    assert plans[0]["leaves"] == plans[1]["leaves"]
    assert plans[0]["dropped"] == plans[1]["dropped"]
    assert plans[0]["recipe"]["sha256"] == plans[1]["recipe"]["sha256"]


def test_the_document_stays_alone_on_stdout(source: Path) -> None:
    done = run("plan", *RULES, "--json", "-", source)
    assert json.loads(done.stdout)["summary"]["dropped"] == 1
    assert done.stderr.startswith(PRINTED)


def test_a_rule_that_claims_nothing_is_shown_in_what_was_printed(source: Path) -> None:
    done = run("plan", "-e", "stp = 0", source)
    assert done.exit_code == 2
    assert "(recipe):4:13  rules[0].match" in done.stderr
    assert "did you mean `step`?" in done.stderr


def test_no_rule_and_no_source(source: Path) -> None:
    assert "`-e step` is no rule" in run("plan", "-e", "step", source).stderr
    assert run("plan", "-e", "step", source).exit_code == 2
    missing = run("plan", source)
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert "Missing argument 'SRC... [DST]'" in missing.stderr


def test_rules_do_not_go_with_a_recipe(source: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(PRINTED)
    done = run("plan", *RULES, tmp_path / "recipe.yaml", source, tmp_path / "out")
    assert done.exit_code == 2
    assert "the recipe takes 1 source" in done.stderr
