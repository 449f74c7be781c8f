"""Checks outputs for any destination: keys that are both leaf and container, and empty nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ckpt_surgery.core.keys import SEPARATOR
from ckpt_surgery.core.leaves import LeafKind
from ckpt_surgery.core.notices import Notice, few_keys
from ckpt_surgery.planner.entries import Decisions, Drop, Entry
from ckpt_surgery.planner.transfers import Destination


def without_empty(decisions: Decisions, destination: Destination) -> Decisions:
    """The decisions without empty nodes (None, empty containers), if the destination cannot store those."""
    if destination.holds_empty:
        return decisions
    empty = [entry for entry in decisions.outputs if entry.leaf.kind is LeafKind.EMPTY]
    if not empty:
        return decisions
    why = f"{destination.format} holds no empty nodes"
    return replace(
        decisions,
        outputs=tuple(entry for entry in decisions.outputs if entry.leaf.kind is not LeafKind.EMPTY),
        drops=(*decisions.drops, *(Drop(entry, None, why) for entry in empty)),
        notices=(*decisions.notices, Notice(_left_out(empty, destination.format))),
    )


def _left_out(empty: Sequence[Entry], format: str) -> str:
    named = few_keys(entry.key.printed for entry in empty)
    if len(empty) == 1:
        return f"the empty node {named} cannot be stored in {format} and is left out"
    return f"{len(empty)} empty nodes cannot be stored in {format} and are left out: {named}"


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
