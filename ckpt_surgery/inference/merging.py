"""Rules that differ in words alone, as one rule with a table."""

from collections.abc import Sequence

from ckpt_surgery.inference.key_patterns import Universe
from ckpt_surgery.inference.rule_drafts import RuleDraft
from ckpt_surgery.inference.tables import Tables


def merged(rules: Sequence[RuleDraft], universe: Universe, tables: Tables) -> list[RuleDraft]:
    """The rules, those that are alike but for words as one."""
    return list(rules)
