"""What the rules of a pass make of the leaves that they claimed: new entries, and leaves that are dropped."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.errors import PlanError, SurgeryError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key, natural_order
from ckpt_surgery.core.notices import few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.functions.arrays import Apply, Node, Series
from ckpt_surgery.language.expressions import Expression
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.scope import Scalar, Unavailable
from ckpt_surgery.language.templates import Template
from ckpt_surgery.planner.claiming import Claim, Claims, Mirror, why_unused
from ckpt_surgery.planner.entries import HAS_ARRAY, KINDS, Drop, Entry, array_of, in_place_of, key_of, under
from ckpt_surgery.planner.evaluator import FAILED, Evaluator, Names, Ranges, combinations_of
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.problems import OPTIONAL, Field


@dataclass(frozen=True)
class Produced:
    """What the rules of a pass make."""

    entries: Sequence[tuple[int, Entry]]
    """New entries in the order of the rules, each with the number of its rule."""
    drops: Sequence[Drop]
    """Leaves that rules with `drop: true` claimed."""
    unused: Sequence[Drop]
    """Leaves that rules with expressions claimed. They are dropped unless an output uses them."""


@frozen(eq=False)
class Contribution:
    """One leaf's part in an output: the output's key, and what the expression sees at this leaf."""

    claim: Claim
    key: Key
    value: Expression | None
    names: Names


def produce(
    rules: Sequence[Rule], claims: Claims, mirrors: Sequence[Mirror], evaluator: Evaluator
) -> Produced:
    """Carry out the `match` and `add` rules of a pass."""
    _check_counts(rules, claims, evaluator)
    entries: list[tuple[int, Entry]] = []
    drops: list[Drop] = []
    unused: list[Drop] = []
    for index, rule in enumerate(rules):
        ref = evaluator.problems.ref(index)
        if rule.add is not None:
            entries += [(index, entry) for entry in _added(index, rule, evaluator)]
        if rule.match is None:
            continue
        claimed = claims.by_rule.get(index, ())
        if not claimed and not rule.optional:
            why = why_unused(index, rule, claims.entries, mirrors, evaluator)
            evaluator.problems.at(index, ("match",), why)
        if rule.drop:
            drops += [Drop(claim.entry, ref, "drop") for claim in claimed]
            continue
        if rule.values:
            unused += [Drop(claim.entry, ref, "no output uses it") for claim in claimed]
        if claimed:
            _warn_of_braces(index, rule, evaluator)
        made = MatchRule(index, rule, evaluator).entries(claimed)
        entries += [(index, entry) for entry in made]
    return Produced(entries, drops, unused)


def _check_counts(rules: Sequence[Rule], claims: Claims, evaluator: Evaluator) -> None:
    """End planning if the rules of a pass would make too much, before they make anything of it."""
    total = 0
    for index, rule in enumerate(rules):
        if rule.add is not None:
            ranges = evaluator.ranges(index, rule, evaluator.names, rule.add.text, rule)
            total += _combinations(ranges)
            evaluator.check_made(index, ("for",) if rule.for_ else ("add",), total)
        if rule.match is None or rule.drop:
            continue
        outcomes = len(rule.to) if isinstance(rule.to, Mapping) else 1
        claimed = claims.by_rule.get(index, ())
        if not rule.for_:
            total += outcomes * len(claimed)
            evaluator.check_made(index, ("match",), total)
            continue
        for claim in claimed:
            text = claim.entry.key.text
            ranges = evaluator.ranges(index, rule, claim.names(evaluator), text, claim)
            total += outcomes * _combinations(ranges)
            evaluator.check_made(index, ("for",), total)


def _combinations(ranges: Ranges | None) -> int:
    return 0 if ranges is None else math.prod(len(values) for _, values in ranges)


class MatchRule:
    """One `match` rule, and the entries that it makes of the leaves that it claimed."""

    def __init__(self, index: int, rule: Rule, evaluator: Evaluator):
        """`index`: the number of the rule in its pass."""
        self._index = index
        self._rule = rule
        self._outcomes: list[tuple[Template | None, Expression | None]]
        if isinstance(rule.to, Mapping):  # where `x` alone is the leaf itself, whatever its kind
            self._outcomes = [(key, None if e.single_name == "x" else e) for key, e in rule.to.items()]
        else:
            self._outcomes = [(rule.to, rule.value)]
        self._evaluator = evaluator
        self._problems = evaluator.problems
        self._ref = evaluator.problems.ref(index)

    def entries(self, claims: Sequence[Claim]) -> Iterator[Entry]:
        """What the rule makes, output by output."""
        rule = self._rule
        assert rule.match is not None
        for template, expression in self._outcomes:
            field = ("to", template.text) if isinstance(rule.to, Mapping) and template else ("value",)
            spelled = template is not None and template.names_beyond(rule.match)
            if not (expression or rule.mirror_value or rule.for_ or spelled):
                yield from self._renamed(template, claims)
                continue
            found = (member for one in claims for member in self._contributions(template, expression, one))
            members = (self._counted(template, member) for member in found)
            if expression is not None and "xs" in expression.names:
                yield from self._gathered(field, members)
            else:
                yield from self._single(field, members)

    def contributions(self, claim: Claim) -> Iterator[Contribution]:
        """All outputs that one leaf takes part in."""
        for template, expression in self._outcomes:
            yield from self._contributions(template, expression, claim)

    def _counted(self, template: Template | None, member: Contribution) -> Contribution:
        self._check_key(member.key, template)
        return member

    def _renamed(self, template: Template | None, claims: Iterable[Claim]) -> Iterator[Entry]:
        """Leaves that keep their values and get a key made of groups alone: what most rules do."""
        for claim in claims:
            key = self._destination(template, claim, {})
            if key is not None:
                self._check_key(key, template)
                yield self._carried(claim.entry, key)

    def _carried(self, entry: Entry, key: Key) -> Entry:
        """The entry with another key, and the same value."""
        effects = self._evaluator.effects.after(self._ref, key, entry.value, [entry])
        return Entry(key, entry.leaf, entry.value, effects)

    def _destination(self, template: Template | None, claim: Claim, names: Names) -> Key | None:
        """The new key of a claimed leaf; None if there is a problem, which is noted."""
        origin, lists = claim.entry.key, self._evaluator.lists
        if template is None:
            return origin
        names_alone = None if lists or claim.mirror else template.names_of(claim.match)
        if names_alone is not None:
            return Key(names_alone, (False,) * len(names_alone))
        try:
            components = self._evaluator.expanded(template, claim.match, names)
            if claim.mirror is None:
                return key_of(components, origin, self._evaluator.lists_meant)
            return self._mirrored(key_of(components, None, lists), claim.mirror)
        except SurgeryError as error:
            several = isinstance(self._rule.to, Mapping)
            field = ("to", template.text) if several else ("to",)
            self._problems.at(self._index, field, error, origin.text, several)
            return None

    def _check_key(self, key: Key, template: Template | None) -> None:
        """End planning if the names of all leaves become too long. A rule without a template makes none."""
        if template is not None:
            field = ("to", template.text) if isinstance(self._rule.to, Mapping) else ("to",)
            self._evaluator.check_key(self._index, field, key)

    def _mirrored(self, key: Key, mirror: Mirror) -> Key:
        """The key of a mirrored leaf whose parameter is renamed to `key`."""
        moved = under(key, mirror.params.split("/"), mirror.slot.split("/"), self._evaluator.lists)
        if moved is None:
            raise SurgeryError(
                f"the rule takes `{key}` out of `{mirror.params}`: it cannot be mirrored into "
                f"`{mirror.slot}`",
                code=Code.MIRROR,
            )
        return moved

    def _contributions(
        self, template: Template | None, expression: Expression | None, claim: Claim
    ) -> Iterator[Contribution]:
        """The outputs that one leaf takes part in: one for each combination of the `for` variables."""
        rule = self._rule
        if claim.mirror is not None:
            expression = rule.mirror_value or expression
        text = claim.entry.key.text
        names = claim.names(self._evaluator)
        ranges = self._evaluator.ranges(self._index, rule, names, text, claim) if rule.for_ else []
        if ranges is not None and not _combinations(ranges) and not rule.optional:
            why = "`for` has no values, so that nothing is made"
            nothing = PlanError(why, hint=OPTIONAL, code=Code.CLAIMS_NOTHING)
            self._problems.at(self._index, ("for",), nothing, text)
        for variables in () if ranges is None else combinations_of(ranges):
            scope = {**names, **variables} if variables else names
            key = self._destination(template, claim, scope)
            if key is not None:
                yield Contribution(claim, key, expression, scope)

    def _single(self, field: Field, members: Iterable[Contribution]) -> Iterator[Entry]:
        """The outputs of an expression that sees one leaf. Where `to` has one template, they replace it."""
        replaces = not isinstance(self._rule.to, Mapping)
        for member in members:
            entry = member.claim.entry
            if member.value is None:
                yield self._carried(entry, member.key)
                continue
            at, text = self._field_of(member, field), entry.key.text
            old = entry.leaf if replaces else None
            made = self._evaluator.made(
                self._index, at, member.value, member.names, member.key, entry.leaf, text, old, [entry]
            )
            if made is not None and entry.leaf.kind not in HAS_ARRAY:
                message = f"`{entry.key}` is {KINDS[entry.leaf.kind]}: no value can take its place"
                wrong = PlanError(message, code=Code.NOT_AN_ARRAY)
                self._problems.at(self._index, at, wrong, text)
            elif made is not None and self._mirrors_well([member], made):
                yield in_place_of(entry, made) if replaces else made

    def _gathered(self, field: Field, members: Iterable[Contribution]) -> Iterator[Entry]:
        """The outputs of an expression that sees `xs`, all leaves that share one key."""
        groups: dict[str, list[Contribution]] = defaultdict(list)
        for member in members:
            groups[member.key.text].append(member)
        for text, group in groups.items():
            made = self._gather(field, text, group)
            if made is not None:
                yield made

    def _gather(self, field: Field, text: str, group: Sequence[Contribution]) -> Entry | None:
        """The output `text` of several leaves; None if there is a problem, which is noted."""
        if self._rule.by is None and len({id(m.claim) for m in group}) < len(group):
            self._problems.at(self._index, ("for",), _twice(group), text)
            return None
        ordered = self._ordered(group)
        if ordered is None:
            return None
        members, places = ordered
        head = members[0]
        at = self._field_of(head, field)
        names = _shared_names([m.names for m in members])
        try:
            names["xs"] = Series(tuple(array_of(m.claim.entry) for m in members), places)
        except SurgeryError as error:
            self._problems.at(self._index, at, error, text)
            return None
        assert head.value is not None
        leaf = head.claim.entry.leaf
        claimed = [m.claim.entry for m in members]
        made = self._evaluator.made(self._index, at, head.value, names, head.key, leaf, text, claimed=claimed)
        return made if made is not None and self._mirrors_well(members, made) else None

    def _ordered(
        self, group: Sequence[Contribution]
    ) -> tuple[list[Contribution], tuple[int, ...] | None] | None:
        """The leaves in the order of `by`, and their places if `by` gives integers."""
        by = self._rule.by
        if by is None:
            return sorted(group, key=lambda m: natural_order(m.claim.entry.key.text)), None
        places = [
            self._evaluator.evaluate(self._index, ("by",), by, m.names, m.claim.entry.key.text) for m in group
        ]
        if any(place is FAILED for place in places):
            return None
        problem = _order_problem(places, group)
        if problem is not None:
            self._problems.at(self._index, ("by",), PlanError(problem, code=Code.ORDER))
            return None
        integers = all(isinstance(place, int) for place in places)
        pairs = sorted(
            zip(places, group, strict=True), key=lambda pair: pair[0] if integers else natural_order(pair[0])
        )
        return [member for _, member in pairs], tuple(place for place, _ in pairs) if integers else None

    def _field_of(self, member: Contribution, field: Field) -> Field:
        """The field of the rule that has the expression for a leaf's value."""
        return ("mirror_value",) if member.claim.mirror and self._rule.mirror_value else field

    def _mirrors_well(self, members: Sequence[Contribution], made: Entry) -> bool:
        """Whether a mirrored leaf changes in layout only, or as `mirror_value` says."""
        head = members[0].claim
        if head.mirror is None or self._rule.mirror_value is not None:
            return True
        if is_layout(made.value, {id(m.claim.entry.value) for m in members}):
            return True
        error = SurgeryError(
            "the rule is mirrored, and its value changes more than layout",
            hint="Say with `mirror_value:` what becomes of the mirrored leaves.",
            code=Code.MIRROR,
        )
        self._problems.at(self._index, ("value",), error, head.entry.key.text)
        return False


