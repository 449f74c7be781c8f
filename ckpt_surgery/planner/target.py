"""The last pass meets the target: for each target key, the first that applies.

A `fill` rule; a `match` rule's output of that name; then, by `target.prefer`, the source leaf of the same
name or the target's own value. What none of these gives is an error, unless the recipe says that the
target's value will do. What ends nowhere is dropped, and says why.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from ckpt_surgery.core.errors import SurgeryError
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import FEW, Notice, few_keys, sentences
from ckpt_surgery.core.text import did_you_mean
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.graph.nodes import Apply, Read
from ckpt_surgery.language.models import Rule, TargetPolicy
from ckpt_surgery.language.scope import Unavailable
from ckpt_surgery.planner.dots import slashed
from ckpt_surgery.planner.entries import HAS_ARRAY, KINDS, Drop, Entry, Tree, with_lists
from ckpt_surgery.planner.evaluator import Evaluator, SourceLeaves, x_of
from ckpt_surgery.planner.problems import MANY, OPTIONAL, Problems

TARGET = "target"


@dataclass(frozen=True)
class Target:
    """The structure that the result must have."""

    leaves: Mapping[str, Leaf]
    readable: bool
    """False for a mere listing, which has no values to fall back on."""
    policy: TargetPolicy


def target_leaves(target: Target | None) -> SourceLeaves | Unavailable:
    """`target['a/b']` in expressions."""
    if target is None:
        return Unavailable("there is no target", hint="Give one: `target=PATH`.")
    leaves = SourceLeaves(TARGET, {text: own_value(leaf) for text, leaf in target.leaves.items()})
    if target.readable:
        return leaves
    return Unavailable("the target is only a listing: it has no values", listed=leaves)


def own_value(leaf: Leaf) -> Entry:
    """The target's own value of a leaf."""
    return Entry(leaf.key, leaf, Read(TARGET, leaf), None)


@dataclass(frozen=True)
class Fitted:
    """The result of meeting the target."""

    tree: Tree
    """Exactly the target's structure."""
    drops: Sequence[Drop]
    """What was offered and is not in the tree."""


def fitted(
    evaluator: Evaluator,
    target: Target,
    given: Mapping[str, Entry],
    matched: Mapping[str, Entry],
    kept: Iterable[Entry],
) -> Fitted:
    """Choose what each leaf of the target becomes; what is wrong is noted with the evaluator's problems.

    `given`: what `fill` rules give. `matched`: what `match` and `add` rules make. `kept`: leaves that no rule
    claims, under their own names.
    """
    problems = evaluator.problems
    surplus = [_surplus(entry, target) for text, entry in matched.items() if text not in target.leaves]
    for notice in surplus:
        problems.warn(notice)
    own = {entry.key.text: entry for entry in kept}
    tree: dict[str, Entry] = {}
    missing: list[str] = []
    for text, leaf in _located(target, evaluator).items():
        offered = (
            given.get(text)
            or matched.get(text)
            or (own.get(text) if target.policy.prefer == "source" else None)
        )
        fitting = None if offered is None else _fitting(problems, target, leaf, offered)
        if fitting is None and not _falls_back(target, leaf, offered):
            missing.append(text)
        else:
            tree[text] = fitting or own_value(leaf)
    if missing and problems.is_empty:  # a rule that failed may be why nothing gives them
        _note_missing(problems, target, missing, surplus)
    return Fitted(tree, _drops(tree, target, [*matched.values(), *own.values()]))


def _surplus(entry: Entry, target: Target) -> Notice:
    """What to say of a leaf that a rule makes and the target has no place for."""
    meant = slashed(entry.key.text)
    has = meant is not None and meant in target.leaves
    after = f", which the target does not have{'; it has ' if has else ''}"
    return Notice(f"{entry.rule} makes ", entry.key.text, after, meant if has else None)


def _falls_back(target: Target, leaf: Leaf, offered: Entry | None) -> bool:
    """Whether the target's own value is to be taken, of a leaf for which nothing that fits is offered."""
    if not target.readable:
        return False
    # What is offered and does not fit is a problem of its own, or falls back by `on_shape_mismatch`.
    asked = target.policy.prefer == "target" or target.policy.missing == "fallback"
    return asked or offered is not None or leaf.kind is LeafKind.EMPTY


