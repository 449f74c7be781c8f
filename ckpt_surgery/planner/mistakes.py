"""Warns of what is most likely a mistake: keys, slots that are left behind, and what a plan does not use.

Dots make a leaf `params.l0.kernel` beside the tree `params`. Where the slots of Adam, `mu` and `nu`, keep the
names of parameters that are renamed, training could not go on from the result. A model whose names do not fit
those of a checkpoint would come out whole, and made of random numbers.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from ckpt_surgery.core import selections
from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.core.errors import Code, PlanError, Problem
from ckpt_surgery.core.folding import FEW, Notice, few_keys
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.optimizer_states import OPTIMIZER, is_of_optimizer
from ckpt_surgery.core.selections import Positions, Selection
from ckpt_surgery.core.text import shown
from ckpt_surgery.functions.arrays import Apply, Node, Read, inputs_first, reads
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.schema.fields import Rule
from ckpt_surgery.language.written import TracedFunction
from ckpt_surgery.language.yaml.document import path_text
from ckpt_surgery.planner.entries import PLACEHOLDER, Entry, Listings, RuleRef, naming_rule
from ckpt_surgery.planner.plan import Fate, Plan, Step
from ckpt_surgery.planner.prefixes import suggestions
from ckpt_surgery.planner.problems import MANY
from ckpt_surgery.planner.target import ANOTHER_TAKEN, DOT, NOT_IN_TARGET, Target, slashed

Names = tuple[str, ...]
PARAMS = "params"


def mistaken_dots(outputs: Sequence[Entry], known: Iterable[str]) -> Iterator[Notice]:
    """One warning for each rule that makes keys with dots in them, unless they are on purpose.

    They are, as in Hugging Face's names, if a `known` key, of the sources or the target, has dots, or if all
    outputs have dots and none begins with the first name of a known key.
    """
    suspects = [entry for entry in outputs if entry.effects and DOT.search(entry.key.text)]
    names = list(known) if suspects else []
    if not suspects or any(map(DOT.search, names)):
        return
    roots = {text.partition(SEPARATOR)[0] for text in names}
    mixed = any(SEPARATOR in entry.key.text and not DOT.search(entry.key.text) for entry in outputs)
    keys_of: dict[RuleRef | None, list[str]] = defaultdict(list)
    for entry in suspects:
        if mixed or slashed(entry.key.text).partition(SEPARATOR)[0] in roots:
            keys_of[naming_rule(entry.effects)].append(entry.key.text)
    for rule, keys in keys_of.items():
        meant = few_keys(map(slashed, keys))
        end = f"names with dots in them; levels are separated by `/`. Probably meant: {meant}"
        yield Notice(f"{rule} makes {few_keys(keys)}: {end}")


def braces_of(rule: Rule) -> str | None:
    """The warning about a template with the name of a group or variable in mere braces, if there is one."""
    templates = rule.to if isinstance(rule.to, Mapping) else [rule.to or rule.add]
    spelled = {name: f"${{{name}}}" for name in rule.for_ or ()}
    if rule.match is not None:
        spelled |= {name: f"${{{name}}}" for name in rule.match.groupindex}
        spelled |= {str(number): f"\\{number}" for number in range(1, rule.match.groups + 1)}
    braced = (name for template in templates if template for name in template.braced if name in spelled)
    name = next(braced, None)
    return name and f"`{{{name}}}` stays as it is; `{spelled[name]}` inserts what it stands for"


def left_slots(steps: Sequence[Step]) -> Iterator[Notice]:
    """A warning that counts slots that keep the names of renamed parameters, with the `mirror` to write."""
    kept = [step.leaf.key for step in steps if step.fate is Fate.KEPT]
    slots = [(key, root) for key in kept if (root := _optimizer(key.names)) is not None]
    parameters = _parameters(steps, {root for _, root in slots})
    left: list[str] = []
    mirrors: dict[Names, dict[Names, None]] = {}
    for key, root in slots:
        pair = _mirrored(key.names, root, parameters)
        if pair is not None:
            left.append(key.text)
            mirrors.setdefault(pair[0], {})[pair[1]] = None
    if not left:
        return
    trees = {SEPARATOR.join(names): map(SEPARATOR.join, [*found][:FEW]) for names, found in mirrors.items()}
    written = ", ".join(f"{params}: [{', '.join(slots)}]" for params, slots in trees.items() if params)
    way_out = f"; `mirror: {{{written}}}` renames them too" if written else ""
    keep = "1 leaf keeps" if len(left) == 1 else f"{len(left):,} leaves keep"
    yield Notice(f"{keep} the names of parameters that are renamed: {few_keys(left)}{way_out}")


def _parameters(steps: Sequence[Step], roots: Set[int]) -> Mapping[Names, Mapping[Names, bool]]:
    """By the key of a parameter below a tree that may hold the parameters, such trees, and if it is renamed.

    Such a tree ends with `params`, is the whole checkpoint or one of its first level, or lies beside the
    optimizer's: `state/model` beside `state/opt_state`. `roots`: indices of the optimizer's component.
    """
    below: dict[Names, dict[Names, bool]] = defaultdict(lambda: defaultdict(bool))
    depths = {0, 1, *(root + 1 for root in roots)}
    for step in steps if roots else ():
        moved = step.fate is Fate.RENAMED or step.fate is Fate.TRANSFORMED
        for _, text in step.sources:
            names = tuple(text.split(SEPARATOR))
            if _optimizer(names) is not None:
                continue
            renamed = moved and text != step.leaf.key.text
            for depth in range(len(names)):
                if depth in depths or names[depth - 1] == PARAMS:
                    below[names[depth:]][names[:depth]] |= renamed
    return below


def _mirrored(
    names: Names, root: int, parameters: Mapping[Names, Mapping[Names, bool]]
) -> tuple[Names, Names] | None:
    """The nearest tree of parameters that a slot mirrors, and its slots; None if the parameter stays."""
    for start in range(root + 1, len(names)):
        renamed_in = parameters.get(names[start:], {})
        trees = [tree for tree in renamed_in if len(tree) <= root + 1 or tree[-1] == PARAMS]
        if trees:
            nearest = max(trees, key=lambda t: (_in_common(t, names), t[-1:] == (PARAMS,), renamed_in[t]))
            return (nearest, names[:start]) if renamed_in[nearest] else None
    return None


def _in_common(one: Names, other: Names) -> int:
    """Number of components that both begin with."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _optimizer(names: Names) -> int | None:
    """The index of the component that the state of an optimizer is below; None for other leaves."""
    return next((i for i, name in enumerate(names) if name in OPTIMIZER), None)


