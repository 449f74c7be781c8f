"""Forms and checks outputs: flat dicts, empty nodes, keys that are both leaf and container.

A dict, at any depth, is flat where a key has a slash in it and no value is a container: its keys are whole
paths, as `flax.traverse_util.flatten_dict` makes them. Leaves that rules rename or add within a flat dict get
keys like its others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.language.schema.fields import OutputPolicy
from ckpt_surgery.planner.entries import Decisions, Drop
from ckpt_surgery.planner.transfers import Destination

Path = tuple[str, ...]


def without_empty(decisions: Decisions, destination: Destination) -> Decisions:
    """The decisions without empty nodes (None, empty containers), if the destination cannot store those."""
    if destination.holds_empty:
        return decisions
    empty = [entry for entry in decisions.outputs if entry.leaf.kind is LeafKind.EMPTY]
    if not empty:
        return decisions
    format, named = destination.format, few_keys(entry.key.printed for entry in empty)
    left_out = f"{len(empty)} empty nodes cannot be stored in {format} and are left out: {named}"
    if len(empty) == 1:
        left_out = f"the empty node {named} cannot be stored in {format} and is left out"
    return replace(
        decisions,
        outputs=tuple(entry for entry in decisions.outputs if entry.leaf.kind is not LeafKind.EMPTY),
        drops=(*decisions.drops, *(Drop(entry, None, f"{format} holds no empty nodes") for entry in empty)),
        notices=(*decisions.notices, Notice(left_out)),
    )


def leaves_that_contain(keys: Sequence[str]) -> list[tuple[int, int]]:
    """Keys that are both a leaf and a container, `a` beside `a/b`.

    For each of them its index in `keys`, and the index of the first key inside it.
    """
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
    found: set[str] = set()  # from the leaves to the root, so that each container is looked at once
    level = {key.rpartition(SEPARATOR)[0] for key in keys if SEPARATOR in key}
    while level:
        found |= level
        level = {key.rpartition(SEPARATOR)[0] for key in level if SEPARATOR in key}
    return found


def with_dicts(decisions: Decisions, leaves: Mapping[str, Leaf], output: OutputPolicy | None) -> Decisions:
    """The decisions with outputs in flat dicts or nested ones, as the recipe's `output` says.

    By default they stay in the flat dicts of the source, whose leaves are `leaves`.
    """
    dicts = "keep" if output is None else output.dicts
    flat = flat_dicts(leaf.key for leaf in leaves.values()) if dicts == "keep" else frozenset([()])
    if not flat:
        return decisions
    change = _nested if dicts == "nested" else partial(_flattened, flat=flat)
    return replace(decisions, outputs=tuple(replace(e, key=change(e.key)) for e in decisions.outputs))


def flat_dicts(keys: Iterable[Key]) -> frozenset[Path]:
    """The containers that are flat dicts."""
    children: dict[Path, set[str]] = defaultdict(set)
    nested: set[Path] = set()
    for key in keys:
        if key.names and not key.sequences[-1]:
            children[key.names[:-1]].add(key.names[-1])
        nested |= {key.names[:i] for i in range(len(key.names) - 1)}
    slashed = (path for path, names in children.items() if any(SEPARATOR in name for name in names))
    return frozenset(path for path in slashed if path not in nested)


def _nested(key: Key) -> Key:
    """The key with each part between slashes as a component."""
    pairs = [
        (part, is_index)
        for name, is_index in zip(key.names, key.sequences, strict=True)
        for part in name.split(SEPARATOR)
    ]
    return Key(tuple(part for part, _ in pairs), tuple(is_index for _, is_index in pairs))


def _flattened(key: Key, flat: Set[Path]) -> Key:
    """The key with what is below a flat dict as one component."""
    for i in range(len(key.names) - 1):
        if key.names[:i] in flat:
            joined = SEPARATOR.join(key.names[i:])
            return Key((*key.names[:i], joined), (*key.sequences[:i], False))
    return key
