"""Containers that keys imply: dicts, and lists whose indices count from 0."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.text import shown


def index_flaws(key: Key) -> Iterator[str]:
    """A sentence for each component that should index a list and is not a number."""
    for part, in_sequence in zip(key.names, key.sequences, strict=True):
        if in_sequence and not _is_index(part):
            index = f"the list index `{shown(part)}`"
            yield f"`{shown(key.printed)}` has {index}, which is not a decimal number; rename it."


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")


def container_flaws(keys: Sequence[Key]) -> Iterator[str]:
    """A sentence for each container that is neither a dict nor a list without gaps."""
    dicts, lists = _containers(keys)
    members = _members(keys, lists)
    for names in lists:
        if names in dicts:
            yield f"`{shown('/'.join(names))}` would be both a list and a dict; rename its children."
        else:
            yield from _gaps(names, members[names])


Paths = dict[tuple[str, ...], None]
"""A set of paths that keeps its order."""


def _containers(keys: Sequence[Key]) -> tuple[Paths, Paths]:
    """The paths of all containers that have a child by name (dicts), and by index (lists).

    Collected from the leaves to the root, so that each container is visited once.
    """
    dicts: Paths = {}
    level = dict.fromkeys([key.names[:-1] for key in keys if key.names and True not in key.sequences])
    while level:
        dicts |= level
        level = dict.fromkeys([names[:-1] for names in level if names])
    lists: Paths = {}
    mixed = {(key.names[:-1], key.sequences): None for key in keys if True in key.sequences}
    while mixed:
        for names, sequences in mixed:
            (lists if sequences[-1] else dicts)[names] = None
        mixed = dict.fromkeys([(names[:-1], sequences[:-1]) for names, sequences in mixed if names])
    return dicts, lists


def _members(keys: Sequence[Key], lists: Paths) -> Mapping[tuple[str, ...], set[str]]:
    """The indices of each list."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for key in keys if lists else ():
        for i, name in enumerate(key.names):
            if key.sequences[i]:
                found[key.names[:i]].add(name)
    return found


def _gaps(parent: tuple[str, ...], indices: set[str]) -> Iterator[str]:
    missing = [str(i) for i in range(len(indices)) if str(i) not in indices]
    if missing and all(map(_is_index, indices)):
        yield (
            f"The list `{shown('/'.join(parent))}` has {len(indices)} elements but none at index "
            f"{missing[0]}; renumber them, or keep the ones that are missing."
        )
