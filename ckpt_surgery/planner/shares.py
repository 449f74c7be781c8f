"""Which sources a plan uses at all, and how much of it is the target's own: both are easily mistakes.

A model whose names do not fit those of a checkpoint would come out whole, and made of random numbers.
"""

from collections.abc import Iterator, Mapping

from ckpt_surgery.core.errors import PlanError, Problem
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.parameters import is_parameter
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.graph.nodes import Read
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.plan import Fate, Plan
from ckpt_surgery.planner.prefixes import suggestions
from ckpt_surgery.planner.target import ANOTHER_TAKEN, NOT_IN_TARGET, Target

Listings = Mapping[str, Mapping[str, Leaf]]
BY_ITSELF = frozenset({NOT_IN_TARGET, ANOTHER_TAKEN, "not claimed"})
"""Why leaves are dropped that no part of a recipe speaks of."""


def check_sources_used(plan: Plan, loaded: LoadedRecipe, listings: Listings, target: Target | None) -> None:
    """Raise PlanError for each source with arrays that is neither used nor dropped on purpose.

    A recipe drops on purpose by a rule, also one that takes the target's value for some keys, by
    `unmatched: drop`, and by `prefer: target`.
    """
    if target is not None and target.policy.prefer == "target":
        return
    chosen = _chosen_keys(plan, loaded, target)
    used = {name for step in plan.steps for name, _ in step.sources}
    problems = []
    for given in plan.inputs:
        if given.name in used or given.name not in listings:
            continue
        arrays = [d for d in plan.dropped if d.source == given.name and d.leaf.kind is LeafKind.ARRAY]
        left = [d for d in arrays if d.rule is None and d.why in BY_ITSELF and d.leaf.key.text not in chosen]
        if arrays and len(left) == len(arrays):
            has = f"{shown(given.path)} has {few_keys(drop.leaf.key.printed for drop in arrays)}"
            message = f"nothing of the source `{given.name}` is used: {has}"
            hint = _hint(given.name, listings[given.name], target)
            problems.append(Problem(message, None, hint, Code.SOURCE_UNUSED))
    if problems:
        raise PlanError(*problems)


def _chosen_keys(plan: Plan, loaded: LoadedRecipe, target: Target | None) -> frozenset[str]:
    """Keys of the target for which a rule says what they are, and not one that takes all of its values."""
    if target is None:
        return frozenset()
    blanket = set(_claiming_all(loaded, target))
    ruled = (step for step in plan.steps if step.rule is not None and step.rule.path not in blanket)
    return frozenset(step.leaf.key.text for step in ruled)


def _hint(name: str, leaves: Mapping[str, Leaf], target: Target | None) -> str:
    if target is None:
        return f"Leave out this source, or drop it on purpose: `{{match: '.*', source: {name}, drop: true}}`."
    tree = {text: Entry(leaf.key, leaf, Read(name, leaf), None) for text, leaf in leaves.items()}
    rules = [one.rule for one in suggestions(list(target.leaves), target.leaves, tree)]
    fit = f"It fits the target by the rule `{'` and `'.join(rules)}`."
    return fit if rules else "Add rules that take its leaves to keys of the target."


def target_share(plan: Plan, loaded: LoadedRecipe, target: Target | None) -> Iterator[str]:
    """A warning where most elements are the target's own by a blanket permission, and not by a rule for them.

    Permissions are `missing: fallback`, and a `fill` rule that claims every leaf of the target. Optimizers do
    not count: to start them anew is common.
    """
    if target is None or target.policy.prefer == "target":
        return
    blanket = set(_claiming_all(loaded, target))
    elements = taken = 0
    for step in plan.steps:
        size = step.leaf.spec.size if step.leaf.spec is not None and is_parameter(step.leaf) else 0
        elements += size
        if step.fate is Fate.DEFAULTED and (step.rule is None or step.rule.path in blanket):
            taken += size
    if 2 * taken > elements:
        share = f"{taken:,} of {elements:,} elements of parameters ({taken / elements:.0%})"
        yield f"{share} are the target's own values: nothing of the sources gives them"


def _claiming_all(loaded: LoadedRecipe, target: Target) -> Iterator[str]:
    """The paths of the rules that take the target's value for every leaf that it has."""
    for number, pass_ in enumerate(loaded.recipe.passes):
        for index, rule in enumerate(pass_.rules):
            if (
                rule.fill is not None
                and rule.fallback
                and all(rule.fill.fullmatch(text) for text in target.leaves)
            ):
                yield loaded.rule_path(number, index)
