"""The explanations of codes: there is one of each, and its example has a problem of this code."""

from pathlib import Path

import numpy as np
import pytest

import ckpt_surgery
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.explanations import EXPLANATIONS
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.language import patterns

TREE = {
    "params": {
        name: {"kernel": np.zeros((4, 8), np.float32), "bias": np.zeros(8, np.float32)}
        for name in ("dense_0", "dense_1")
    },
    "step": np.zeros((), np.int32),
}
"""What the examples are about."""

COMMANDS = [code for code in Code if EXPLANATIONS[code].example.startswith("$ ")]
RECIPES = [code for code in Code if code not in (*COMMANDS, Code.SLOW_PATTERN)]


def problems_of(recipe: Path) -> tuple[Problem, ...]:
    ((_, problems),) = ckpt_surgery.lint([recipe])
    if problems:
        return problems
    with pytest.raises(ckpt_surgery.SurgeryError) as caught:
        ckpt_surgery.plan(recipe, TREE)
    return caught.value.problems


def test_every_code_is_explained_in_the_order_of_codes() -> None:
    assert list(EXPLANATIONS) == list(Code)


@pytest.mark.parametrize("code", Code)
def test_an_explanation_is_a_title_sentences_and_an_example(code: Code) -> None:
    explained = EXPLANATIONS[code]
    assert not explained.title.endswith(".")
    assert explained.text.endswith(".")
    assert "  " not in explained.text
    assert explained.example.endswith("\n")


@pytest.mark.parametrize("code", RECIPES)
def test_an_example_has_a_problem_of_its_code_and_no_other(code: Code, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(EXPLANATIONS[code].example)
    assert {problem.code for problem in problems_of(recipe)} == {code}


def test_the_example_of_a_slow_pattern_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(EXPLANATIONS[Code.SLOW_PATTERN].example)
    ((_, problems),) = ckpt_surgery.lint([recipe])
    assert not problems
    monkeypatch.setattr(patterns, "REGEX_SECONDS", 0.05)
    with pytest.raises(ckpt_surgery.SurgeryError) as caught:
        ckpt_surgery.plan(recipe, {"a" * 60 + "!a": np.zeros(1)})
    assert {problem.code for problem in caught.value.problems} == {Code.SLOW_PATTERN}
