"""The target decides which leaves the last pass gives, and what each of them is.

Each key of the target gets the first of these that exists: what a `fill` rule gives; the output of another
rule with that key; then, as `target.prefer` says, the source leaf with that key or the target's own value. A
key that gets nothing is a problem, unless the recipe allows the target's value. The rest is dropped.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

import regex

from ckpt_surgery.core.dtypes import DType, lost_by_cast
from ckpt_surgery.core.errors import Code, FunctionError, Problem
from ckpt_surgery.core.folding import FEW, Notice, few_keys, sentences
from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.functions.arrays import Apply, Read, reads
from ckpt_surgery.functions.dtypes import Cast
from ckpt_surgery.functions.quantization import QUANTIZED
from ckpt_surgery.language.expressions.scope import Unavailable
from ckpt_surgery.language.schema.fields import TargetPolicy
from ckpt_surgery.planner.disguised import bfloat16_of, is_uint16
from ckpt_surgery.planner.entries import (
    HAS_ARRAY,
    KINDS,
    PLACEHOLDER,
    Asked,
    Drop,
    Entry,
    SourceLeaves,
    Tree,
    deciding_rule,
    naming_rule,
    with_lists,
)
from ckpt_surgery.planner.prefixes import look_alike, move_hints, pattern_of, suggestions
from ckpt_surgery.planner.problems import MANY, Problems
from ckpt_surgery.planner.running import PassRun

TARGET = "target"
NOT_IN_TARGET = "not in target"
"""Reason for dropping a leaf whose key the target does not have."""
ANOTHER_TAKEN = "another value was taken"
"""Reason for dropping a leaf whose key the target has, with a value from elsewhere."""
DOT = re.compile(r"(?<=\w)\.(?=[^\W\d])|(?<=[^\W\d])\.(?=\w)")
"""A dot between words; not the dot of a number or a version."""


@dataclass(frozen=True)
class Target:
    """The structure that the result must have."""

    leaves: Mapping[str, Leaf]
    policy: TargetPolicy
    without_values: Set[str] = frozenset()
    """Texts of the keys of leaves that have no value to fall back on."""
    lists_known: bool = True
    """Whether the keys tell lists from dicts, which those of a listing do not."""
    dtype_of_number: Callable[[Leaf, DType], DType] = lambda leaf, dtype: dtype
    """Function of a leaf of the target and the dtype of a Python number that becomes it, which returns the
    dtype that the number has there where the recipe keeps the source's."""
    disguised: Mapping[str, Leaf] = field(default_factory=dict)
    """Leaves of uint16 that are read as bfloat16, as they are stored."""
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """Kind, shape and dtype of leaves that leave them to the source, by the text of the key."""

    @cached_property
    def lack(self) -> str:
        """Reason why no leaf has a value, which messages end with; empty where others have one, or `...`."""
        if not self.leaves.keys() <= self.without_values:
            return ""
        if not self.lists_known:
            return ": it is only a listing"
        return "" if self.asked else ": it has shapes and dtypes alone"

    @cached_property
    def placeholders(self) -> Mapping[str, Asked]:
        """Questions of places where the target has `...`, by the text of the key."""
        return {text: asked for text, asked in self.asked.items() if asked.is_placeholder}

    def is_placeholder(self, entry: Entry) -> bool:
        """Whether an entry is a `...` of the target, which stays as it is."""
        text = entry.leaf.key.text
        return text in self.placeholders and entry.leaf is self.leaves[text]

    def has_value(self, leaf: Leaf) -> bool:
        """Whether the target can give this leaf."""
        return leaf.key.text not in self.without_values

    def own_value(self, leaf: Leaf) -> Entry:
        """The entry with the target's own value of a leaf."""
        stored = self.disguised.get(leaf.key.text)
        value = Read(TARGET, leaf) if stored is None else bfloat16_of(Read(TARGET, stored))
        return Entry(leaf.key, leaf, value)


