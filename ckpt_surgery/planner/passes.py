"""One pass: rules claim leaves and make new ones, and a policy decides about the leaves that no rule claims.

The value of an entry is a node, so nothing is read. Problems are collected; the caller raises them.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace

from ckpt_surgery.core.errors import PlanError, Problem, SurgeryError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.functions.arrays import nodes_of, reads
from ckpt_surgery.language.patterns.templates import Template
from ckpt_surgery.planner.claiming import Fill, claim, filled, views
from ckpt_surgery.planner.entries import CONVERT, Drop, Entry, not_held
from ckpt_surgery.planner.limits import check_leaves
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.problems import MANY, Problems
from ckpt_surgery.planner.producing import Add, Made, MatchRun, produce
from ckpt_surgery.planner.running import PassRun, RuleRun
from ckpt_surgery.planner.target import Target, fitted

NOT_CLAIMED = "not claimed"
"""Reason for dropping a leaf of another source than the first."""


def run_pass(run: PassRun, target: Target | None, last: bool) -> None:
    """Carry out a pass. Its outcome is in `run`, and its problems in those of `run`.

    `target`: the structure that the result must have, or None before the last pass. `last`: whether no other
    pass follows that could use what is left of the other sources.
    """
    run.rules = rules_of(run, target)
    _check_mirrors(run)
    claim(run)
    if target is not None:
        _fit(run, target)
        return
    # In the last pass only the first `fill` rule is noted, as all lack the same.
    for rule in [rule for rule in run.rules if rule.rule.fill is not None][: 1 if last else None]:
        hint = "Give one: `target=PATH`." if last else "Move the rule into the last pass."
        why = "`fill` needs a target, and belongs to the last pass"
        rule.wrong(("fill",), PlanError(why, hint=hint, code=Code.NO_TARGET))
    outputs = produce(run)
    kept, _ = _kept(run, last, [entry for _, entry in outputs])
    try:
        check_leaves(len(outputs) + len(kept), "the pass gives")
    except SurgeryError as error:
        run.problems.general(replace(error.problems[0], place=run.problems.unmatched_place()))
        run.problems.raise_all()
    if last:
        _refuse_objects(run, [*(entry for _, entry in outputs), *kept])
    run.tree = _distinct([*outputs, *((None, entry) for entry in kept)], run)
    _warn_of_slots(outputs, run)


def rules_of(run: PassRun, target: Target | None) -> list[RuleRun]:
    """The rules of a pass, each as what it claims by. Without a target, those with `fill` do nothing."""
    rules: list[RuleRun] = []
    for index, rule in enumerate(run.pass_.rules):
        if rule.fill is not None:
            rules.append(RuleRun(run, index) if target is None else Fill(run, index, target))
        else:
            rules.append(Add(run, index) if rule.match is None else MatchRun(run, index))
    return rules


def _fit(run: PassRun, target: Target) -> None:
    """Carry out the rules of the last pass, and give its tree the structure of the target."""
    given = filled(run, target)
    matched = _distinct(produce(run), run)
    free = {
        name: {text: entry for text, entry in tree.items() if id(entry) not in run.claimed}
        for name, tree in run.trees.items()
    }
    given |= filled(run, target, given.keys() | matched.keys(), free)
    kept, refused = _kept(run, True, [*given.values(), *matched.values()])
    filled_in = [entry for entry in given.values() if not target.is_placeholder(entry)]
    _refuse_objects(run, [*filled_in, *matched.values(), *kept])
    run.tree = fitted(run, target, given, matched, kept, free, awaited_keys(run, refused))
    available = [*free[run.first].values(), *matched.values()]
    _note_subtrees(run.problems, frozenset(target.placeholders), available)


def _check_mirrors(run: PassRun) -> None:
    """A mirrored tree without leaves is a mistake: the leaves that were meant would stay as they are."""
    loaded, trees = run.problems.loaded, run.trees
    keys = [entry.key for tree in trees.values() for entry in tree.values()] if run.mirrors else []
    for params, slots in run.pass_.mirror.items():
        where = (*run.problems.own("mirror"), params)
        slot_places = [(slot, loaded.place((*where, i))) for i, slot in enumerate(slots)]
        for prefix, place in [(params, loaded.key_place(where)), *slot_places]:
            if not any(key.text.startswith(f"{prefix}/") for key in keys):
                containers = ["/".join(key.names[:i]) for key in keys for i in range(1, len(key.names))]
                message = f"no leaf lies under `{prefix}`{did_you_mean(prefix, dict.fromkeys(containers))}"
                hint = "Where only some checkpoints have these leaves, mirror them in a pass with `when`."
                run.problems.general(Problem(message, place, hint, Code.MIRROR))


def _kept(run: PassRun, last: bool, outputs: Iterable[Entry]) -> tuple[list[Entry], Set[str]]:
    """Apply the policy to the leaves that no rule claims: those that are kept, and keys that it refuses.

    `outputs`: the entries that rules have made. Under `unmatched: error` a leaf that these neither use nor
    look up is a problem.
    """
    kept: list[Entry] = []
    loose: list[str] = []
    looked_up = run.looked_up()
    run.decided_ids = run.decided_ids | run.claimed | looked_up
    left = [
        (name, entry)
        for name, tree in run.trees.items()
        # Leaves of the other sources may be for a later pass.
        if name == run.first or last
        for entry in tree.values()
        if id(entry) not in (run.claimed if name == run.first else run.decided_ids)
    ]
    used: set[int] = set()
    for entry in outputs if left and run.policy == "error" else ():
        used |= {id(node) for node in nodes_of(entry.value, used)}
    dropped_as = "unmatched: drop" if run.problems.loaded.function is None else "not returned"
    for name, entry in left:
        if name == run.first and run.policy == "keep":
            kept.append(entry)
        elif run.policy == "error" and id(entry.value) not in used and id(entry) not in looked_up:
            loose.append(entry.key.text)
        else:
            run.drops.append(Drop(entry, None, dropped_as if run.policy == "drop" else NOT_CLAIMED))
    if loose:
        message = f"`unmatched: error`, and no rule claims {few_keys(loose)} ({len(loose)} in all)"
        hint = "Add a rule for them, or `drop: true` to remove them."
        run.problems.general(Problem(message, run.problems.unmatched_place(), hint, Code.UNCLAIMED))
    return kept, frozenset(loose)


def _refuse_objects(run: PassRun, entries: Iterable[Entry]) -> None:
    """Note every object of a tree that no checkpoint holds, unless a rule or `unmatched: drop` drops it."""
    ignored = (drop.entry for drop in run.drops if drop.why == NOT_CLAIMED)
    for entry in (*entries, *ignored):
        if entry.leaf.kind is LeafKind.OBJECT:
            notice = Notice("", entry.leaf.key.printed, f" is {not_held(entry.leaf)}")
            run.problems.about(entry, notice, CONVERT, Code.NOT_AN_ARRAY)


def _warn_of_slots(outputs: Iterable[Made], run: PassRun) -> None:
    """Warn of added leaves in a mirrored tree that have no slots: a rule must add those too."""
    for rule, text in [(rule, entry.key.text) for rule, entry in outputs if isinstance(rule, Add)]:
        mirrors = (mirror for mirror in run.mirrors if text.startswith(f"{mirror.params}/"))
        missing = [f"`{m.slot}`" for m in mirrors if m.slot + text[len(m.params) :] not in run.tree]
        if missing:
            after = f", and nothing adds its slot in {' and '.join(missing)}: `add` is not mirrored"
            run.problems.warn(Notice(f"{rule.ref} adds ", text, after))


def _distinct(outputs: Sequence[Made], run: PassRun) -> dict[str, Entry]:
    """The entries by key; two with the same key are a problem."""
    tree = {entry.key.text: entry for _, entry in outputs}
    if len(tree) == len(outputs):
        return tree
    owners: dict[str, Made] = {}
    for maker, entry in outputs:
        owner = owners.setdefault(entry.key.text, (maker, entry))
        if owner[1] is not entry:
            _note_collision(owner, (maker, entry), run)
    return {text: entry for text, (_, entry) in owners.items()}


def _note_collision(earlier: Made, later: Made, run: PassRun) -> None:
    """Note that two entries have the same key, at the rule that makes the later one."""
    (first, old), (second, new) = earlier, later
    hint = None
    if first is None or second is None:
        hint = "Add a rule that renames or drops the one that stays."
    elif first is second and (mistaken := braces_of(first.rule)):
        hint = f"In the template {mistaken}."
    elif first is second and old.value is not new.value and list(reads(new.value)):
        hint = "To make one leaf of several, say how with `value`: stack(xs), say."
    makers = "; ".join(_making(maker, entry, run) for maker, entry in (earlier, later))
    error = PlanError(f"two leaves would be called `{new.key.text}`: {makers}", hint=hint, code=Code.SAME_KEY)
    blamed = second or first
    assert blamed is not None, "no two leaves that stay have one key"
    given = blamed.rule
    blamed.wrong(("add" if given.add is not None else "match" if given.to is None else "to",), error)


def _making(rule: RuleRun | None, entry: Entry, run: PassRun) -> str:
    """Rule that makes an entry, and the leaves that it uses."""
    several = len(run.trees) > 1
    made_of = few_keys(
        f"{read.source}:{read.leaf.key}" if several else read.leaf.key.text for read in reads(entry.value)
    )
    if rule is None:
        return f"{made_of} stays there (`unmatched: keep`)"
    return f"{rule.ref} makes it" + (f" from {made_of}" if made_of else "")


def _note_subtrees(problems: Problems, placeholders: frozenset[str], entries: Iterable[Entry]) -> None:
    """Note placeholders under whose key leaves lie: `...` stands for a leaf.

    `entries`: those that the source has and that rules make, as far as no rule drops them.
    """
    inner: dict[str, list[str]] = {}
    for key in (entry.key for entry in entries) if placeholders else ():
        for container in placeholders.intersection(
            SEPARATOR.join(key.names[:i]) for i in range(len(key.names))
        ):
            inner.setdefault(container, []).append(key.printed)
    for container, keys in inner.items():
        lie = "1 leaf lies" if len(keys) == 1 else f"{len(keys):,} leaves lie"
        message = f"the target has `...` at `{shown(container)}`, and {lie} below it: {few_keys(keys, MANY)}"
        hint = "Write `...` for each of these leaves, or leave the whole subtree out of the target."
        problems.general(Problem(message, None, hint, Code.TARGET_MISFIT))


# --- keys that are missing because of a rule that failed, whose problem is told -----------------------------


def awaited_keys(run: PassRun, refused: Set[str]) -> Callable[[str], bool]:
    """A function of a key that is missing: whether a rule that failed may have been meant to give it.

    `refused`: keys of leaves that are not kept because `unmatched: error` refuses them.
    """
    matches: list[Callable[[str], object]] = []
    for rule in (run.rules[index] for index in sorted(run.problems.failed_rules)):
        to = rule.rule.to or rule.rule.add
        templates = [to] if isinstance(to, Template) else list(to or ())
        if not rule.rule.drop:  # a rule without templates has `fill`, or `match` alone
            matches += [template.keys.fullmatch for template in templates] or [rule.match]
    return lambda text: (
        text in refused or any(match(view) for match in matches for view, _ in views(text, run.mirrors))
    )
