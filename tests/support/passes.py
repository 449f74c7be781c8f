"""The parts of one pass over listings in memory, for tests of claiming, producing, filling and the target."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.language.loading import parse_recipe
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.planner.decisions import rules_of as rule_runs
from ckpt_surgery.planner.entries import Entry, Tree
from ckpt_surgery.planner.limits import PlanLimits
from ckpt_surgery.planner.problems import Problems
from ckpt_surgery.planner.running import PassRun
from ckpt_surgery.planner.target import Target, listed_target, target_leaves
from tests.support.leaves import listing
from tests.support.plans import configs

Described = Mapping[str, str] | Sequence[str]
"""Leaves as `tests.support.leaves.listing` takes them."""


def tree_of(source: str, leaves: Described) -> Tree:
    """The entries of a source's leaves, as no pass has changed them."""
    return {text: Entry(leaf.key, leaf, Read(source, leaf)) for text, leaf in listing(leaves).items()}


def target_of(leaves: Described, readable: bool = True, **policy: str) -> Target:
    """A target; `policy`: fields of the recipe's `target`."""
    described, chosen = listing(leaves), TargetPolicy.model_validate(policy)
    return Target(described, chosen) if readable else listed_target(described, chosen)


def pass_run_of(
    recipe: str, *sources: Described, target: Target | None = None, pass_index: int = 0
) -> PassRun:
    """One pass of a recipe's text over the sources, which has its rules and has not run."""
    loaded = replace(parse_recipe(recipe, "recipe.yaml"), configs=configs(None))
    names = loaded.recipe.source_names(len(sources))
    trees = {name: tree_of(name, given) for name, given in zip(names, sources, strict=True)}
    limits = PlanLimits(sum(map(len, trees.values())))
    pass_ = loaded.recipe.passes[pass_index]
    run = PassRun(pass_, trees, target_leaves(target), Problems(loaded, pass_index), limits)
    run.rules = rule_runs(run, target)
    return run


def rules_of(*rules: str, head: str = "") -> str:
    """The text of a recipe with these rules: one a line, from line 3 on, or after the lines of `head`."""
    return f"version: 1\n{head}rules:\n" + "".join(f"- {{{rule}}}\n" for rule in rules)