def _note_missing(
    problems: Problems, target: Target, missing: Sequence[str], surplus: Sequence[Notice]
) -> None:
    listed = f"nothing gives {few_keys(missing, MANY)} of the target ({len(missing):,} in all)"
    if not target.readable:
        problems.general(
            f"{listed}; a mere listing as target has no values",
            "Add rules for them, or give a checkpoint as the target.",
        )
        return
    others = "".join(f"; {sentence}" for sentence in sentences(surplus)[:FEW])
    pattern = _pattern_of(missing, target.leaves.keys() - set(missing)).replace("'", "''")
    problems.general(
        listed + others,
        f"Add rules for them. `{{fill: '{pattern}', fallback: true}}` takes the target's own values; "
        "`target: {missing: fallback}` does that for whatever is missing.",
    )


def _pattern_of(missing: Iterable[str], others: Collection[str]) -> str:
    """A regular expression for the missing keys, by the subtrees that lack all of their leaves.

    It matches none of the others. Where it would be long, it is for the first of the missing keys only.
    """
    if not others:
        return ".*"
    inhabited = {prefix for text in others for prefix in _prefixes(text)}
    patterns = dict.fromkeys(
        _generalized(next((p for p in _prefixes(text) if p not in inhabited), text), others)
        for text in missing
    )
    return "|".join(itertools.islice(patterns, FEW))


def _prefixes(text: str) -> Iterator[str]:
    """`a/`, `a/b/`, … of `a/b/c`: the containers that a key lies in."""
    return (text[: i + 1] for i, character in enumerate(text) if character == SEPARATOR)


def _generalized(text: str, others: Iterable[str]) -> str:
    """A pattern for a key, or for what lies in a container: with any numbers, if no other key fits then."""
    end = ".*" if text.endswith(SEPARATOR) else ""
    pattern = str(regex.escape(text, special_only=True))
    any_number = str(regex.sub("[0-9]+", r"\\d+", pattern)) + end
    compiled = regex.compile(any_number)
    return pattern + end if any(compiled.fullmatch(other) for other in others) else any_number


def _located(target: Target, evaluator: Evaluator) -> Mapping[str, Leaf]:
    """The target's leaves. A listing does not tell lists from dicts: there the source's lists are known."""
    if target.readable or not evaluator.lists:
        return target.leaves
    return {
        text: replace(leaf, key=with_lists(leaf.key, evaluator.lists)) for text, leaf in target.leaves.items()
    }


def filled(rules: Sequence[Rule], evaluator: Evaluator, target: Target) -> dict[str, Entry]:
    """What `fill` rules give, by target key; the first rule that matches a key wins."""
    given: dict[str, Entry] = {}
    fill_rules = [(i, rule) for i, rule in enumerate(rules) if rule.fill is not None]
    claimed: set[int] = set()
    for text, leaf in target.leaves.items():
        for index, rule in fill_rules:
            wanted, entry = _fill(evaluator, target, index, rule, leaf)
            if wanted:
                claimed.add(index)
                if entry is not None:
                    given[text] = entry
                break
    for index, rule in fill_rules:
        if index not in claimed and not rule.optional:
            evaluator.problems.at(index, ("fill",), _why_unused(evaluator, index, rule, target, given))
    return given


def _why_unused(
    evaluator: Evaluator, index: int, rule: Rule, target: Target, given: Collection[str]
) -> SurgeryError:
    """Why a `fill` rule claimed nothing."""
    pattern = rule.fill
    assert pattern is not None
    fits = [text for text in target.leaves if evaluator.match(index, ("fill",), pattern, text)]
    refused = [text for text in fits if text not in given]
    if not fits:
        guess = did_you_mean(pattern.pattern, target.leaves)
        why = f"no key of the target matches{guess}"
    elif refused and rule.when is not None:
        why = f"`when` is false for {few_keys(refused)}"
    else:
        which = "the one key" if len(fits) == 1 else f"all {len(fits)} keys"
        why = f"earlier rules claimed {which} that it matches"
    return SurgeryError(f"the rule claims nothing: {why}", hint=OPTIONAL)


