"""Dicts that are flat: their keys are whole paths, as `flax.traverse_util.flatten_dict` makes them.

A dict, at any depth, is flat where a key has a slash in it and no value is a container. Leaves that rules
rename or add within a flat dict get keys like its others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.keys import SEPARATOR, Key
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.language.models import OutputPolicy
from ckpt_surgery.planner.entries import Decisions

Path = tuple[str, ...]


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
