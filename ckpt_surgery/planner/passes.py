"""One pass: rules claim leaves and make new ones, and a policy decides about the leaves that no rule claims.

The value of an entry is a node, so nothing is read. Problems are collected; the caller raises them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ckpt_surgery.core.errors import PlanError, Problem, SurgeryError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.text import did_you_mean, shown
from ckpt_surgery.functions.arrays import Apply, reads
from ckpt_surgery.language.field_types import Unmatched
from ckpt_surgery.language.models import Pass, Rule
from ckpt_surgery.language.templates import Template
from ckpt_surgery.planner.claiming import Claims, Mirror, claim, mirrors_of, views
from ckpt_surgery.planner.entries import CONVERT, Drop, Entry, Tree, not_held
from ckpt_surgery.planner.evaluator import Evaluator
from ckpt_surgery.planner.filling import filled, last_resorts
from ckpt_surgery.planner.limits import check_leaves
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.problems import MANY, Problems
from ckpt_surgery.planner.producing import produce
from ckpt_surgery.planner.target import Target, fitted

NOT_CLAIMED = "not claimed"
"""Why a leaf of another source than the first is dropped."""
NOT_RETURNED = "not returned"
"""Why a leaf is dropped that a function as the recipe does not return."""


@dataclass(frozen=True)
class PassResult:
    """What one pass makes of the trees of the sources."""

    tree: Tree
    """The first source's tree after the pass."""
    drops: Sequence[Drop]
    unused: Sequence[Drop]
    """Leaves that are dropped unless an output uses them."""
    settled: Set[int]
    """The identities of all entries that this pass or one before it has claimed or looked up."""
    claims: Claims


@dataclass(frozen=True, eq=False)
class PassRun:
    """A pass that was run: what explains afterwards how it decided."""

    pass_: Pass
    evaluator: Evaluator
    """What evaluated its rules; `evaluator.trees` are the trees before the pass."""
    claims: Claims
    tree: Tree
    """The first source's tree after the pass."""


@dataclass(frozen=True)
class Unclaimed:
    """The leaves that no rule of a pass claims, after the policy has decided about them."""

    kept: Sequence[Entry]
    drops: Sequence[Drop]
    settled: Set[int]
    """The same as `PassResult.settled`."""
    refused: Set[str] = frozenset()
    """Keys of the leaves that `unmatched: error` refuses."""


def run_pass(
    pass_: Pass,
    default: Unmatched,
    evaluator: Evaluator,
    target: Target | None,
    settled: Set[int],
    last: bool,
) -> PassResult:
    """Run one pass over the evaluator's trees. Problems are added to the evaluator's.

    `default`: the policy for unclaimed leaves if the pass does not name one. `target`: the structure that the
    result must have, or None before the last pass. `settled`: see `PassResult`, of the passes before.
    `last`: whether no other pass follows that could use what is left of the other sources.
    """
    rules = pass_.rules
    mirrors = mirrors_of(pass_)
    _check_mirrors(pass_, evaluator)
    claims = claim(rules, mirrors, evaluator)

    def unclaimed(used_by: Iterable[Entry]) -> Unclaimed:
        return _unclaimed(pass_.unmatched or default, evaluator, claims.entries, settled, last, used_by)

    if target is not None:
        given = filled(rules, evaluator, target)
        made = produce(rules, claims, mirrors, evaluator)
        matched = _distinct(made.entries, rules, evaluator)
        free = {
            name: {text: entry for text, entry in tree.items() if id(entry) not in claims.entries}
            for name, tree in evaluator.trees.items()
        }
        given |= last_resorts(rules, evaluator, target, given.keys() | matched.keys(), free)
        left = unclaimed([*given.values(), *matched.values()])
        filled_in = [entry for entry in given.values() if not target.is_placeholder(entry)]
        _refuse_objects([*filled_in, *matched.values()], left, evaluator.problems)
        is_awaited = awaited_keys(rules, mirrors, evaluator, left.refused)
        fit = fitted(evaluator, target, given, matched, left.kept, free, is_awaited)
        available = [*free[evaluator.first].values(), *matched.values()]
        _note_subtrees(evaluator.problems, target.placeholders.keys(), available)
        drops = (*made.drops, *left.drops, *fit.drops)
        return PassResult(fit.tree, drops, made.unused, left.settled, claims)
    for index, rule in enumerate(rules):
        if rule.fill is not None:
            message = "`fill` needs a target, and belongs to the last pass"
            hint = "Give one: `target=PATH`." if last else "Move the rule into the last pass."
            evaluator.problems.at(index, ("fill",), PlanError(message, hint=hint, code=Code.NO_TARGET))
            if last:
                break  # what the other rules lack is the same
    made = produce(rules, claims, mirrors, evaluator)
    left = unclaimed(entry for _, entry in made.entries)
    _check_leaves(len(made.entries) + len(left.kept), evaluator.problems)
    if last:
        _refuse_objects([entry for _, entry in made.entries], left, evaluator.problems)
    tree = _distinct([*made.entries, *((None, entry) for entry in left.kept)], rules, evaluator)
    _warn_of_slots(made.entries, rules, mirrors, tree, evaluator.problems)
    return PassResult(tree, (*made.drops, *left.drops), made.unused, left.settled, claims)