MOST_PLACES = 2**24
"""Limit on the indices along one axis of a leaf's selections; beyond, these count as used without gaps."""
MOST_SELECTIONS = 4096
"""The number of selections of one function's result up to which each is followed to the leaves."""


def used(values: Sequence[Node]) -> dict[Node, list[Selection]]:
    """Selections of each leaf that the values use; one region around them where there are too many."""
    wanted: dict[Node, dict[Hashable, Selection]] = {}

    def want(node: Node, selection: Selection) -> None:
        wanted.setdefault(node, {})[tuple(map(_name, selection))] = selection

    for value in values:
        want(value, selections.whole(value.spec.shape))
    for node in reversed(list(inputs_first(values))):
        chosen = list(filter(selections.count, wanted.pop(node, {}).values()))
        if len(chosen) > MOST_SELECTIONS:
            chosen = [selections.of_region(Region.around(list(map(selections.bounding_box, chosen))))]
        specs = [child.spec for child in node.inputs]
        for selection in chosen:
            for index, part in node.function.uses(selection, specs):
                want(node.inputs[index], part)
    return {read: list(chosen.values()) for read, chosen in wanted.items()}


def unused_elements(values: Sequence[Node], left_out: str) -> Iterator[Notice]:
    """A warning for each leaf, but for those of the source `left_out`, with rows that no value uses."""
    computed = [value for value in values if isinstance(value, Apply)]
    chosen = used(computed)
    taken: dict[int, tuple[Leaf, list[Selection]]] = {}
    seen: set[int] = set()
    for read in (read for value in computed for read in reads(value, seen) if read.source != left_out):
        taken.setdefault(id(read.leaf), (read.leaf, []))[1].extend(chosen.get(read, ()))
    complete = {id(value.leaf) for value in values if isinstance(value, Read)}
    known: dict[Hashable, tuple[str, str] | None] = {}  # thousands of leaves are alike
    for leaf, parts in taken.values():
        assert leaf.spec is not None
        size = leaf.spec.size
        if not parts or id(leaf) in complete or size in map(selections.count, parts):
            continue
        alike = leaf.spec.shape, frozenset(tuple(map(_name, selection)) for selection in parts)
        if alike not in known:
            known[alike] = unused_rows(leaf.spec.shape, parts)
        if (rows := known[alike]) is not None:
            yield Notice(f"{rows[0]} elements of ", leaf.key.printed, f" are used by no output: {rows[1]}")


