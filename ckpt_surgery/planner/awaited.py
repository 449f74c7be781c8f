"""Tells which keys the rules that failed may have been meant to give.

Such keys are missing because of the rule, whose problem is told; all other missing keys are problems too.
"""

from collections.abc import Callable, Sequence, Set

from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.templates import Template
from ckpt_surgery.planner.claiming import Mirror, views
from ckpt_surgery.planner.evaluator import Evaluator


def awaited_keys(
    rules: Sequence[Rule], mirrors: Sequence[Mirror], evaluator: Evaluator, refused: Set[str]
) -> Callable[[str], bool]:
    """A function of a key that is missing: whether a rule that failed may have been meant to give it.

    `refused`: keys of leaves that are not kept because `unmatched: error` refuses them.
    """
    failed = [(index, rules[index]) for index in sorted(evaluator.problems.failed_rules)]

    def is_awaited(text: str) -> bool:
        seen = [view for view, _ in views(text, mirrors)]
        return text in refused or any(
            _may_give(index, rule, view, evaluator) for index, rule in failed for view in seen
        )

    return is_awaited


def _may_give(index: int, rule: Rule, text: str, evaluator: Evaluator) -> bool:
    """Whether a rule may give a leaf of this key."""
    if rule.drop:
        return False
    if rule.fill is not None:
        return evaluator.match(index, ("fill",), rule.fill, text) is not None
    templates = [*rule.to] if not isinstance(rule.to, Template | None) else [rule.to or rule.add]
    if templates == [None]:
        return rule.match is not None and evaluator.match(index, ("match",), rule.match, text) is not None
    return any(template.keys.fullmatch(text) for template in templates if template is not None)
