"""Makes the plan: decides what every output is, how its bytes get there, and how it is cut into tasks."""

import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ckpt_surgery.core.dtypes import ELEMENT_TYPES, lost_by_cast
from ckpt_surgery.core.errors import Code, Place, PlanError, Problem
from ckpt_surgery.core.folding import Notice, merged, sentences
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Node, Read, reads
from ckpt_surgery.functions.dtypes import Bitcast
from ckpt_surgery.graph.walks import MOST_FUNCTIONS, functions_of, too_many_functions, with_shared_parts
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.planner import outputs
from ckpt_surgery.planner.cutting import WRITE_BUFFER, Cut, cut, signature
from ckpt_surgery.planner.decisions import OnPass, decide
from ckpt_surgery.planner.entries import Decisions, Drop, Entry, Listings, RuleRef, deciding_rule, naming_rule
from ckpt_surgery.planner.mistakes import left_slots, mistaken_dots, unused_elements
from ckpt_surgery.planner.outputs import Destination, transfers
from ckpt_surgery.planner.plan import Costs, Dropped, Fate, Input, Plan, Step, Transfer
from ckpt_surgery.planner.problems import MANY, problems_of
from ckpt_surgery.planner.target import TARGET, Target


def make_plan(
    loaded: LoadedRecipe,
    listings: Listings,
    target: Target | None,
    inputs: Sequence[Input],
    metadata: Mapping[str, Any],
    destination: Destination,
    memory: int,
    workers: int,
    on_pass: OnPass | None = None,
) -> Plan:
    """The plan of a recipe over the leaves of the sources, within `memory` bytes; `on_pass`: see `decide`.

    Raises PlanError with all problems of the first stage that finds some.
    """
    decisions = outputs.without_empty(decide(loaded, listings, target, on_pass), destination)
    if target is None:
        decisions = outputs.with_dicts(decisions, next(iter(listings.values())), loaded.recipe.output)
    _check_values(decisions.outputs, loaded)
    entries = decisions.outputs
    leaves, sharding_notices = outputs.resharded(list(map(_leaf, entries)), loaded, target, destination)
    moved = transfers([(leaf, e.value) for leaf, e in zip(leaves, entries, strict=True)], destination)
    make = partial(_step, served=destination.served)
    steps = list(map(make, entries, leaves, moved.stored, moved.copied))
    steps, problems = _cut_all(steps, loaded, destination, memory)
    problems += ambiguous(steps, loaded)
    refused = destination.encoder.unsupported([step.leaf for step in steps])
    problems += _at_their_rules(refused, steps, decisions, loaded) if refused else []
    if problems:
        raise PlanError(*problems)
    known = itertools.chain(*listings.values(), () if target is None else target.leaves)
    has_shardings = destination.encoder.details.holds_shardings and not outputs.is_unsharded(loaded.recipe)
    notices = [
        *decisions.notices,
        *(() if destination.flat else mistaken_dots(entries, known)),
        *(outputs.lost_shardings([(step.leaf, step.value) for step in steps]) if has_shardings else ()),
        *(left_slots(steps) if target is None else ()),
        *unused_elements([step.value for step in steps if step.leaf.spec is not None], TARGET),
        *sharding_notices,
    ]
    return Plan(
        recipe=loaded.path if loaded.function is None else loaded.function.label,
        recipe_sha256=loaded.sha256,
        inputs=tuple(inputs),
        steps=tuple(steps),
        dropped=tuple(_dropped(decisions, listings, target)),
        warnings=(*loaded.notes, *sentences(notices), *_dtype_differences(steps, target)),
        costs=costs_of(steps, memory, workers, moved.dead, moved.linkable),
        metadata=metadata,
        params=loaded.param_values,
        hooks_sha256=None if loaded.hooks is None else loaded.hooks.sha256,
        restorable_by=destination.encoder.details.restorable_by([step.leaf for step in steps]),
    )


def _check_values(entries: Sequence[Entry], loaded: LoadedRecipe) -> None:
    """Raises PlanError for values that are made of so much that computing each output would not end."""
    total = 0
    for entry in entries:
        total += functions_of(entry.value, frozenset())
        if total > MOST_FUNCTIONS:
            why = too_many_functions("up to this one, the outputs are computed from")
            place = _place(loaded, entry.rule)
            raise PlanError(Problem(f"`{shown(entry.key.text)}`: {why}", place, code=Code.TOO_MUCH))