def unused_rows(shape: Shape, chosen: Iterable[Selection]) -> tuple[str, str] | None:
    """How many elements are in rows that no selection takes, and the first such rows; None if none are."""
    parts = list(filter(selections.count, chosen))
    gaps = [_gaps(length, [part[axis] for part in parts]) for axis, length in enumerate(shape)]
    ranges = [(axis, *bounds) for axis, runs in enumerate(gaps) for bounds in runs.tolist()]
    if not ranges:
        return None
    taken = math.prod(n - int(np.diff(runs).sum()) for n, runs in zip(shape, gaps, strict=True))
    numbers = f"{math.prod(shape) - taken} of {math.prod(shape)}"
    axis, start, stop = ranges[0]
    first = ", ".join(f"{start}:{stop}" if a == axis else f"0:{length}" for a, length in enumerate(shape))
    return numbers, f"[{first}]" + (f" and {len(ranges) - 1} more ranges" if len(ranges) > 1 else "")


def _gaps(length: int, sets: Iterable[Positions]) -> np.ndarray:
    """Start and stop of each run of indices that are in none of these sets, ascending."""
    distinct = {_name(places): places for places in sets}.values()
    runs = []
    for places in distinct:  # a run for each index, or one for all if they are consecutive, or too many
        is_run = isinstance(places, range) and places.step == 1
        apart = not is_run and len(places) <= MOST_PLACES // len(distinct)
        runs.append(
            selections.as_array(places)[:, None] + [0, 1] if apart else np.array([selections.bounds(places)])
        )
    taken = np.concatenate([[[0, 0]], *runs, [[length, length]]])
    taken = taken[np.argsort(taken[:, 0])]
    gaps = np.stack([np.maximum.accumulate(taken[:-1, 1]), taken[1:, 0]], axis=1)
    return gaps[gaps[:, 0] < gaps[:, 1]]


def _name(positions: Positions) -> Hashable:
    """A value that is equal for equal places."""
    return positions if isinstance(positions, range) else positions.tobytes()


BY_ITSELF = frozenset({NOT_IN_TARGET, ANOTHER_TAKEN, PLACEHOLDER, "not claimed"})
"""Reasons for dropping leaves that no part of a recipe mentions."""


def check_sources_used(plan: Plan, loaded: LoadedRecipe, listings: Listings, target: Target | None) -> None:
    """Raise PlanError for each source with arrays that is neither used nor dropped on purpose.

    A recipe drops on purpose by a rule with `drop`, by a value that uses none of what it claims, by
    `unmatched: drop`, and by `prefer: target`. Transforms of Orbax may use nothing, as in Orbax itself.
    """
    if loaded.document.rules or (target is not None and target.policy.prefer == "target"):
        return
    used = {name for step in plan.steps for name, _ in step.sources}
    problems = []
    for given in (given for given in plan.inputs if given.name in listings.keys() - used):
        arrays = [d for d in plan.dropped if d.source == given.name and d.leaf.kind is LeafKind.ARRAY]
        if arrays and all(drop.why in BY_ITSELF for drop in arrays):
            has = f"{shown(given.path)} has {few_keys(drop.leaf.key.printed for drop in arrays)}"
            message = f"nothing of the source `{given.name}` is used: {has}"
            hint = _hint(given.name, plan, loaded, listings, target)
            problems.append(Problem(message, None, hint, Code.SOURCE_UNUSED))
    if problems:
        raise PlanError(*problems)


