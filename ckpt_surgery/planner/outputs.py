"""Forms and checks outputs: flat dicts, empty nodes, keys that are both leaf and container, shardings.

A dict is flat where a key has a slash in it and no value is a container, as `flax.traverse_util.flatten_dict`
makes it. Leaves that rules rename or add within it get keys like its others.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import PlanError, Problem
from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.core.problem_codes import Code
from ckpt_surgery.core.shardings import misfit, named_sharding, sharding_text
from ckpt_surgery.core.text import number_of
from ckpt_surgery.functions.arrays import Node, Read, reads
from ckpt_surgery.language.expressions.regexes import MatchBudget
from ckpt_surgery.language.loading import LoadedRecipe
from ckpt_surgery.language.schema.fields import OutputPolicy, Recipe, ShardingPolicy
from ckpt_surgery.planner.entries import Decisions, Drop
from ckpt_surgery.planner.problems import problems_of
from ckpt_surgery.planner.target import Target
from ckpt_surgery.planner.transfers import ARRAYS, Destination

Path = tuple[str, ...]
WHERE = ("output", "sharding")
NONE = "none"
"""Value of `output.sharding` by which no sharding is recorded."""
Resharded = tuple[Sequence[Leaf], Sequence[Notice]]
"""Leaves with the shardings that are to be recorded, and warnings about those."""


def without_empty(decisions: Decisions, destination: Destination) -> Decisions:
    """The decisions without empty nodes (None, empty containers), if the destination cannot store those."""
    if destination.holds_empty:
        return decisions
    empty = [entry for entry in decisions.outputs if entry.leaf.kind is LeafKind.EMPTY]
    if not empty:
        return decisions
    format, named = destination.format, few_keys(entry.key.printed for entry in empty)
    left_out = f"{format} cannot store {number_of(len(empty), 'empty node')}, left out: {named}"
    return replace(
        decisions,
        outputs=tuple(entry for entry in decisions.outputs if entry.leaf.kind is not LeafKind.EMPTY),
        drops=(*decisions.drops, *(Drop(entry, None, f"{format} holds no empty nodes") for entry in empty)),
        notices=(*decisions.notices, Notice(left_out)),
    )


def leaves_that_contain(keys: Sequence[str]) -> list[tuple[int, int]]:
    """Indices of keys that are leaf and container, `a` beside `a/b`, and of the first key inside each."""
    both = set(keys) & _containers(keys)
    if not both:
        return []
    members: dict[str, int] = {}
    for number, key in enumerate(keys):
        for container in _containers([key]) & both:
            members.setdefault(container, number)
    return [(number, members[key]) for number, key in enumerate(keys) if key in both]


def _containers(keys: Iterable[str]) -> set[str]:
    """The keys of all containers around leaves."""
    containers: set[str] = set()  # from the leaves to the root, so that each container is looked at once
    level = {key.rpartition(SEPARATOR)[0] for key in keys if SEPARATOR in key}
    while level:
        containers |= level
        level = {key.rpartition(SEPARATOR)[0] for key in level if SEPARATOR in key}
    return containers


def with_dicts(decisions: Decisions, leaves: Mapping[str, Leaf], output: OutputPolicy | None) -> Decisions:
    """Put outputs in flat or nested dicts as the recipe says, by default as the source's `leaves` are."""
    dicts = "keep" if output is None else output.dicts
    flat = flat_dicts([leaf.key for leaf in leaves.values()]) if dicts == "keep" else frozenset([()])
    if not flat:
        return decisions
    change = _nested if dicts == "nested" else partial(_flattened, flat=flat)
    return replace(decisions, outputs=tuple(replace(e, key=change(e.key)) for e in decisions.outputs))


def flat_dicts(keys: Collection[Key]) -> frozenset[Path]:
    """The containers that are flat dicts."""
    named = (key.names for key in keys if key.names and not key.sequences[-1])
    slashed = {names[:-1] for names in named if SEPARATOR in names[-1]}
    nested = {key.names[:i] for key in keys if slashed for i in range(len(key.names) - 1)}
    return frozenset(slashed - nested)


def _nested(key: Key) -> Key:
    """The key with each part between slashes as a component."""
    pairs = zip(key.names, key.sequences, strict=True)
    parts = [(part, is_index) for name, is_index in pairs for part in name.split(SEPARATOR)]
    return Key(tuple(part for part, _ in parts), tuple(is_index for _, is_index in parts))


def _flattened(key: Key, flat: Set[Path]) -> Key:
    """The key with what is below a flat dict as one component."""
    for i in range(len(key.names) - 1):
        if key.names[:i] in flat:
            joined = SEPARATOR.join(key.names[i:])
            return Key((*key.names[:i], joined), (*key.sequences[:i], False))
    return key


