"""Decides what becomes of every leaf, from a recipe and the listings of the sources; reads no values.

Each pass turns the tree of the first source into the next one: rules claim leaves and make new ones, and a
policy decides about the rest. The problems of a pass are raised together, as later passes would repeat them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import Code, PlanError, Problem, SurgeryError
from ckpt_surgery.core.folding import Notice, few_keys
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.text import did_you_mean, number_of, shown
from ckpt_surgery.functions.arrays import Read, nodes_of, reads
from ckpt_surgery.language.expressions.operators import truth
from ckpt_surgery.language.expressions.scope import ExpressionError, Scope
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.patterns.templates import Template
from ckpt_surgery.language.schema.fields import Pass, reads_uint16_as_bfloat16
from ckpt_surgery.planner.claiming import Fill, claim, filled, views
from ckpt_surgery.planner.disguised import bfloat16_of, is_uint16
from ckpt_surgery.planner.entries import (
    CONVERT,
    PLACEHOLDER,
    Decisions,
    Drop,
    Entry,
    Listings,
    Tree,
    names_of_sources,
    not_held,
)
from ckpt_surgery.planner.limits import PlanLimits, check_leaves
from ckpt_surgery.planner.mistakes import braces_of
from ckpt_surgery.planner.problems import MANY, Problems
from ckpt_surgery.planner.producing import Add, Made, MatchRun, produce
from ckpt_surgery.planner.running import PassRun, RuleRun, count_of
from ckpt_surgery.planner.target import Target, fitted, target_leaves

OnPass = Callable[[PassRun], None]
"""Called with each pass that has been run, which then keeps what its outputs are made of."""

KEEP = "A checkpoint must have at least one leaf."
CLAIM = "Where the target has `...`, only a rule that claims the key gives a value: `{fill: KEY}`, say."
NOT_CLAIMED = "not claimed"
"""Reason for dropping a leaf of another source than the first."""


def decide(
    loaded: LoadedRecipe, listings: Listings, target: Target | None, on_pass: OnPass | None = None
) -> Decisions:
    """Run all passes over the leaves of the sources, listed by source name; the first source is transformed.

    `on_pass` is called after each pass that has no problem. Raises PlanError with every problem of the first
    pass that has one, for hooks that are not allowed, and if no leaf is left.
    """
    if loaded.recipe.hooks is not None and loaded.hooks is None:  # a recipe is data, and hooks are a program
        message = f"the recipe has hooks: Python code, in {loaded.recipe.hooks} beside it"
        hint = "Read that file; then allow it to run: `allow_hooks=True`."
        raise PlanError(Problem(message, loaded.place(("hooks",)), hint, Code.HOOKS))
    as_bfloat16 = reads_uint16_as_bfloat16(loaded.recipe)
    trees: dict[str, Tree] = {}
    for name, listing in listings.items():
        given = ((text, leaf, Read(name, leaf)) for text, leaf in listing.items())
        trees[name] = {
            text: Entry(leaf.key, leaf, bfloat16_of(read) if as_bfloat16 and is_uint16(leaf) else read)
            for text, leaf, read in given
        }
    first = next(iter(trees))
    limits = PlanLimits(sum(map(len, listings.values())) + (0 if target is None else len(target.leaves)))
    chosen = [(i, p) for i, p in enumerate(loaded.recipe.passes) if _applies(loaded, i, p, trees, limits)]
    passes = chosen or [(0, Pass(rules=()))]
    drops: list[Drop] = []
    unused: list[Drop] = []
    decided_ids: Set[int] = frozenset()
    notices: list[Notice] = []
    named_target = target_leaves(target)
    for index, pass_ in passes:
        problems = Problems(loaded, index)
        run = PassRun(pass_, trees, named_target, problems, limits, decided_ids, on_pass is not None)
        last = index == passes[-1][0]
        run_pass(run, target if last else None, last)
        problems.raise_all()
        if on_pass is None:
            run.rules = ()  # they refer to the run, so all matches would stay until garbage is collected
        else:
            on_pass(run)
        limits.add_pass(len(run.tree))
        trees = {**trees, first: run.tree}
        decided_ids = run.decided_ids
        drops += run.drops
        unused += run.unused
        notices += problems.notices
    if not trees[first]:
        raise PlanError(*_nothing_left(loaded, drops, chosen or not any(listings.values())))
    return Decisions(tuple(trees[first].values()), (*drops, *unused), tuple(notices))


def _nothing_left(loaded: LoadedRecipe, drops: Sequence[Drop], ran: object) -> Iterator[Problem]:
    """What dropped all the leaves, each at its place; `ran`: false where no pass has run over leaves."""
    if loaded.recipe.unmatched == "drop" and not ran:
        why = "this condition is false, so no pass runs, and `unmatched: drop` takes all"
        for index, _ in enumerate(loaded.recipe.passes):
            hint, place = "Look at what the source holds.", loaded.place(("passes", index, "when"))
            yield Problem(f"no leaf is left: {why}", place, hint, Code.NOTHING_LEFT)
        return
    counts = Counter((drop.rule, drop.why) for drop in drops)
    if not counts:
        yield Problem("no leaf is left: there was none", None, KEEP, Code.NOTHING_LEFT)
    for (rule, why), count in counts.items():
        who, hint = "this rule drops" if rule else f"`{why}` takes", CLAIM if why == PLACEHOLDER else KEEP
        where = ("unmatched",) if rule is None else rule.location
        given = loaded.place(where) if rule or where in loaded.document.marks else None
        message = f"no leaf is left: {who} {number_of(count, 'leaf')}"
        yield Problem(message, given, hint, Code.NOTHING_LEFT)


def _applies(
    loaded: LoadedRecipe, index: int, pass_: Pass, trees: Mapping[str, Tree], limits: PlanLimits
) -> bool:
    """Whether a pass runs. Its `when` sees the sources as given, not what the passes before make of them."""
    if pass_.when is None:
        return True
    names = {**loaded.names, **names_of_sources(trees)}
    first = next(iter(trees.values()))
    try:
        counted = partial(count_of, tree=first, matching=limits.matching)
        return truth(pass_.when.evaluate(Scope(names, "", counted)))
    except SurgeryError as error:
        span = (error.start, error.end) if isinstance(error, ExpressionError) else (None, None)
        place = loaded.place(("passes", index, "when"), *span)
        raise PlanError(*(replace(p, place=place) for p in error.problems)) from None


def run_pass(run: PassRun, target: Target | None, last: bool) -> None:
    """Carry out a pass. Its outcome is in `run`, and its problems in those of `run`.

    `target`: the structure of the result, None before the last pass. `last`: whether no other pass follows.
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
        place = run.problems.loaded.place(run.problems.own("unmatched"))
        run.problems.general(replace(error.problems[0], place=place))
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
        for prefix, place in [(params, loaded.document.key_place(where)), *slot_places]:
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
    # Leaves of the other sources may be for a later pass.
    trees = {name: tree for name, tree in run.trees.items() if name == run.first or last}
    gone = {name: run.claimed if name == run.first else run.decided_ids for name in trees}
    left = [(name, e) for name, tree in trees.items() for e in tree.values() if id(e) not in gone[name]]
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
        place = run.problems.loaded.place(run.problems.own("unmatched"))
        run.problems.general(Problem(message, place, hint, Code.UNCLAIMED))
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
    names = (f"{r.source}:{r.leaf.key}" if several else r.leaf.key.text for r in reads(entry.value))
    made_of = few_keys(names)
    if rule is None:
        return f"{made_of} stays there (`unmatched: keep`)"
    return f"{rule.ref} makes it" + (f" from {made_of}" if made_of else "")