def ambiguous(steps: Sequence[Step], loaded: LoadedRecipe) -> list[Problem]:
    """A problem for each key that is both leaf and container, at a rule that made one of the two."""
    both = {step.leaf.key.text for step in steps} & outputs.containers(step.leaf.key.text for step in steps)
    outers = [step for step in steps if step.leaf.key.text in both] if both else []
    problems = []
    for outer in outers[:MANY]:
        inner = next(step for step in steps if step.leaf.key.text.startswith(f"{outer.leaf.key.text}/"))
        keys = [f"`{shown(step.leaf.key.printed)}`" for step in (outer, inner)]
        rules = [naming_rule(step.effects) or step.rule for step in (outer, inner)]
        who = [f"by {rule}" if rule else step.fate for rule, step in zip(rules, (outer, inner), strict=True)]
        message = f"{keys[0]} would be both a leaf and the container of {keys[1]}: {who[0]}, {who[1]}"
        rule = rules[1] or rules[0]
        hint = "No checkpoint has both: rename one of them, or drop it."
        problems.append(Problem(message, _place(loaded, rule), hint, Code.LEAF_AND_CONTAINER))
    if len(outers) > MANY:
        more = f"{len(outers) - MANY} more keys would be both a leaf and a container"
        problems.append(Problem(more, code=Code.LEAF_AND_CONTAINER))
    return problems


_MENTIONED = re.compile(r"`([^`]+)`")


def _at_their_rules(
    refused: Sequence[str], steps: Sequence[Step], decisions: Decisions, loaded: LoadedRecipe
) -> list[Problem]:
    """The problems of what a format cannot store, each at the rule to blame.

    That is the rule that made the key, or a leaf in the container, that the sentence names first, or else one
    that took a leaf away, from a list, say. Keys that differ in indices only share one problem.
    """
    named = [(step, naming_rule(step.effects)) for step in steps]
    made = [(step.leaf.key.names, rule) for step, rule in named]
    moved = [(tuple(key.split("/")), rule) for step, rule in named for _, key in step.sources]
    dropped = [(drop.entry.key.names, drop.rule) for drop in decisions.drops]
    rules: dict[str, RuleRef] = {}
    for names, rule in (*made, *moved, *dropped):
        for i in range(len(names)):
            if rule is not None:
                rules.setdefault(shown("/".join(names[: i + 1])), rule)
    keys = {shown(step.leaf.key.printed): step.leaf.key.printed for step in steps}
    notices = []
    for sentence in refused:
        mentioned = list(_MENTIONED.finditer(sentence))
        blamed = next((rules[match[1]] for match in mentioned if match[1] in rules), None)
        about = _place(loaded, blamed), None, Code.UNSUITED
        notice = Notice(sentence, about=about)
        for match in [match for match in mentioned if match[1] in keys][:1]:
            notice = Notice(sentence[: match.start()], keys[match[1]], sentence[match.end() :], about=about)
        notices.append(notice)
    return problems_of(notices)


def _place(loaded: LoadedRecipe, rule: RuleRef | None) -> Place | None:
    return None if rule is None else loaded.place(rule.location)


def _leaf(entry: Entry) -> Leaf:
    """The leaf that is written for an entry."""
    old = entry.leaf
    spec = None if old.spec is None else entry.value.spec
    return Leaf(entry.key, old.kind, spec, None, old.sharding, old.prng_impl, old.string, old.empty)


def _step(entry: Entry, leaf: Leaf, stored: Manifest | None, copied: bool, served: bool) -> Step:
    fate, sources = fate_and_sources(entry.key, entry.value)
    served = served and stored is not None and not copied
    transfer = Transfer.COPY if copied or served else Transfer.LINK if stored else Transfer.COMPUTE
    rule, effects = deciding_rule(entry.effects), entry.effects
    return Step(leaf, entry.value, fate, rule, sources, transfer, None, stored, served, effects)


def fate_and_sources(key: Key, value: Node) -> tuple[Fate, tuple[tuple[str, str], ...]]:
    """Fate of a leaf between its source and the output, and (source, key) of every leaf that it reads."""
    if isinstance(value, Read):
        read = (value.source, value.leaf.key.text)
        same = value.leaf.key.names == key.names
        if value.source == TARGET:
            return Fate.DEFAULTED if same else Fate.ADDED, (read,)
        return Fate.KEPT if same else Fate.RENAMED, (read,)
    sources = tuple(dict.fromkeys([(r.source, r.leaf.key.text) for r in reads(value)]))
    is_read = isinstance(value.function, Bitcast) and isinstance(value.inputs[0], Read)
    if is_read and sources == ((TARGET, key.text),):  # as `input: {uint16: bfloat16}` reads it
        return Fate.DEFAULTED, sources
    return Fate.TRANSFORMED if any(source != TARGET for source, _ in sources) else Fate.ADDED, sources


