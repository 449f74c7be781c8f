"""Run `match` and `add` rules: the entries that they make, and the leaves that they drop."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import Code, PlanError, SurgeryError
from ckpt_surgery.core.folding import few_keys
from ckpt_surgery.core.keys import Key, natural_order
from ckpt_surgery.functions.arrays import Apply, Series, nodes_of
from ckpt_surgery.language.expressions.parsing import Expression
from ckpt_surgery.language.expressions.scope import Scalar, Unavailable
from ckpt_surgery.language.patterns.templates import Template
from ckpt_surgery.planner.claiming import why_unused
from ckpt_surgery.planner.entries import HAS_ARRAY, KINDS, Drop, Entry, array_of, in_place_of, under
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.problems import OPTIONAL, Field
from ckpt_surgery.planner.running import (
    FAILED,
    FAILED_RANGES,
    Claim,
    Contribution,
    Failed,
    Names,
    PassRun,
    Ranges,
    RuleOutput,
    RuleRun,
    combinations_of,
)

Made = tuple[RuleRun | None, Entry]
"""An entry after a pass, and the rule that made it; None for one that a policy keeps."""


def produce(run: PassRun) -> list[Made]:
    """Carry out the `match` and `add` rules of a pass: the new entries, in the order of the rules."""
    makers = [rule for rule in run.rules if isinstance(rule, MatchRun | Add)]
    return [(rule, entry) for rule in makers for entry in rule.outputs()]


def _warn_of_braces(rule: RuleRun) -> None:
    mistaken = braces_of(rule.rule)
    if mistaken is not None:
        rule.pass_run.problems.warn(f"{rule.ref}: {mistaken}")


class MatchRun(RuleRun):
    """A `match` rule, and what it makes of the leaves that it claimed."""

    def __init__(self, pass_run: PassRun, index: int):
        super().__init__(pass_run, index)
        to = self.rule.to
        self._several = isinstance(to, Mapping)
        self._outcomes: list[tuple[Template | None, Expression | None]]
        if isinstance(to, Mapping):  # where `x` alone is the leaf itself, whatever its kind
            self._outcomes = [(key, None if e.single_name == "x" else e) for key, e in to.items()]
        else:
            self._outcomes = [(to, self.rule.value)]

    def outputs(self) -> Iterator[Entry]:
        """Outputs of the rule. Leaves that it only uses, or drops, are left out."""
        rule, run = self.rule, self.pass_run
        if not self.claims and not rule.optional:
            self.wrong(("match",), why_unused(self))
        if rule.drop:
            run.drops += [Drop(claim.entry, self.ref, "drop") for claim in self.claims]
            return
        if rule.values:
            run.unused += [Drop(claim.entry, self.ref, "no output uses it") for claim in self.claims]
        if self.claims:
            _warn_of_braces(self)
        loops = self._loops()
        for template, expression in self._outcomes:
            members = self._contributions(template, expression, loops)
            field = ("to", template.text) if self._several and template else ("value",)
            if expression is not None and "xs" in rule.names_in(expression):
                groups: dict[str, list[Contribution]] = defaultdict(list)
                for member in members:
                    groups[member.key.text].append(member)
                gathered = (self._gather(field, text, group) for text, group in groups.items())
                yield from (entry for entry in gathered if entry is not None)
            else:
                yield from self._single(field, members)

    def _loops(self) -> Sequence[Ranges]:
        """The `for` variables of each claim. All outputs are counted before one is made."""
        count = len(self._outcomes)
        if not self.rule.for_:
            self.count_outputs(("match",), count * len(self.claims))
            return [{}] * len(self.claims)
        loops = []
        for claim in self.claims:
            text = claim.entry.key.text
            ranges = self.ranges(self.names_of(claim), text)
            combinations = math.prod(map(len, ranges.values()))
            self.count_outputs(("for",), count * combinations)
            if not (combinations or ranges is FAILED_RANGES or self.rule.optional):
                why = "`for` has no values, so that nothing is made"
                self.wrong(("for",), PlanError(why, hint=OPTIONAL, code=Code.CLAIMS_NOTHING), text)
            loops.append(ranges)
        return loops

    def _contributions(
        self, template: Template | None, expression: Expression | None, loops: Sequence[Ranges]
    ) -> Iterator[Contribution]:
        """The leaves' parts in the outputs of a template: one for each combination of `for` variables."""
        rule = self.rule
        assert rule.match is not None
        spells = template is not None and template.names_beyond(rule.match)
        is_plain = not (expression or rule.mirror_value or rule.for_ or spells)  # what most rules are
        field = ("to", template.text) if self._several and template else ("to",)
        for claim, ranges in zip(self.claims, loops, strict=True):
            value = rule.mirror_value or expression if claim.mirror else expression
            names = {} if is_plain else self.names_of(claim)
            for variables in combinations_of(ranges):
                scope = {**names, **variables} if variables else names
                key = self._destination(field, template, claim, scope)
                if not isinstance(key, Failed):
                    if template is not None:  # a rule without one makes no name
                        self.bounded(field, None, self.pass_run.limits.add_key, key.text)
                    yield Contribution(key, value, scope, claim)

    def _destination(
        self, field: Field, template: Template | None, claim: Claim, names: Names
    ) -> Key | Failed:
        """The new key of a claimed leaf."""
        origin = claim.entry.key
        if template is None:
            return origin
        names_alone = None if self.pass_run.lists or claim.mirror else template.names_of(claim.match)
        if names_alone is not None:
            return Key(names_alone, (False,) * len(names_alone))
        return self.noted(field, origin.text, self._spelled, template, claim, names, at_key=self._several)

    def _spelled(self, template: Template, claim: Claim, names: Names) -> Key:
        """The new key of a claimed leaf; a mirrored one follows its parameter. Raises SurgeryError."""
        mirror = claim.mirror
        if mirror is None:
            return self.spelled(template, claim.match, names, claim.entry.key)
        key = self.spelled(template, claim.match, names)
        moved = under(key, mirror.params.split("/"), mirror.slot.split("/"), self.pass_run.lists)
        if moved is None:
            why = (
                f"the rule takes `{key}` out of `{mirror.params}`: it cannot be mirrored into `{mirror.slot}`"
            )
            raise SurgeryError(why, code=Code.MIRROR)
        return moved

    def _single(self, field: Field, members: Iterable[Contribution]) -> Iterator[Entry]:
        """The outputs of an expression that sees one leaf. Where `to` has one template, they replace it."""
        for member in members:
            entry = member.claim.entry
            if member.value is None:
                yield self.attribute(Entry(member.key, entry.leaf, entry.value), [entry], member)
                continue
            at, text = self._field_of(member, field), entry.key.text
            output = self.compute_output(at, member, text, [entry], None if self._several else entry.leaf)
            if isinstance(output, Entry) and entry.leaf.kind not in HAS_ARRAY:
                message = f"`{entry.key}` is {KINDS[entry.leaf.kind]}: no value can take its place"
                self.wrong(at, PlanError(message, code=Code.NOT_AN_ARRAY), text)
            elif isinstance(output, Entry) and self._mirrors_well([member], output):
                yield output if self._several else in_place_of(entry, output)

    def _gather(self, field: Field, text: str, group: Sequence[Contribution]) -> Entry | None:
        """The output `text` of an expression that sees `xs`, all leaves that share one key.

        None if there is a problem, which is noted.
        """
        (often, count), *_ = Counter(m.claim.entry.key.text for m in group).most_common(1)
        if self.rule.by is None and len({id(m.claim) for m in group}) < len(group):
            why = f"`xs` would have `{often}` {count} times: every value of `for` gives it this key"
            hint = "Insert the variable in `to`: `${i}`, say; to repeat the leaf, give `by`."
            twice = SurgeryError(why, hint=hint, code=Code.ORDER)
            self.wrong(("for",), twice, text)
            return None
        ordered = self._ordered(group)
        if ordered is None:
            return None
        members, places = ordered
        first, claimed = members[0], [m.claim.entry for m in members]
        at = self._field_of(first, field)
        names = _shared_names([m.names for m in members])
        names["xs"] = self.noted(at, text, lambda: Series(tuple(map(array_of, claimed)), places))
        if names["xs"] is FAILED:
            return None
        output = self.compute_output(at, RuleOutput(first.key, first.value, names), text, claimed)
        if isinstance(output, Failed) or not self._mirrors_well(members, output):
            return None
        self.pass_run.keep(self.ref, output, members)
        return output

    def _ordered(
        self, group: Sequence[Contribution]
    ) -> tuple[list[Contribution], tuple[int, ...] | None] | None:
        """The leaves in the order of `by`, and their places if `by` gives integers."""
        by = self.rule.by
        if by is None:
            return sorted(group, key=lambda m: natural_order(m.claim.entry.key.text)), None
        places = [self.value(("by",), by, m.names, m.claim.entry.key.text) for m in group]
        if any(place is FAILED for place in places):
            return None
        if (problem := _order_problem(places, group)) is not None:
            self.wrong(("by",), PlanError(problem, code=Code.ORDER))
            return None
        is_text = isinstance(places[0], str)
        placed = zip(places, group, strict=True)
        pairs = sorted(placed, key=lambda pair: natural_order(pair[0]) if is_text else pair[0])
        return [member for _, member in pairs], None if is_text else tuple(place for place, _ in pairs)

    def _field_of(self, member: Contribution, field: Field) -> Field:
        """The field of the rule that has the expression for a leaf's value."""
        return ("mirror_value",) if member.claim.mirror and self.rule.mirror_value else field

    def _mirrors_well(self, members: Sequence[Contribution], output: Entry) -> bool:
        """Whether a mirrored leaf changes in layout only, or as `mirror_value` says."""
        head = members[0].claim
        if head.mirror is None or self.rule.mirror_value is not None:
            return True
        applied = nodes_of(output.value, {id(m.claim.entry.value) for m in members})
        if all(isinstance(node, Apply) and node.function.is_layout for node in applied):
            return True
        hint = "Say with `mirror_value:` what becomes of the mirrored leaves."
        why = "the rule is mirrored, and its value changes more than layout"
        error = SurgeryError(why, hint=hint, code=Code.MIRROR)
        self.wrong(("value",), error, head.entry.key.text)
        return False


