"""Which sources a plan uses at all, and how much of it is the target's own: both are easily mistakes.

A model whose names do not fit those of a checkpoint would come out whole, and made of random numbers.
"""

from collections.abc import Iterator, Mapping

from ckpt_surgery.core.errors import PlanError, Problem
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.parameters import is_of_optimizer
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Read
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.written import TracedFunction
from ckpt_surgery.planner.asked import PLACEHOLDER
from ckpt_surgery.planner.entries import Entry
from ckpt_surgery.planner.plan import Fate, Plan
from ckpt_surgery.planner.prefixes import suggestions
from ckpt_surgery.planner.problems import MANY
from ckpt_surgery.planner.target import ANOTHER_TAKEN, NOT_IN_TARGET, Target

Listings = Mapping[str, Mapping[str, Leaf]]
BY_ITSELF = frozenset({NOT_IN_TARGET, ANOTHER_TAKEN, PLACEHOLDER, "not claimed"})
"""Why leaves are dropped that no part of a recipe speaks of."""


def check_sources_used(plan: Plan, loaded: LoadedRecipe, listings: Listings, target: Target | None) -> None:
    """Raise PlanError for each source with arrays that is neither used nor dropped on purpose.

    A recipe drops on purpose by a rule with `drop`, by a value that uses none of what it claims, by
    `unmatched: drop`, and by `prefer: target`. Transforms of Orbax may use nothing, as in Orbax itself.
    """
    if loaded.document.rules or (target is not None and target.policy.prefer == "target"):
        return
    used = {name for step in plan.steps for name, _ in step.sources}
    problems = []
    for given in plan.inputs:
        if given.name in used or given.name not in listings:
            continue
        arrays = [d for d in plan.dropped if d.source == given.name and d.leaf.kind is LeafKind.ARRAY]
        if arrays and all(drop.why in BY_ITSELF for drop in arrays):
            has = f"{shown(given.path)} has {few_keys(drop.leaf.key.printed for drop in arrays)}"
            message = f"nothing of the source `{given.name}` is used: {has}"
            hint = _hint(given.name, plan, loaded, listings, target)
            problems.append(Problem(message, None, hint, Code.SOURCE_UNUSED))
    if problems:
        raise PlanError(*problems)


def _hint(name: str, plan: Plan, loaded: LoadedRecipe, listings: Listings, target: Target | None) -> str:
    """What to do about a source that is not used: rules that take its leaves in place of the target's."""
    away = f"Leave out this source, or drop it on purpose: `{{match: '.*', source: {name}, drop: true}}`."
    if target is None:
        return away
    defaulted = [step.leaf.key.text for step in plan.steps if step.fate is Fate.DEFAULTED]
    trees = {
        source: {text: Entry(leaf.key, leaf, Read(source, leaf)) for text, leaf in leaves.items()}
        for source, leaves in listings.items()
    }
    offered = {source: tree if source == name else {} for source, tree in trees.items()}
    rules = [one.rule for one in suggestions(defaulted, target.leaves, offered)]
    if not rules:
        more = f" {away}" if len(listings) > 1 else ""
        return f"Add rules that take its leaves to keys of the target.{more}"
    rule_paths = (step.rule.path for step in plan.steps if step.rule is not None)
    taking = frozenset(_taking_always(loaded))
    always = dict.fromkeys(f"`{path}`" for path in rule_paths if path in taking)
    instead = f", in place of {' and '.join(always)}" if always else ""
    return f"It fits the target by the rule `{'` and `'.join(rules)}`{instead}."


def check_keys(function: TracedFunction, target: Target | None) -> None:
    """Raise PlanError where what a function returns and what the target has do not go together.

    Leaves that only the target has keep their values there: but where the function also returns others that
    the target lacks, most likely one is the other, misspelt.
    """
    if target is None:
        return
    wanted = {t: leaf for t, leaf in target.leaves.items() if t not in target.placeholders}
    missing = [t for t, leaf in wanted.items() if t not in function.keys and leaf.kind is not LeafKind.EMPTY]
    surplus = [text for text in sorted(function.keys) if text not in target.leaves]
    abstract = [text for text in missing if not target.has_value(target.leaves[text])]
    if missing and surplus:
        message = (
            f"{function.label} does not return {few_keys(missing, MANY)} of the target, and returns "
            f"{few_keys(surplus, MANY)}, which the target does not have"
        )
        hint = (
            "If one is meant to be the other, correct its name. If not, return `...` for what the target "
            "gives, and do not return the others."
        )
        raise PlanError(Problem(message, None, hint, Code.TARGET_MISSING))
    if abstract:
        lack = "the target has no values for them" if target.has_values else target.lack
        message = f"{function.label} does not return {few_keys(abstract, MANY)}: {lack}"
        hint = "Return them, or give a target that has values."
        raise PlanError(Problem(message, None, hint, Code.TARGET_MISSING))


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
        size = 0 if step.leaf.spec is None or is_of_optimizer(step.leaf) else step.leaf.spec.size
        elements += size
        if step.fate is Fate.DEFAULTED and (step.rule is None or step.rule.path in blanket):
            taken += size
    if 2 * taken > elements:
        share = f"{taken:,} of {elements:,} elements ({taken / elements:.0%}, optimizers' states not counted)"
        yield f"{share} are the target's own values: nothing of the sources gives them"


def _claiming_all(loaded: LoadedRecipe, target: Target) -> Iterator[str]:
    """The paths of the rules that take the target's value for every leaf that it has."""
    for path, rule in _rules(loaded):
        if rule.fill is not None and rule.fallback and all(map(rule.fill.fullmatch, target.leaves)):
            yield path


def _taking_always(loaded: LoadedRecipe) -> Iterator[str]:
    """The paths of the rules that take the target's value also where a source has one."""
    return (path for path, rule in _rules(loaded) if rule.fallback is True)


def _rules(loaded: LoadedRecipe) -> Iterator[tuple[str, Rule]]:
    for number, pass_ in enumerate(loaded.recipe.passes):
        for index, rule in enumerate(pass_.rules):
            yield loaded.rule_path(number, index), rule