def _note_subtrees(problems: Problems, placeholders: frozenset[str], entries: Iterable[Entry]) -> None:
    """Note placeholders with leaves below their key: `...` stands for a leaf."""
    inner: dict[str, list[str]] = {}
    for key in (entry.key for entry in entries) if placeholders else ():
        above = {SEPARATOR.join(key.names[:i]) for i in range(len(key.names))}
        for container in placeholders & above:
            inner.setdefault(container, []).append(key.printed)
    for container, keys in inner.items():
        lie = "1 leaf lies" if len(keys) == 1 else f"{len(keys):,} leaves lie"
        message = f"the target has `...` at `{shown(container)}`, and {lie} below it: {few_keys(keys, MANY)}"
        hint = "Write `...` for each of these leaves, or leave the whole subtree out of the target."
        problems.general(Problem(message, None, hint, Code.TARGET_MISFIT))


def awaited_keys(run: PassRun, refused: Set[str]) -> Callable[[str], bool]:
    """A function of a missing key: whether a failed rule or a `refused` leaf may have been meant for it."""
    matches: list[Callable[[str], object]] = []
    for rule in (run.rules[index] for index in sorted(run.problems.failed_rules)):
        to = rule.rule.to or rule.rule.add
        templates = [to] if isinstance(to, Template) else list(to or ())
        if not rule.rule.drop:  # a rule without templates has `fill`, or `match` alone
            matches += [template.keys.fullmatch for template in templates] or [rule.match]
    return lambda text: (
        text in refused or any(match(view) for match in matches for view, _ in views(text, run.mirrors))
    )