def as_bfloat16(target: Target) -> Target:
    """The target with its arrays of uint16 as bfloat16 of the same bits."""
    stored = {text: leaf for text, leaf in target.leaves.items() if is_uint16(leaf)}
    read = {text: replace(leaf, spec=bfloat16_of(Read(TARGET, leaf)).spec) for text, leaf in stored.items()}
    return replace(target, leaves={**target.leaves, **read}, disguised=stored)


def listed_target(leaves: Mapping[str, Leaf], policy: TargetPolicy) -> Target:
    """The target of a mere listing of keys, shapes and dtypes."""
    return Target(leaves, policy, leaves.keys(), lists_known=False)


def target_leaves(target: Target | None) -> SourceLeaves | Unavailable:
    """Value of the name `target` in expressions: `target['a/b']`."""
    if target is None:
        return Unavailable("no target is given", hint="Give one: `target=PATH`.")
    own = {text: target.own_value(leaf) for text, leaf in target.leaves.items()}
    return SourceLeaves(
        TARGET, own, target.without_values, f"the target has no value for `{{}}`{target.lack}"
    )


def fitted(
    run: PassRun,
    target: Target,
    given: Mapping[str, Entry],
    matched: Mapping[str, Entry],
    kept: Iterable[Entry],
    unclaimed: Mapping[str, Tree],
    is_awaited: Callable[[str], bool] = lambda text: False,
) -> Tree:
    """Choose an entry for each leaf of the target; what is not chosen is dropped.

    `given`: what `fill` rules give. `matched`: what `match` and `add` rules make. `kept`: leaves that no rule
    claims, under their own keys. `unclaimed`: all of these by source, for suggestions. `is_awaited`: whether
    a rule that failed may have been meant to give a key, which is then not told to be missing.
    """
    problems = run.problems
    surplus = {text: entry for text, entry in matched.items() if text not in target.leaves}
    problems.notices += [_surplus(entry, target) for entry in surplus.values()]
    own = {entry.key.text: entry for entry in kept}
    tree: dict[str, Entry] = {}
    missing: list[str] = []
    misfits: list[tuple[Entry, Notice]] = []
    left_out: list[Entry] = []
    fallback = target.policy.prefer == "target" or target.policy.missing == "fallback"
    for text, leaf in target.leaves.items():
        if text in run.failed:
            continue  # no other leaf is to be blamed for not being what its value would have been
        if run.lists and not target.lists_known:
            leaf = replace(leaf, key=with_lists(leaf.key, run.lists))
        is_placeholder = text in target.placeholders
        takes_own = target.policy.prefer == "source" and not is_placeholder
        offered = given.get(text) or matched.get(text) or (own.get(text) if takes_own else None)
        if is_placeholder and (offered is None or target.is_placeholder(offered)):
            left_out.append(offered or own.get(text) or target.own_value(leaf))
            continue
        chosen = None if offered is None else _conformed(problems, target, leaf, offered, misfits)
        # An offer that does not fit is already a problem, or falls back because of `on_shape_mismatch`.
        falls_back = offered is not None or leaf.kind is LeafKind.EMPTY or fallback
        if chosen is None and not (falls_back and target.has_value(leaf)):
            # What does not fit is noted already, and so is the rule that gives nothing.
            missing += [text] if offered is None and not is_awaited(text) else []
            continue
        tree[text] = entry = chosen or target.own_value(leaf)
        mine = own.get(text, entry)
        if mine.leaf.kind is entry.leaf.kind is LeafKind.EMPTY and mine.leaf.empty == entry.leaf.empty:
            # The source's own empty node, where they are the same: then nothing changes.
            tree[text] = replace(entry, leaf=mine.leaf, value=mine.value)
    _disagree(problems, target, misfits)
    drops = [Drop(entry, deciding_rule(entry.effects), PLACEHOLDER) for entry in left_out]
    used = {id(entry.value) for entry in (*tree.values(), *left_out)}
    for entry in (*matched.values(), *own.values()):
        if id(entry.value) not in used:
            has = entry.key.text in target.leaves
            rule = deciding_rule(entry.effects) if has else None
            drops.append(Drop(entry, rule, ANOTHER_TAKEN if has else NOT_IN_TARGET))
    if missing:
        _note_missing(problems, target, missing, surplus, unclaimed)
    if target.policy.extra == "error":
        _note_extra(run, tree, drops)
    run.drops += drops
    return tree