class Add(RuleRun):
    """An `add` rule, and the leaves that it makes."""

    def outputs(self) -> Iterator[Entry]:
        """Outputs of the rule, for each combination of its `for` variables where `when` is true."""
        rule, everywhere = self.rule, self.pass_run.names
        assert rule.add is not None
        _warn_of_braces(self)
        ranges = self.ranges(everywhere, rule.add.text)
        self.count_outputs(("for",) if rule.for_ else ("add",), math.prod(map(len, ranges.values())))
        used = ranges is FAILED_RANGES
        for variables in combinations_of(ranges):
            names = {**everywhere, **variables}
            wanted = self.holds(names, rule.add.text)
            used = used or wanted is not False
            if wanted is not True:
                continue
            key = self.noted(("add",), "", self.spelled, rule.add, None, names)
            if isinstance(key, Failed):
                continue
            self.bounded(("add",), None, self.pass_run.limits.add_key, key.text)
            output = RuleOutput(key, rule.value, {**names, "key": key.text})
            entry = self.compute_output(("value",), output, key.text, ())
            if isinstance(entry, Entry):
                yield entry
        if not used and not rule.optional:
            why = "`when` is false" if rule.when is not None else "`for` has no values"
            unused = PlanError(f"the rule makes nothing: {why}", hint=OPTIONAL, code=Code.CLAIMS_NOTHING)
            self.wrong(("add",), unused)