def _added(index: int, rule: Rule, evaluator: Evaluator) -> Iterator[Entry]:
    """What an `add` rule makes."""
    assert rule.add is not None
    _warn_of_braces(index, rule, evaluator)
    used = rule.when is None and not rule.for_
    ranges = evaluator.ranges(index, rule, evaluator.names, rule.add.text, rule)
    for variables in () if ranges is None else combinations_of(ranges):
        used = used or rule.when is None
        names = {**evaluator.names, **variables}
        if rule.when is not None:
            wanted = evaluator.condition(index, rule.when, names, rule.add.text)
            used = used or wanted is not False
            if not wanted:
                continue
        key = evaluator.spell(index, ("add",), rule.add, None, names, "")
        if key is None or rule.value is None:
            continue
        evaluator.check_key(index, ("add",), key)
        names["key"] = key.text
        made = evaluator.made(index, ("value",), rule.value, names, key, None, key.text)
        if made is not None:
            yield made
    if not used and not rule.optional:
        why = "`when` is false" if rule.when is not None else "`for` has no values"
        unused = PlanError(f"the rule makes nothing: {why}", hint=OPTIONAL, code=Code.CLAIMS_NOTHING)
        evaluator.problems.at(index, ("add",), unused)


def _warn_of_braces(index: int, rule: Rule, evaluator: Evaluator) -> None:
    mistaken = braces_of(rule)
    if mistaken is not None:
        evaluator.problems.warn(f"{evaluator.problems.ref(index)}: {mistaken}")