def slashed(text: str) -> str:
    """The key with slashes in place of dots between levels."""
    return DOT.sub(SEPARATOR, text)


def _surplus(entry: Entry, target: Target) -> Notice:
    """The warning about a leaf that a rule makes and the target does not have."""
    meant = slashed(entry.key.text)
    has = meant != entry.key.text and meant in target.leaves
    after = f", which the target does not have{'; it has ' if has else ''}"
    return Notice(f"{naming_rule(entry.effects)} makes ", entry.key.printed, after, meant if has else None)


def _note_missing(
    problems: Problems, target: Target, missing: Sequence[str], surplus: Tree, unclaimed: Mapping[str, Tree]
) -> None:
    """Note the leaves that nothing gives, with rules that give them where the source has them elsewhere."""
    leaves = "target leaf has" if len(missing) == 1 else "target leaves have"
    listed = f"{len(missing):,} {leaves} no source: {few_keys(missing, MANY)}"
    makes = sentences(_surplus(entry, target) for entry in surplus.values())
    others = "".join(f"; {sentence}" for sentence in makes[:FEW])
    rules = suggestions(missing, target.leaves, unclaimed)
    left = [text for text in missing if not any(text in rule.given for rule in rules)]
    alike = {text: list(look_alike(text, target.leaves, [*unclaimed.values(), surplus])) for text in left}
    valued = [text for text in left if target.has_value(target.leaves[text])]
    hints = list(move_hints(rules, len(missing), several=len(unclaimed) > 1))
    if left:
        them = "the others" if rules else "them" if len(left) > 1 else "it"
        near = dict.fromkeys(key for keys in alike.values() for key in keys)
        placed = {(rule.name, origin) for rule in rules for origin in rule.given.values()}
        offered = [(name, text) for name, tree in unclaimed.items() for text in tree]
        has = near or [one[1] for one in offered if one[1] not in target.leaves and one not in placed]
        more = f"; the source has {few_keys(has)}" if has else ""
        new = [text for text in valued if not alike[text]]
        if not valued:
            others += f"; the target has no values for them{target.lack}"
            more = ", or give a target that has values"
        elif new and 2 * len(new) <= len(target.leaves):  # more would make a checkpoint of random numbers
            pattern = pattern_of(new, target.leaves.keys() - set(new)).replace("'", "''")
            rule = f"{{fill: '{pattern}', fallback: true}}"
            more += f"; for what is new in the model, as {few_keys(new)} may be, `{rule}` takes the target's"
        hints.append(f"Add rules for {them}{more}.")
    problems.general(Problem(listed + others, None, " ".join(hints), Code.TARGET_MISSING))


def _note_extra(run: PassRun, tree: Tree, drops: Sequence[Drop]) -> None:
    """Note, under `extra: error`, the leaves that feed no output because the target lacks their keys."""
    spared, used = run.looked_up(), {id(r) for e in tree.values() for r in reads(e.value)}
    gone = (drop.entry for drop in drops if drop.why == NOT_IN_TARGET and id(drop.entry) not in spared)
    extra = [entry.key.text for entry in gone if used.isdisjoint(map(id, reads(entry.value)))]
    if extra:
        leaves = "1 leaf is" if len(extra) == 1 else f"{len(extra):,} leaves are"
        message = f"`extra: error`, and {leaves} not in the target: {few_keys(extra, MANY)}"
        hint = "Rename them, or drop them on purpose with a rule: `drop: true`."
        place = run.problems.loaded.place(("target", "extra"))
        run.problems.general(Problem(message, place, hint, Code.TARGET_EXTRA))