def resharded(
    leaves: Sequence[Leaf], loaded: LoadedRecipe, target: Target | None, destination: Destination
) -> Resharded:
    """The leaves, in the same order, with the shardings that the recipe's `output` asks for.

    They are unchanged if the destination holds no shardings, because its format does not store any, or
    because the result is arrays in memory.
    Raises PlanError if the recipe asks for the target's and there is no target, and if a spec does not fit.
    """
    policy = loaded.recipe.output and loaded.recipe.output.sharding
    if policy is None:
        return leaves, ()
    if is_unsharded(loaded.recipe):
        return [replace(leaf, sharding=None) for leaf in leaves], ()
    if not destination.encoder.details.holds_shardings:
        why = "the destination's format has no place for shardings"
        if destination.format == ARRAYS:
            why = "it is for checkpoints; arrays lie where `shardings=` and the target say"
        return leaves, [Notice(f"`output.sharding` is left out: {why}")]
    if isinstance(policy, ShardingPolicy):
        return _by_specs(leaves, policy, loaded)
    return _by_target(leaves, loaded, target)


def is_unsharded(recipe: Recipe) -> bool:
    """True if the recipe's `output` says that no sharding is recorded."""
    return recipe.output is not None and recipe.output.sharding == NONE


def without_shardings(recipe: Recipe) -> Recipe:
    """The recipe with an `output` that records no sharding."""
    output = recipe.output or OutputPolicy()
    return recipe.model_copy(update={"output": output.model_copy(update={"sharding": NONE})})


def _by_target(leaves: Sequence[Leaf], loaded: LoadedRecipe, target: Target | None) -> Resharded:
    if target is None:
        message, hint = "`sharding: target` needs a target", "Give one: `target=PATH`."
        raise PlanError(Problem(message, loaded.place(WHERE), hint, Code.NO_TARGET))
    theirs = {text: leaf.sharding for text, leaf in target.leaves.items() if leaf.sharding is not None}
    given = [
        replace(leaf, sharding=theirs.get(leaf.key.text, leaf.sharding)) if _can_have_one(leaf) else leaf
        for leaf in leaves
    ]
    return given, [] if theirs else [Notice("`sharding: target`: no leaf of the target has a sharding")]


def _by_specs(leaves: Sequence[Leaf], policy: ShardingPolicy, loaded: LoadedRecipe) -> Resharded:
    texts = {pattern: named_sharding(policy.mesh, spec) for pattern, spec in policy.specs.items()}
    unused = dict.fromkeys(policy.specs)
    done: list[Leaf] = []
    misfits: list[Notice] = []
    budget, hint = MatchBudget(), "The first pattern that matches wins: write one for these above it."
    for leaf in leaves:
        matching = (pattern for pattern in policy.specs if budget.fullmatch(pattern, leaf.key.text))
        pattern = next(matching, None) if _can_have_one(leaf) else None
        if pattern is None:
            done.append(leaf)
            continue
        assert leaf.spec is not None
        unused.pop(pattern, None)
        why = misfit(policy.mesh, policy.specs[pattern], leaf.spec.shape)
        if why is not None:
            about = loaded.place((*WHERE, "specs", pattern.pattern)), hint, Code.SHARDING
            misfits.append(Notice("", leaf.key.printed, f" {why}", about=about))
        done.append(replace(leaf, sharding=texts[pattern]))
    if misfits:
        raise PlanError(*problems_of(misfits))
    why = "matches no array that an earlier pattern does not"
    return done, [Notice(f"`output.sharding`: `{pattern.pattern}` {why}") for pattern in unused]


def _can_have_one(leaf: Leaf) -> bool:
    return leaf.kind is LeafKind.ARRAY and leaf.spec is not None


def lost_shardings(values: Sequence[tuple[Leaf, Node]]) -> Iterator[Notice]:
    """Warnings about arrays without a sharding that are made from leaves with one."""
    for leaf, value in values:
        if leaf.kind is LeafKind.ARRAY and leaf.sharding is None and not isinstance(value, Read):
            for old in [read.leaf for read in reads(value) if read.leaf.sharding is not None][:1]:
                shapes = [list(one.spec.shape) for one in (old, leaf) if one.spec is not None]
                lost = f"the sharding {sharding_text(old.sharding or '')} does not survive in "
                after = (
                    f": it was for {shapes[0]}, this is {shapes[-1]}; `output: {{sharding: …}}` gives another"
                )
                yield Notice(lost, leaf.key.printed, after)
