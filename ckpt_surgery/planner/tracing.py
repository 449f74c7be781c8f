"""How one leaf went through the passes: the rules that made it, and those that could have claimed it.

Everything is looked up again, for one leaf, in the passes that were run: planning keeps no record of it.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import regex

from ckpt_surgery.core.keys import SEPARATOR, natural_order
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import brief
from ckpt_surgery.functions.arrays import Node, Read
from ckpt_surgery.language.models import Rule
from ckpt_surgery.language.values import told
from ckpt_surgery.planner.claiming import OPEN_ENDS, Claim, Mirror, mirrors_of, views
from ckpt_surgery.planner.entries import Entry, RuleRef, key_of
from ckpt_surgery.planner.evaluator import Evaluator, Names, combinations_of, x_of
from ckpt_surgery.planner.passes import PassRun
from ckpt_surgery.planner.producing import Contribution, MatchRule
from ckpt_surgery.planner.target import TARGET

Origin = tuple[str, str]
"""Name of a source, and a key in it."""


@dataclass(frozen=True)
class Claimed:
    """A leaf that a rule claimed, as the rule's pass saw it."""

    source: str
    """Name of the source; `target` where a `fill` rule claimed a leaf of the target."""
    key: str
    """Key before the pass."""
    bound: Mapping[str, str]
    """What the groups of the regular expression matched, by name, or by number (`1`) where they have none;
    and the values of the `for` variables."""

    __repr__ = brief


@dataclass(frozen=True)
class Stage:
    """What one rule did on the way to a leaf of the result."""

    pass_name: str | None
    """Name of the pass, if it has one, and several passes were run."""
    rule: RuleRef
    keys: tuple[str, ...]
    """The leaf's key after the pass; of an earlier pass, those of all leaves that it was made of."""
    claims: tuple[Claimed, ...]
    """The leaves that the rule claimed for these keys; none for an `add` rule."""
    looked_up: tuple[tuple[str, str], ...]
    """Source and key of the other leaves that the values are computed from."""
    values: tuple[str, ...]
    """The expressions that gave the values; none where values stay as they are."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The values of the `for` variables of an `add` rule."""

    __repr__ = brief


class Outcome(enum.StrEnum):
    """What came of a `match` rule at a leaf of a source."""

    CLAIMED = "claimed"
    """The rule claimed the leaf."""
    LATER = "later"
    """The rule matches the key, but an earlier rule claimed the leaf."""
    WHEN = "when"
    """The rule matches the key, but its `when` is not true there."""
    SOURCE = "source"
    """The rule matches the key, but it reads from another source."""
    BEGINNING = "beginning"
    """The rule matches the first components of the key, and not the rest."""
    END = "end"
    """The rule matches the last components of the key, and not the rest."""


@dataclass(frozen=True)
class Attempt:
    """A `match` rule that claimed a leaf, or nearly did."""

    rule: RuleRef
    pattern: str
    """Its regular expression, with the values of params in it."""
    outcome: Outcome
    key: str
    """The key that it matches, or the part of the key."""

    __repr__ = brief


# --- from a leaf of the result back to the sources ----------------------------------------------------------


def stages(runs: Sequence[PassRun], key: str) -> list[Stage]:
    """The rules that made a leaf of the result, from the first pass to the last."""
    wanted = [key]
    found: list[Stage] = []
    for run in reversed(runs):
        first, problems = run.evaluator.first, run.evaluator.problems
        numbers = {problems.ref(i).path: i for i in range(len(run.pass_.rules))}
        before: dict[str, None] = {}
        made: dict[int, list[Entry]] = {}
        for text in wanted:
            entry = run.tree.get(text)
            index = None if entry is None or entry.rule is None else numbers.get(entry.rule.path)
            if entry is None or index is None:
                before[text] = None  # the pass left it as it was
            else:
                made.setdefault(index, []).append(entry)
        known = _known_values(run.evaluator)
        done = [
            _stage(run, index, made[index], known, run.pass_.name if len(runs) > 1 else None)
            for index in sorted(made)
        ]
        for one in done:
            read = (*((claim.source, claim.key) for claim in one.claims), *one.looked_up)
            before.update({text: None for source, text in read if source == first})
        found[:0] = done
        wanted = list(before)
    return found


def _stage(
    run: PassRun,
    index: int,
    entries: Sequence[Entry],
    known: Mapping[int, Sequence[Origin]],
    pass_name: str | None,
) -> Stage:
    """What one rule did to make these entries."""
    rule, evaluator = run.pass_.rules[index], run.evaluator
    keys = [entry.key.text for entry in entries]
    variables: Mapping[str, str] = {}
    values = [] if rule.value is None else [rule.value.text]
    if rule.match is not None:
        members = _members(run, index, rule, frozenset(keys))
        claims = [_claimed(one.claim, rule, one.names, evaluator) for one in members]
        values = [one.value.text for one in members if one.value is not None]
    elif rule.fill is not None:
        found = {key: evaluator.match(index, ("fill",), rule.fill, key) for key in keys}
        claims = [Claimed(TARGET, key, _groups(match)) for key, match in found.items() if match is not None]
    else:
        claims = []
        variables = _variables(
            rule, _names_of_added(index, rule, keys[0], evaluator) if len(keys) == 1 else {}
        )
    taken = {(claim.source, claim.key) for claim in claims}
    looked_up = {
        origins[0]: None
        for entry in entries
        for origins in _origins(entry.value, known)
        if not taken.intersection(origins)
    }
    ref = evaluator.problems.ref(index)
    unique = tuple(dict.fromkeys(values))
    return Stage(pass_name, ref, tuple(keys), tuple(claims), tuple(looked_up), unique, variables)