def _check_leaves(count: int, problems: Problems) -> None:
    """End planning if a pass leaves more leaves than a plan can have."""
    try:
        check_leaves(count, "the pass gives")
    except SurgeryError as error:
        problems.general(replace(error.problems[0], place=problems.unmatched_place()))
        problems.raise_all()


def _check_mirrors(pass_: Pass, evaluator: Evaluator) -> None:
    """A mirrored tree without leaves is a mistake: the leaves that were meant would stay as they are."""
    problems, trees = evaluator.problems, evaluator.trees
    loaded = problems.loaded
    base = problems.own("mirror")
    for params, slots in pass_.mirror.items():
        where = (*base, params)
        places = [(params, loaded.key_place(where))]
        places += [(slot, loaded.place((*where, i))) for i, slot in enumerate(slots)]
        for prefix, place in places:
            if not any(text.startswith(f"{prefix}/") for tree in trees.values() for text in tree):
                message = f"no leaf lies under `{prefix}`{did_you_mean(prefix, _containers(trees))}"
                hint = "Where only some checkpoints have these leaves, mirror them in a pass with `when`."
                problems.general(Problem(message, place, hint, Code.MIRROR))


def _containers(trees: Mapping[str, Tree]) -> list[str]:
    """The paths of all containers."""
    keys = [entry.key for tree in trees.values() for entry in tree.values()]
    return list(dict.fromkeys("/".join(key.names[:i]) for key in keys for i in range(1, len(key.names))))


def _unclaimed(
    policy: Unmatched,
    evaluator: Evaluator,
    claimed: Set[int],
    settled: Set[int],
    last: bool,
    used_by: Iterable[Entry],
) -> Unclaimed:
    """Apply the policy to the leaves that no rule claims. `used_by`: the entries that rules have made.

    Under `unmatched: error` a leaf that these neither use nor look up is a problem.
    """
    kept: list[Entry] = []
    drops: list[Drop] = []
    loose: list[str] = []
    first = evaluator.first
    looked_up = evaluator.looked_up()
    settled = settled | claimed | looked_up
    left = [
        (name, entry)
        for name, tree in evaluator.trees.items()
        # Leaves of the other sources may be for a later pass.
        if name == first or last
        for entry in tree.values()
        if id(entry) not in (claimed if name == first else settled)
    ]
    used = _used_values(used_by) if left and policy == "error" else ()
    dropped_as = "unmatched: drop" if evaluator.problems.loaded.function is None else NOT_RETURNED
    for name, entry in left:
        if name == first and policy == "keep":
            kept.append(entry)
        elif policy == "error" and id(entry.value) not in used and id(entry) not in looked_up:
            loose.append(entry.key.text)
        else:
            why = dropped_as if policy == "drop" else NOT_CLAIMED
            drops.append(Drop(entry, None, why))
    if loose:
        message = f"`unmatched: error`, and no rule claims {few_keys(loose)} ({len(loose)} in all)"
        hint = "Add a rule for them, or `drop: true` to remove them."
        place = evaluator.problems.unmatched_place()
        evaluator.problems.general(Problem(message, place, hint, Code.UNCLAIMED))
    return Unclaimed(kept, drops, settled, frozenset(loose))


def _refuse_objects(made: Iterable[Entry], left: Unclaimed, problems: Problems) -> None:
    """Note every object of a tree that no checkpoint holds, unless a rule or `unmatched: drop` drops it."""
    ignored = (drop.entry for drop in left.drops if drop.why == NOT_CLAIMED)
    for entry in (*made, *left.kept, *ignored):
        if entry.leaf.kind is LeafKind.OBJECT:
            notice = Notice("", entry.leaf.key.printed, f" is {not_held(entry.leaf)}")
            problems.about(entry, notice, CONVERT, Code.NOT_AN_ARRAY)