def _hint(name: str, plan: Plan, loaded: LoadedRecipe, listings: Listings, target: Target | None) -> str:
    """Advice about a source that is not used: rules that take its leaves in place of the target's."""
    away = f"Leave out this source, or drop it on purpose: `{{match: '.*', source: {name}, drop: true}}`."
    if target is None:
        return away
    defaulted = [step.leaf.key.text for step in plan.steps if step.fate is Fate.DEFAULTED]
    tree = {text: Entry(leaf.key, leaf, Read(name, leaf)) for text, leaf in listings[name].items()}
    offered = {source: tree if source == name else {} for source in listings}
    rules = [one.rule for one in suggestions(defaulted, target.leaves, offered)]
    if not rules:
        takes = "Add rules that take its leaves to keys of the target."
        return f"{takes} {away}" if len(listings) > 1 else takes
    made = {step.rule.path for step in plan.steps if step.rule is not None}
    always = [f"`{path}`" for path, rule in _rules(loaded) if rule.fallback is True and path in made]
    instead = f", in place of {' and '.join(always)}" if always else ""
    return f"It fits the target by the rule `{'` and `'.join(rules)}`{instead}."


def check_keys(function: TracedFunction, target: Target | None) -> None:
    """Raise PlanError where what a function returns and what the target has do not go together.

    Leaves that only the target has keep their values there: but where the function also returns others that
    the target lacks, most likely one is the other, misspelt.
    """
    if target is None:
        return
    wanted = {t: leaf for t, leaf in target.leaves.items() if t not in target.placeholders}
    missing = [t for t, leaf in wanted.items() if t not in function.keys and leaf.kind is not LeafKind.EMPTY]
    surplus = [text for text in sorted(function.keys) if text not in target.leaves]
    abstract = [text for text in missing if not target.has_value(target.leaves[text])]
    if missing and surplus:
        why = f" of the target, and returns {few_keys(surplus, MANY)}, which the target does not have"
        hint = "If one is meant to be the other, correct its name. If not, return `...` for what the target "
        hint += "gives, and do not return the others."
    elif abstract:
        why = f", and the target has no values for them{target.lack}"
        hint = "Return them, or give a target that has values."
    else:
        return
    message = f"{function.label} does not return {few_keys(missing if surplus else abstract, MANY)}{why}"
    raise PlanError(Problem(message, None, hint, Code.TARGET_MISSING))


def target_share(plan: Plan, loaded: LoadedRecipe, target: Target | None) -> Iterator[str]:
    """A warning where most elements are the target's own by a blanket permission, and not by a rule for them.

    Permissions are `missing: fallback`, and a `fill` rule for every leaf. Optimizers do not count.
    """
    if target is None or target.policy.prefer == "target":
        return
    fills = [(path, rule.fill) for path, rule in _rules(loaded) if rule.fill is not None and rule.fallback]
    blanket = {path for path, fill in fills if all(map(fill.fullmatch, target.leaves))}
    elements = taken = 0
    for step in plan.steps:
        size = 0 if step.leaf.spec is None or is_of_optimizer(step.leaf) else step.leaf.spec.size
        elements += size
        if step.fate is Fate.DEFAULTED and (step.rule is None or step.rule.path in blanket):
            taken += size
    if 2 * taken > elements:
        share = f"{taken:,} of {elements:,} elements ({taken / elements:.0%}, optimizers' states not counted)"
        yield f"{share} are the target's own values: nothing of the sources gives them"


def _rules(loaded: LoadedRecipe) -> Iterator[tuple[str, Rule]]:
    """All rules of a recipe, each with its path."""
    for number, pass_ in enumerate(loaded.recipe.passes):
        yield from ((path_text(loaded.rule_location(number, i)), r) for i, r in enumerate(pass_.rules))