def _members(run: PassRun, index: int, rule: Rule, keys: Set[str]) -> list[Contribution]:
    """What a `match` rule took to make these keys, in the natural order of the leaves."""
    making = MatchRule(index, rule, run.evaluator)
    claims = run.claims.by_rule.get(index, ())
    found = [member for claim in claims for member in making.contributions(claim) if member.key.text in keys]
    return sorted(found, key=lambda member: natural_order(member.claim.entry.key.text))


def _claimed(claim: Claim, rule: Rule, names: Names, evaluator: Evaluator) -> Claimed:
    trees, key = evaluator.trees, claim.entry.key.text
    source = next(name for name, tree in trees.items() if tree.get(key) is claim.entry)
    return Claimed(source, key, {**_groups(claim.match), **_variables(rule, names)})


def _groups(match: regex.Match[str]) -> dict[str, str]:
    """What each group matched; `` where it took no part."""
    names = {number: name for name, number in match.re.groupindex.items()}
    return {names.get(n, str(n)): match.group(n) or "" for n in range(1, match.re.groups + 1)}


def _variables(rule: Rule, names: Names) -> dict[str, str]:
    return {name: _text(names[name]) for name in rule.for_ or () if name in names}


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int | float) else told(value)


def _names_of_added(index: int, rule: Rule, text: str, evaluator: Evaluator) -> Names:
    """The values of the `for` variables with which an `add` rule makes a key."""
    if rule.add is None:
        return {}
    ranges = evaluator.ranges(index, rule, evaluator.names, rule.add.text, rule)
    for variables in combinations_of(ranges or []):
        components = evaluator.expanded(rule.add, None, {**evaluator.names, **variables})
        if key_of(components, None, evaluator.lists).text == text:
            return variables
    return {}


def _known_values(evaluator: Evaluator) -> Mapping[int, Sequence[Origin]]:
    """Which leaves had a value before the pass, by the identity of the value."""
    known: dict[int, list[Origin]] = {}
    for source, tree in evaluator.trees.items():
        for text, entry in tree.items():
            known.setdefault(id(entry.value), []).append((source, text))
    return known


def _origins(value: Node, known: Mapping[int, Sequence[Origin]]) -> Iterator[Sequence[Origin]]:
    """The leaves that a value is computed from, as they were before the pass, each once."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in known:
            yield known[id(node)]
        elif isinstance(node, Read):
            yield [(node.source, node.leaf.key.text)]
        else:
            stack += reversed(node.inputs)


# --- rules that a leaf of a source met ----------------------------------------------------------------------


def attempts(runs: Sequence[PassRun], source: str, leaf: Leaf) -> list[Attempt]:
    """The `match` rules that claimed a leaf of a source, or nearly did, in the order of passes and rules."""
    met = [(run, entry) for run in runs for entry in _held(run, source, leaf)]
    return [attempt for run, entry in met for attempt in _attempts(run, source, entry)]


def last_pass(runs: Sequence[PassRun], source: str, leaf: Leaf) -> PassRun:
    """The last pass that was given a leaf of a source as it is stored, under whatever key."""
    return [run for run in runs if _held(run, source, leaf)][-1]


def _held(run: PassRun, source: str, leaf: Leaf) -> list[Entry]:
    tree = run.evaluator.trees[source]
    return [entry for entry in tree.values() if isinstance(entry.value, Read) and entry.value.leaf is leaf]


def _attempts(run: PassRun, source: str, entry: Entry) -> Iterator[Attempt]:
    claimed = {
        index for index, claims in run.claims.by_rule.items() for claim in claims if claim.entry is entry
    }
    mirrors = mirrors_of(run.pass_)
    for index, rule in enumerate(run.pass_.rules):
        if rule.match is None:
            continue
        found = _attempt(run, index, rule, source, entry, claimed, mirrors)
        if found is not None:
            ref = run.evaluator.problems.ref(index)
            yield Attempt(ref, rule.match.pattern, *found)


def _attempt(
    run: PassRun,
    index: int,
    rule: Rule,
    source: str,
    entry: Entry,
    claimed: set[int],
    mirrors: Sequence[Mirror],
) -> tuple[Outcome, str] | None:
    """What came of a rule, and the key that it matches; None where it has nothing to do with the leaf."""
    evaluator, pattern, key = run.evaluator, rule.match, entry.key.text
    assert pattern is not None

    def match(text: str) -> regex.Match[str] | None:
        return evaluator.match(index, ("match",), pattern, text)

    found = next(((text, got) for text, _ in views(key, mirrors) if (got := match(text))), None)
    if found is None:
        if claimed:
            return None  # whoever asks knows which rule it was
        parts = key.split(SEPARATOR)
        heads = [SEPARATOR.join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
        tails = [SEPARATOR.join(parts[start:]) for start in range(1, len(parts))]
        head = None if pattern.pattern.endswith(OPEN_ENDS) else next(filter(match, heads), None)
        tail = next(filter(match, tails), None)
        if head is not None:
            return Outcome.BEGINNING, head
        return None if tail is None else (Outcome.END, tail)
    text, got = found
    if index in claimed:
        return Outcome.CLAIMED, text
    if source not in evaluator.sources_of(rule):
        return Outcome.SOURCE, text
    names = {**evaluator.names_at(got, key), "x": x_of(entry)}
    if rule.when is not None and not evaluator.condition(index, rule.when, names, key):
        return Outcome.WHEN, text
    return Outcome.LATER, text