def _cut_all(
    steps: Sequence[Step], loaded: LoadedRecipe, destination: Destination, memory: int
) -> tuple[list[Step], list[Problem]]:
    """The steps with chunks and tasks where they are computed, and what does not fit into the memory."""
    done: list[Step] = []
    large: list[Notice] = []
    known: dict[Hashable, Cut] = {}
    grid, staged = destination.encoder.grid, destination.staged
    for step in steps:
        if step.leaf.spec is None or step.stored is not None:
            done.append(step)
            continue
        step = replace(step, value=with_shared_parts(step.value))
        try:
            alike = signature(step.value), step.leaf.kind, step.leaf.sharding
            if alike not in known:
                known[alike] = cut(step.value, memory, partial(grid, step.leaf), staged)
            done.append(replace(step, cut=known[alike]))
        except PlanError as error:
            place = _place(loaded, step.rule)
            for p in error.problems:
                about = (place, p.hint, p.code)
                large.append(Notice("", step.leaf.key.printed, f": {p.message}", about=about))
            done.append(step)
    return done, problems_of(large)


def _dropped(decisions: Decisions, listings: Listings, target: Target | None) -> Iterator[Dropped]:
    """Source leaves that feed no output, why, and those `...` of the target for which there is no leaf."""
    seen: set[int] = set()
    used = {id(r.leaf) for entry in decisions.outputs for r in reads(entry.value, seen)}
    reasons: dict[int, Drop] = {}
    judged: set[int] = set()
    for drop in decisions.drops:
        for read in reads(drop.entry.value, judged):
            reasons.setdefault(id(read.leaf), drop)
    given = [(source, leaf) for source, listing in listings.items() for leaf in listing.values()]
    given += [] if target is None else [(TARGET, target.leaves[text]) for text in target.placeholders]
    for source, leaf in given:
        reason = reasons.get(id(leaf))
        if id(leaf) in used or (reason is None and source == TARGET):
            continue
        rule, why = (None, "no output uses it") if reason is None else (reason.rule, reason.why)
        effects = () if reason is None else reason.entry.effects
        earlier = tuple([effect.rule for effect in effects if effect.rule != rule])
        yield Dropped(source, leaf, rule, why, earlier)


def costs_of(steps: Sequence[Step], memory: int, workers: int, dead: int, linkable: Sequence[bool]) -> Costs:
    """The costs of all steps, within a budget of `memory` bytes. `dead`: unused bytes in linked files.

    `linkable`: whether each step's bytes could be linked if nothing rewrites the sources in place.
    """
    cuts = [step.cut for step in steps if step.cut is not None]
    sizes: dict[Transfer, int] = defaultdict(int)
    for step in steps:
        sizes[step.transfer] += step.leaf.nbytes
    stored = [s.stored for s in steps if s.stored is not None and not s.takes_files]
    read = sum(c.read for c in cuts) + sum(c.length for m in stored for c in m.chunks.values())
    able = (step for step, could in zip(steps, linkable, strict=True) if could and not step.served)
    return Costs(
        bytes_out=sum(sizes.values()),
        bytes_linked=sizes[Transfer.LINK],
        bytes_copied=sizes[Transfer.COPY],
        bytes_computed=sizes[Transfer.COMPUTE],
        bytes_read=read,
        bytes_dead=dead,
        bytes_linkable=sum(step.leaf.nbytes for step in able if step.transfer is Transfer.COPY),
        bytes_served=sum(step.leaf.nbytes for step in steps if step.served),
        peak_memory=peak_of(steps, memory, workers),
    )


def peak_of(steps: Sequence[Step], memory: int, workers: int) -> int:
    """Predicted peak of memory for data, in bytes, within a budget of `memory` bytes."""
    cuts = [step.cut for step in steps if step.cut is not None]
    largest = sorted((c.working_set for c in cuts for _ in range(2 * workers)), reverse=True)[: 2 * workers]
    computed = sum(step.leaf.nbytes for step in steps if step.transfer is Transfer.COMPUTE)
    return min(memory, sum(largest) + min(WRITE_BUFFER, computed))


def _dtype_differences(steps: Sequence[Step], target: Target | None) -> Iterator[str]:
    """The warning about leaves of another dtype than in the target; types without casts lose nothing."""
    if target is None:
        return
    differing = []
    for step in steps:
        own, wanted = step.leaf.spec, target.leaves[step.leaf.key.text].spec
        if own is not None and wanted is not None and own.dtype != wanted.dtype:
            differing.append((step.leaf.key.printed, own.dtype, wanted.dtype))
    told = [Notice("", key, f" is {own.name}, in the target {dtype.name}") for key, own, dtype in differing]
    for first in itertools.islice(merged(told), 1):
        others = len(differing) - first.count
        more = f" (and {others:,} more leaves differ in dtype)" if others else ""
        casts = [one for one in differing if ELEMENT_TYPES.keys() >= {one[1].name, one[2].name}]
        lossy = [f"a cast of `{key}` loses {lost}" for key, *both in casts if (lost := lost_by_cast(*both))]
        yield f"{first.sentence}{more}; {next(iter(lossy), '`target: {dtype: target}` casts')}"