def _fill(
    evaluator: Evaluator, target: Target, index: int, rule: Rule, leaf: Leaf
) -> tuple[bool, Entry | None]:
    """Whether the rule claims this target leaf, and what it gives; None where that is a problem."""
    assert rule.fill is not None
    text = leaf.key.text
    match = evaluator.match(index, ("fill",), rule.fill, text)
    if match is None:
        return False, None
    names = evaluator.names_at(match, text)
    wanted_key = text
    if rule.from_ is not None:
        spelled = evaluator.spell(index, ("from",), rule.from_, match, names, text)
        if spelled is None:
            return True, None
        wanted_key = spelled.text
    offered = _offered(evaluator, rule, wanted_key)
    missing = Unavailable(f"no source leaf is called `{wanted_key}`")
    names["x"] = missing if offered is None else x_of(offered)
    if rule.when is not None:
        wanted = evaluator.condition(index, rule.when, names, text)
        if not wanted:
            return wanted is None, None
    return True, _filling(evaluator, target, index, rule, leaf, offered, wanted_key, names)


def _offered(evaluator: Evaluator, rule: Rule, text: str) -> Entry | None:
    """The entry of that key in the first of the rule's sources that has it."""
    found = (evaluator.trees[name].get(text) for name in evaluator.sources_of(rule))
    return next((entry for entry in found if entry is not None), None)


def _filling(
    evaluator: Evaluator,
    target: Target,
    index: int,
    rule: Rule,
    leaf: Leaf,
    offered: Entry | None,
    wanted_key: str,
    names: Mapping[str, object],
) -> Entry | None:
    text = leaf.key.text
    if rule.fallback and target.policy.prefer == "source":
        if not target.readable:
            evaluator.problems.at(
                index, ("fallback",), "the target is only a listing: it has no values", text
            )
            return None
        return replace(own_value(leaf), rule=evaluator.problems.ref(index))
    if rule.value is not None:
        model = None if offered is None else offered.leaf
        return evaluator.made(index, ("value",), rule.value, names, leaf.key, model, text)
    if offered is None:
        guess = did_you_mean(wanted_key, evaluator.trees[evaluator.first])
        field = ("from",) if rule.from_ is not None else ("fill",)
        evaluator.problems.at(index, field, f"no source leaf is called `{wanted_key}`{guess}", text)
        return None
    return Entry(leaf.key, offered.leaf, offered.value, evaluator.problems.ref(index))


def _fitting(problems: Problems, target: Target, leaf: Leaf, entry: Entry) -> Entry | None:
    """The entry under the target's key and, where that is asked for, with its dtype; None to fall back."""
    entry = replace(entry, key=leaf.key)
    misfit = _misfit(leaf, entry)
    if misfit is not None:
        _disagree(problems, target, entry, misfit)
        return None
    casts = target.policy.dtype == "target" and leaf.kind in HAS_ARRAY
    if not casts or leaf.spec is None or leaf.spec.dtype == entry.value.spec.dtype:
        return entry
    value = Apply(Cast(leaf.spec.dtype), (entry.value,))
    return replace(entry, value=value, leaf=replace(entry.leaf, spec=value.spec, manifest=None))


def _misfit(leaf: Leaf, entry: Entry) -> Notice | None:
    """How a value and the target's leaf disagree: in kind (array and scalar are one), or in shape."""
    if leaf.kind is not entry.leaf.kind and not (leaf.kind in HAS_ARRAY and entry.leaf.kind in HAS_ARRAY):
        return Notice(
            "", leaf.key.text, f" is {KINDS[entry.leaf.kind]}, the target has {KINDS[leaf.kind]} there"
        )
    if leaf.spec is None or leaf.spec.shape == entry.value.spec.shape:
        return None
    shapes = f" has shape {list(entry.value.spec.shape)}, the target has {list(leaf.spec.shape)}"
    return Notice("", leaf.key.text, shapes)


def _disagree(problems: Problems, target: Target, entry: Entry, misfit: Notice) -> None:
    """Note that a value does not fit the target; it falls back, or that is a problem."""
    if target.policy.on_shape_mismatch == "fallback":
        problems.warn(replace(misfit, after=f"{misfit.after}: the target's value is used"))
        return
    hint = "Change the value with a rule, or write `target: {on_shape_mismatch: fallback}`."
    problems.about(entry, misfit, hint)


def _drops(tree: Tree, target: Target, offered: Iterable[Entry]) -> list[Drop]:
    """The entries that were offered, and whose values the tree does not have."""
    used = {id(entry.value) for entry in tree.values()}
    drops: list[Drop] = []
    for entry in offered:
        if id(entry.value) in used:
            continue
        if entry.key.text in target.leaves:
            drops.append(Drop(entry, entry.rule, "another value was taken"))
        else:
            drops.append(Drop(entry, None, "not in target"))
    return drops