def _conformed(
    problems: Problems, target: Target, leaf: Leaf, entry: Entry, misfits: list[tuple[Entry, Notice]]
) -> Entry | None:
    """The entry with the target's key and, if the recipe says so, its dtype; None if it does not fit.

    One of another kind or shape is added to `misfits`.
    """
    if entry.leaf.kind is LeafKind.OBJECT:
        return None  # the pass has refused it
    entry = replace(entry, key=leaf.key)
    misfit = _misfit(target, leaf, entry)
    if misfit is not None:
        misfits.append((entry, misfit))
        return None
    if leaf.kind not in HAS_ARRAY or entry.leaf.kind not in HAS_ARRAY:
        return entry
    wanted = _dtype_for(target, leaf, entry)
    if wanted == entry.value.spec.dtype:
        return entry
    value = Apply(Cast(wanted), (entry.value,))
    try:
        spec, lost = value.spec, lost_by_cast(entry.value.spec.dtype, wanted)
    except FunctionError as error:
        problem = error.problems[0]
        problems.about(entry, Notice("", leaf.key.printed, f": {problem.message}"), None, problem.code)
        return None
    if lost is not None:
        name, given = wanted.name, entry.value.spec.dtype.name
        after = f" is {given}, the target has {name} there: a cast would lose {lost}"
        quantize = f", or quantize it: `quantize(x, '{name}', axis)` gives values and scale"
        hint = f"Keep its dtype: `target: {{dtype: source}}`{quantize if name in QUANTIZED else ''}. "
        hint += f"A rule with `value: cast(x, '{name}')` casts it all the same."
        problems.about(entry, Notice("", leaf.key.printed, after), hint, Code.TARGET_MISFIT)
        return None
    return replace(entry, value=value, leaf=replace(entry.leaf, spec=spec, manifest=None))


def _dtype_for(target: Target, leaf: Leaf, entry: Entry) -> DType:
    """Dtype that a value gets at a leaf of the target."""
    own, is_number = entry.value.spec.dtype, entry.leaf.kind is LeafKind.SCALAR
    if target.policy.dtype != "target":
        return target.dtype_of_number(leaf, own) if is_number else own
    if leaf.spec is not None:
        return leaf.spec.dtype
    asked = target.asked.get(leaf.key.text)
    return own if asked is None or asked.dtype is None else asked.dtype


def _misfit(target: Target, leaf: Leaf, entry: Entry) -> Notice | None:
    """How a value differs from the target's leaf: in kind (array and scalar count as one), or in shape."""
    asked, given = target.asked.get(leaf.key.text), entry.leaf.kind
    both = leaf.kind is given or (leaf.kind in HAS_ARRAY and given in HAS_ARRAY)
    if not (both if asked is None else given in asked.kinds):
        kinds = f" is {KINDS[given]}, the target has {KINDS[leaf.kind]} there"
        return Notice("", leaf.key.text, kinds)
    if leaf.spec is None or leaf.spec.shape == entry.value.spec.shape:
        return None
    shapes = f" has shape {list(entry.value.spec.shape)}, the target has {list(leaf.spec.shape)}"
    return Notice("", leaf.key.printed, shapes)


def _disagree(problems: Problems, target: Target, misfits: Sequence[tuple[Entry, Notice]]) -> None:
    """Note values that do not fit the target: warnings if its leaves fall back, else problems."""
    are_few = len(misfits) == 1 or 2 * len(misfits) <= len(target.leaves)
    for entry, misfit in misfits:
        has_value = target.has_value(target.leaves[entry.key.text])
        if target.policy.on_shape_mismatch == "fallback" and has_value:
            problems.warn(replace(misfit, after=f"{misfit.after}: the target's value is used"))
            continue
        if not has_value:
            misfit = replace(misfit, after=f"{misfit.after}; the target has no value for it{target.lack}")
        hint = "Change the value with a rule"
        if has_value and are_few:
            pattern = regex.escape(entry.key.text, special_only=True).replace("'", "''")
            hint += f", or take the target's own: `{{fill: '{pattern}', fallback: true}}`"
        hint += ", or ask for another kind in the target" if entry.key.text in target.asked else ""
        problems.about(entry, misfit, f"{hint}.", Code.TARGET_MISFIT)
