"""Records which rules decided about a leaf, pass by pass, and what each of them changed of it.

A last pass often only carries on what earlier ones made: it adds a prefix to all keys, for example. So the
rule that a plan names for a leaf is the first that changed its value, else the first that changed its key,
else the last that claimed it. All the others that changed it are listed beside that one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain

from ckpt_surgery.core.keys import Key
from ckpt_surgery.functions.arrays import Node, nodes_of
from ckpt_surgery.planner.entries import Entry, RuleEffect, RuleRef, Tree

Effects = tuple[RuleEffect, ...]


class EffectLog:
    """Follows the effects of rules through one pass."""

    def __init__(self, trees: Mapping[str, Tree]):
        """`trees`: the entries before the pass, by name of the source."""
        entries = [entry for tree in trees.values() for entry in tree.values() if entry.effects]
        self._changed = {id(entry.value): entry.effects for entry in entries}
        """The effects of earlier passes, by the identity of the values that they gave."""
        self._unchanging: dict[int, Effects] = {}
        self._known: dict[tuple[int, int, bool, bool], tuple[Effects, Effects]] = {}

    def after(self, rule: RuleRef, key: Key, value: Node, claimed: Sequence[Entry]) -> Effects:
        """The effects up to this pass on the leaf that a rule makes of the leaves that it claimed."""
        kept = next((entry for entry in claimed if entry.value is value), None)
        renames = len(claimed) != 1 or claimed[0].key.names != key.names
        if kept is not None:
            return self._extended(kept.effects, rule, renames, False)
        found = [entry.effects for entry in claimed]
        if self._changed:
            found += self._looked_up(value, {id(entry.value) for entry in claimed})
        return self._extended(_merged(found), rule, renames, True)

    def _extended(self, earlier: Effects, rule: RuleRef, renames: bool, computes: bool) -> Effects:
        """`earlier` and one effect more. Leaves with the same effects share them."""
        alike = (id(earlier), id(rule), renames, computes)
        if alike not in self._known:
            # `earlier` is kept with it, so that its identity stays its own.
            self._known[alike] = earlier, (*earlier, RuleEffect(rule, renames, computes))
        return self._known[alike][1]

    def _looked_up(self, value: Node, claimed: Set[int]) -> Iterator[Effects]:
        """The rules that changed leaves which a value looks up: of this leaf they changed nothing."""
        for node in nodes_of(value, set(claimed), ends=self._changed):
            effects = self._changed.get(id(node))
            if effects is not None:
                if id(effects) not in self._unchanging:
                    others = tuple([RuleEffect(one.rule, False, False) for one in effects])
                    self._unchanging[id(effects)] = others
                yield self._unchanging[id(effects)]


def _merged(found: Iterable[Effects]) -> Effects:
    """The effects on several leaves together, in the order of passes and rules."""
    distinct = list({id(effects): effects for effects in found if effects}.values())
    if len(distinct) < 2:
        return distinct[0] if distinct else ()
    by_rule: dict[RuleRef, RuleEffect] = {}
    for effect in (effect for effects in distinct for effect in effects):
        known = by_rule.get(effect.rule, effect)
        by_rule[effect.rule] = RuleEffect(
            effect.rule, effect.renames or known.renames, effect.computes or known.computes
        )
    return tuple(sorted(by_rule.values(), key=lambda effect: effect.rule.location))


def deciding_rule(effects: Effects) -> RuleRef | None:
    """The rule that did the work on a leaf; None if no rule has claimed it."""
    computing = (effect.rule for effect in effects if effect.computes)
    renaming = (effect.rule for effect in effects if effect.renames)
    claiming = (effect.rule for effect in reversed(effects))
    return next(chain(computing, renaming, claiming), None)


def naming_rule(effects: Effects) -> RuleRef | None:
    """The rule that gave a leaf its key, or the last that claimed it; None if no rule has."""
    renaming = [effect.rule for effect in effects if effect.renames]
    return renaming[-1] if renaming else effects[-1].rule if effects else None


def changing_rules(effects: Effects) -> tuple[RuleRef, ...]:
    """The rules that changed a leaf; the last that claimed it if none did."""
    changing = tuple([effect.rule for effect in effects if effect.renames or effect.computes])
    return changing or tuple([effect.rule for effect in effects[-1:]])
