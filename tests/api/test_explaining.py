"""`ckpt_surgery.explain`, with real files."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import ckpt_surgery
from ckpt_surgery.planner.plan import Fate, Transfer
from ckpt_surgery.report.explanation import ExplainedFunction, Line

RECIPE = """\
version: 1
unmatched: drop
params: {to: net}
rules:
  # the layers
  - match: 'l_(?P<n>\\d+)/w'
    to: '${to}/w'
    value: cast(stack(xs), 'bfloat16')

  - {match: '(bias|step)'}
  - {match: old/w, drop: true}
  - {match: old, optional: true, to: gone}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    layers = {f"l_{i}/w": np.ones((2, 3), np.float32) for i in range(3)}
    others = {"bias": np.ones(4, np.float32), "step": np.array(7), "old/w": np.ones(2), "old/b": np.ones(2)}
    save_file({**layers, **others}, "a.safetensors")
    Path("r.yaml").write_text(RECIPE)
    return tmp_path


def test_a_leaf_of_the_result(here: Path) -> None:
    found = ckpt_surgery.explain("r.yaml", "a.safetensors", key="net/w")
    assert found.made is not None
    step = found.made.step
    assert (step.fate, step.transfer, step.leaf.nbytes) == (Fate.TRANSFORMED, Transfer.COMPUTE, 36)
    sources = [(o.source, o.leaf.key.text, str(o.leaf.spec)) for o in found.made.sources]
    assert sources == [("source", f"l_{i}/w", "float32[2,3]") for i in range(3)]
    assert found.made.operations == (
        ExplainedFunction("stack", 1, "f32[3,2,3]"),
        ExplainedFunction("cast", 1, "bf16[3,2,3]"),
    )
    lines = RECIPE.splitlines()
    assert found.excerpts == {"rules[0]": tuple(Line(number, lines[number - 1]) for number in (6, 7, 8))}
    assert (found.used, found.is_subtree) == ((), False)


def test_options_change_what_is_explained(here: Path) -> None:
    found = ckpt_surgery.explain("r.yaml", "a.safetensors", key="x/w", set={"to": "x"}, format="safetensors")
    assert found.made is not None
    with pytest.raises(TypeError, match="no option `sett`; did you mean `set`"):
        ckpt_surgery.explain("r.yaml", "a.safetensors", key="x/w", sett={})  # type: ignore[call-arg]


def test_the_policy_of_the_pass_that_dropped_a_leaf_is_shown(here: Path) -> None:
    recipe = (
        "version: 1\nunmatched: keep\npasses:\n"
        "  - {unmatched: drop, rules: [{match: bias}]}\n  - {rules: [{match: bias, to: b}]}\n"
    )
    found = ckpt_surgery.explain(recipe, "a.safetensors", key="old/b")
    (line,) = found.excerpts["unmatched"]
    assert line.number == 4


def test_without_a_recipe_and_from_a_tree() -> None:
    found = ckpt_surgery.explain(None, {"a": {"b": np.ones(2)}}, key="a/b")
    assert found.made is not None
    assert (found.made.step.fate, found.made.stages, found.excerpts) == (Fate.KEPT, (), {})


def test_a_key_between_passes_is_told_apart_from_a_misspelt_one(here: Path) -> None:
    recipe = (
        "version: 1\npasses:\n  - {rules: [{match: old/b, to: mid}]}\n  - {rules: [{match: mid, to: new}]}\n"
    )
    with pytest.raises(ckpt_surgery.UsageError, match=r"between the passes, after passes\[0\]"):
        ckpt_surgery.explain(recipe, "a.safetensors", key="mid")
