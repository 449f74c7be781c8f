"""Trace one leaf through the passes: the rules that made it, and those that could have claimed it."""

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import regex

from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import brief
from ckpt_surgery.functions.arrays import Read, nodes_of
from ckpt_surgery.language.expressions.scope import described
from ckpt_surgery.planner.claiming import near_miss, views
from ckpt_surgery.planner.entries import Entry, RuleRef
from ckpt_surgery.planner.running import Claim, Contribution, Names, PassRun, RuleRun
from ckpt_surgery.planner.target import TARGET

SourceKey = tuple[str, str]
"""Name of a source, and a key in it."""


@dataclass(frozen=True)
class Claimed:
    """A leaf that a rule claimed, as the rule's pass saw it."""

    source: str
    """Name of the source; `target` where a `fill` rule claimed a leaf of the target."""
    key: str
    """Key before the pass."""
    bound: Mapping[str, str]
    """Matches of the groups of the regular expression, by name, or by number (`1`) where they have none;
    and the values of the `for` variables."""

    __repr__ = brief


@dataclass(frozen=True)
class Stage:
    """Step of one rule on the way to a leaf of the result."""

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
    let: Mapping[str, str] = field(default_factory=dict)
    """The entries of `let` that the values depend on."""

    __repr__ = brief


class Outcome(enum.StrEnum):
    """Outcome of a `match` rule at a leaf of a source."""

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


def stages(runs: Sequence[PassRun], key: str) -> list[Stage]:
    """The rules that made a leaf of the result, from the first pass to the last."""
    wanted = [key]
    traced: list[Stage] = []
    for run in reversed(runs):
        before: dict[str, None] = {}
        seen: dict[RuleRef, list[Entry]] = defaultdict(list)
        for text in wanted:
            entry = run.tree.get(text)
            if entry is None or entry.rule is None or (entry.rule, text) not in run.outputs:
                before[text] = None  # the pass left it as it was
            else:
                seen[entry.rule].append(entry)
        known: dict[int, list[SourceKey]] = defaultdict(list)  # leaves before the pass, by their values
        for source, text, entry in ((s, t, e) for s, tree in run.trees.items() for t, e in tree.items()):
            known[id(entry.value)].append((source, text))
        own = [_stage(run, ref, seen[ref], known) for ref in sorted(seen, key=lambda ref: ref.location)]
        for stage in own:
            read = (*((claim.source, claim.key) for claim in stage.claims), *stage.looked_up)
            before.update({text: None for source, text in read if source == run.first})
        name = run.pass_.name if len(runs) > 1 else None
        traced[:0] = [replace(stage, pass_name=name) for stage in own]
        wanted = list(before)
    return traced


def _stage(
    run: PassRun, ref: RuleRef, entries: Sequence[Entry], known: Mapping[int, Sequence[SourceKey]]
) -> Stage:
    """Step by which one rule made these entries."""
    outputs = [output for entry in entries for output in run.outputs[ref, entry.key.text]]
    rule = next(rule for rule in run.rules if rule.ref is ref)
    members = [output for output in outputs if isinstance(output, Contribution)]
    members.sort(key=lambda member: natural_order(member.claim.entry.key.text))
    matches = [(output.key.text, rule.match(output.key.text)) for output in outputs if rule.rule.fill]
    claims = [Claimed(TARGET, key, _groups(match)) for key, match in matches if match is not None]
    for entry, member in ((member.claim.entry, member) for member in members):
        source = next(name for name, tree in run.trees.items() if tree.get(entry.key.text) is entry)
        bound = {**_groups(member.claim.match), **_variables(rule, member.names)}
        claims.append(Claimed(source, entry.key.text, bound))
    taken = {(claim.source, claim.key) for claim in claims}
    looked_up: dict[SourceKey, None] = {}
    for node in (node for entry in entries for node in nodes_of(entry.value, set(), ends=known)):
        read = known.get(id(node), ())
        if isinstance(node, Read) and not read:
            read = [(node.source, node.leaf.key.text)]
        if read and not taken.intersection(read):
            looked_up[read[0]] = None
    values = dict.fromkeys(output.value for output in members or outputs if output.value is not None)
    used = frozenset().union(*map(rule.rule.names_in, values))
    let = {name: entry.text for name, entry in (rule.rule.let or {}).items() if name in used}
    variables = _variables(rule, outputs[0].names) if rule.rule.add and len(outputs) == 1 else {}
    keys, texts = tuple([e.key.text for e in entries]), tuple([value.text for value in values])
    return Stage(None, ref, keys, tuple(claims), tuple(looked_up), texts, variables, let)


def _groups(match: regex.Match[str]) -> dict[str, str]:
    """Match of each group; `` if it took no part."""
    names = {number: name for name, number in match.re.groupindex.items()}
    return {names.get(n, str(n)): match.group(n) or "" for n in range(1, match.re.groups + 1)}


def _variables(rule: RuleRun, names: Names) -> dict[str, str]:
    values = {name: names[name] for name in rule.rule.for_ or ()}
    return {name: str(v) if isinstance(v, str | int | float) else described(v) for name, v in values.items()}


def attempts(runs: Sequence[PassRun], source: str, leaf: Leaf) -> list[Attempt]:
    """The `match` rules that claimed a leaf of a source, or nearly did, in the order of passes and rules."""
    met = [(rule, entry) for run in runs for entry in _held(run, source, leaf) for rule in run.rules]
    return [attempt for rule, entry in met if (attempt := _attempt(rule, source, entry)) is not None]


def last_pass(runs: Sequence[PassRun], source: str, leaf: Leaf) -> PassRun:
    """The last pass that was given a leaf of a source as it is stored, under whatever key."""
    return [run for run in runs if _held(run, source, leaf)][-1]


def _held(run: PassRun, source: str, leaf: Leaf) -> list[Entry]:
    entries = run.trees[source].values()
    return [entry for entry in entries if isinstance(entry.value, Read) and entry.value.leaf is leaf]


def _attempt(rule: RuleRun, source: str, entry: Entry) -> Attempt | None:
    """Outcome of a rule at a leaf; None where it has nothing to do with it."""
    run, pattern, key = rule.pass_run, rule.rule.match, entry.key.text
    if pattern is None:
        return None
    matches = ((text, rule.match(text)) for text, _ in views(key, run.mirrors))
    text, match = next(((text, match) for text, match in matches if match), (key, None))
    if match is None:
        if id(entry) in run.claimed:
            return None  # whoever asks knows which rule it was
        miss = near_miss(pattern, [key], run.limits.second_looks)
        if miss is None or miss.where == "part":
            return None
        outcome, text = Outcome(miss.where), miss.part
    elif any(claim.entry is entry for claim in rule.claims):
        outcome = Outcome.CLAIMED
    elif source not in rule.sources:
        outcome = Outcome.SOURCE
    else:
        applies = rule.holds(rule.names_of(Claim(entry, match)), key) is True
        outcome = Outcome.LATER if applies else Outcome.WHEN
    return Attempt(rule.ref, pattern.pattern, outcome, text)