def _shared_names(several: Sequence[Names]) -> dict[str, Any]:
    """The names with the same meaning at all leaves of an output; using one of the others is an error."""
    shared = dict(several[0])
    for name, value in several[0].items():
        is_plain = isinstance(value, Scalar | tuple)
        if not all(o[name] is value or (is_plain and o[name] == value) for o in several):
            message = f"`{name}` differs between the {len(several)} leaves that share this key; use `xs`"
            shared[name] = Unavailable(message, code=Code.UNKNOWN_NAME)
    return shared


def _order_problem(places: Sequence[object], group: Sequence[Contribution]) -> str | None:
    """Problem of the values of `by`; None without one."""
    kinds = {type(p) for p in places}
    if kinds not in ({int}, {str}):
        given = " and ".join(sorted(kind.__name__.lower() for kind in kinds))
        return f"`by` must give integers or strings throughout, not {given}"
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        keys = few_keys(m.claim.entry.key.printed for p, m in zip(places, group, strict=True) if p == place)
        return f"`by` gives {place!r} for {count} leaves that go to `{group[0].key}`: {keys}"
    for negative, member in zip(places, group, strict=True):
        if isinstance(negative, int) and negative < 0:
            return f"`by` gives {negative} for `{member.claim.entry.key}`; places count from 0"
    return None
