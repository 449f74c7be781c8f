"""The recipe of a command: a file, a packaged one, or rules that are given with `-e`."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import click

from ckpt_surgery.cli.terminal.console import Terminal
from ckpt_surgery.core.errors import Problem
from ckpt_surgery.core.problem_codes import Code

RULES = "rules"
"""Name of the rules of `-e` in the context's `meta`."""
MATCHES_A_PART = "it matches only "
"""Part of the message about a rule that matches no whole key, but parts of some."""


def given_recipe(recipe: str, rules: Sequence[str], set: Iterable[str], terminal: Terminal) -> Any:
    """The recipe, read and checked. Rules are printed as the recipe that they are, before they are checked.

    `recipe` is not looked at where there are rules. Raises RecipeError, UsageError.
    """
    from rich.text import Text

    from ckpt_surgery.inputs.request import read_recipe, recipe_of_rules

    if not rules:
        return read_recipe(recipe, tuple(set))
    click.get_current_context().meta[RULES] = tuple(rules)
    text = recipe_of_rules(rules)
    terminal.show([*(Text(line) for line in text.splitlines()), Text()])
    return read_recipe(text, tuple(set))


def with_rule_inside_keys(problem: Problem, rules: Sequence[str]) -> Problem:
    """The problem; where a rule of `-e` matches no whole key, but parts of some, with the rule for parts."""
    from ckpt_surgery.inputs.request import rule_inside_keys

    path = "" if problem.place is None else problem.place.path
    number = re.match(r"rules\[(\d+)\]\.match", path)
    if number is None or problem.code is not Code.CLAIMS_NOTHING or MATCHES_A_PART not in problem.message:
        return problem
    rule = rule_inside_keys(rules, int(number[1]))
    if rule is None:
        return problem
    hint = f"A pattern has to match the whole key. To replace inside keys, add a g: -e {shlex.quote(rule)}"
    return replace(problem, hint=hint)