def _used_values(entries: Iterable[Entry]) -> set[int]:
    """The identities of all nodes that the entries' values are made of."""
    used: set[int] = set()
    stack = [entry.value for entry in entries]
    while stack:
        node = stack.pop()
        if id(node) not in used:
            used.add(id(node))
            stack.extend(node.inputs if isinstance(node, Apply) else ())
    return used


def _warn_of_slots(
    made: Iterable[tuple[int, Entry]],
    rules: Sequence[Rule],
    mirrors: Sequence[Mirror],
    tree: Tree,
    problems: Problems,
) -> None:
    """Warn of added leaves in a mirrored tree that have no slots: a rule must add those too."""
    for index, entry in made if mirrors else ():
        text = entry.key.text
        missing = [
            f"`{mirror.slot}`"
            for mirror in mirrors
            if text.startswith(f"{mirror.params}/") and mirror.slot + text[len(mirror.params) :] not in tree
        ]
        if missing and rules[index].add is not None:
            slots = f"its slot in {' and '.join(missing)}"
            after = f", and nothing adds {slots}: `add` is not mirrored"
            problems.warn(Notice(f"{problems.ref(index)} adds ", text, after))


def _distinct(
    made: Iterable[tuple[int | None, Entry]], rules: Sequence[Rule], evaluator: Evaluator
) -> dict[str, Entry]:
    """The entries by key; two with the same key are a problem. `made`: entries with their rules' numbers."""
    listed = list(made)
    tree = {entry.key.text: entry for _, entry in listed}
    if len(tree) == len(listed):
        return tree
    tree, owners = {}, dict[str, int | None]()
    for index, entry in listed:
        text = entry.key.text
        if text in tree:
            _note_collision((owners[text], tree[text]), (index, entry), rules, evaluator)
        else:
            tree[text], owners[text] = entry, index
    return tree


def _note_collision(
    one: tuple[int | None, Entry],
    other: tuple[int | None, Entry],
    rules: Sequence[Rule],
    evaluator: Evaluator,
) -> None:
    """Note that two entries have the same key, at the rule that makes the later one."""
    (index, old), (later, new) = one, other
    hint = None
    if None in (index, later):
        hint = "Add a rule that renames or drops the one that stays."
    elif index is not None and index == later and (mistaken := braces_of(rules[index])):
        hint = f"In the template {mistaken}."
    elif index == later and old.value is not new.value and list(reads(new.value)):
        hint = "To make one leaf of several, say how with `value`: stack(xs), say."
    made = "; ".join(_making(number, entry, evaluator) for number, entry in (one, other))
    message = f"two leaves would be called `{new.key.text}`: {made}"
    blamed = later if later is not None else index
    if blamed is None:
        evaluator.problems.general(Problem(message, None, hint, Code.SAME_KEY))
        return
    rule = rules[blamed]
    field = "add" if rule.add is not None else "match" if rule.to is None else "to"
    evaluator.problems.at(blamed, (field,), PlanError(message, hint=hint, code=Code.SAME_KEY))


def _making(index: int | None, entry: Entry, evaluator: Evaluator) -> str:
    """Which rule makes an entry, and from which leaves."""
    several = len(evaluator.trees) > 1
    made_of = few_keys(
        f"{read.source}:{read.leaf.key}" if several else read.leaf.key.text for read in reads(entry.value)
    )
    if index is None:
        return f"{made_of} stays there (`unmatched: keep`)"
    return f"{evaluator.problems.ref(index)} makes it" + (f" from {made_of}" if made_of else "")


def _note_subtrees(problems: Problems, placeholders: Set[str], entries: Iterable[Entry]) -> None:
    """Note placeholders under whose key leaves lie: `...` stands for a leaf.

    `entries`: those that the source has and that rules make, as far as no rule drops them.
    """
    if not placeholders:
        return
    inner: dict[str, list[str]] = {}
    for entry in entries:
        names = entry.key.names
        for i in range(len(names)):
            if (container := SEPARATOR.join(names[:i])) in placeholders:
                inner.setdefault(container, []).append(entry.key.printed)
    for container, keys in inner.items():
        lie = "1 leaf lies" if len(keys) == 1 else f"{len(keys):,} leaves lie"
        message = f"the target has `...` at `{shown(container)}`, and {lie} below it: {few_keys(keys, MANY)}"
        problems.general(Problem(message, None, _AT_LEAVES, Code.TARGET_MISFIT))


_AT_LEAVES = "Write `...` for each of these leaves, or leave the whole subtree out of the target."


# --- keys that are missing because of a rule that failed, whose problem is told -----------------------------


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