def _twice(group: Sequence[Contribution]) -> SurgeryError:
    """The problem of a leaf that `for` gives the same key more than once."""
    counts = Counter(m.claim.entry.key.text for m in group)
    key, count = counts.most_common(1)[0]
    return SurgeryError(
        f"`xs` would have `{key}` {count} times: every value of `for` gives it this key",
        hint="Insert the variable in `to`: `${i}`, say; to repeat the leaf, give `by`.",
        code=Code.ORDER,
    )


def _differing(name: str, count: int) -> Unavailable:
    message = f"`{name}` differs between the {count} leaves that share this key; use `xs`"
    return Unavailable(message, code=Code.UNKNOWN_NAME)


def _shared_names(several: Sequence[Names]) -> dict[str, Any]:
    """The names with the same meaning at all leaves of an output; using one of the others is an error."""
    first, *others = several
    return {
        name: value
        if all(o[name] is value or (isinstance(value, Scalar | tuple) and o[name] == value) for o in others)
        else _differing(name, len(several))
        for name, value in first.items()
    }


def _order_problem(places: Sequence[object], group: Sequence[Contribution]) -> str | None:
    """What is wrong with the values of `by`; None if nothing is."""
    kinds = {type(p) for p in places}
    if kinds not in ({int}, {str}):
        found = " and ".join(sorted(kind.__name__.lower() for kind in kinds))
        return f"`by` must give integers or strings throughout, not {found}"
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        keys = few_keys(m.claim.entry.key.printed for p, m in zip(places, group, strict=True) if p == place)
        return f"`by` gives {place!r} for {count} leaves that go to `{group[0].key}`: {keys}"
    for negative, member in zip(places, group, strict=True):
        if isinstance(negative, int) and negative < 0:
            return f"`by` gives {negative} for `{member.claim.entry.key}`; places count from 0"
    return None


def is_layout(node: Node, bases: Set[int]) -> bool:
    """Whether a node only rearranges elements of the nodes with the identities `bases`."""
    seen = set(bases)
    stack = [node]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        if not (isinstance(one, Apply) and one.function.is_layout):
            return False
        seen.add(id(one))
        stack += one.inputs
    return True
