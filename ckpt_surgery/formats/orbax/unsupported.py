"""Leaves that an Orbax checkpoint cannot hold: one sentence per problem, before anything is written."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec
from ckpt_surgery.core.keys import Key, container_flaws, index_flaws
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.orbax.tree import EMPTY_KINDS, array_name, array_prefix
from ckpt_surgery.formats.shared.zarr.metadata import HELD
from ckpt_surgery.formats.unsupported import NOT_UNICODE, dtype_problem


def unsupported(leaves: Sequence[Leaf]) -> list[str]:
    """One sentence for each thing that Orbax would refuse, lose or mix up; empty: it can hold everything."""
    if not leaves:
        return ["No leaf is left, and Orbax cannot hold an empty tree; keep one at least."]
    keys = [leaf.key for leaf in leaves]
    one_by_one = [sentence for leaf in leaves for sentence in _of_leaf(leaf)]
    return [*one_by_one, *_of_names(leaves), *_of_strings(leaves), *container_flaws(keys)]


def _tick(key: Key) -> str:
    return f"`{shown(key.printed)}`"


def _of_leaf(leaf: Leaf) -> Sequence[str]:
    key, spec = leaf.key, leaf.spec
    if spec is not None and _is_plain(key) and not _complaints(spec, leaf.kind):
        return ()
    flaws = list(_of_key(key))
    if spec is not None:
        flaws += [f"{_tick(key)} {why}" for why in _complaints(spec, leaf.kind)]
    if leaf.kind is LeafKind.EMPTY and leaf.empty not in EMPTY_KINDS:
        flaws.append(f"{_tick(key)} is an empty node of the kind {leaf.empty}, unknown to Orbax; drop it.")
    return flaws


def _is_plain(key: Key) -> bool:
    """Whether a key is one of the many that cannot have any of the problems in `_of_key`."""
    text = key.text
    odd = ".." in text or text.startswith("/") or "" in key.names or True in key.sequences
    return text.isascii() and not odd


@functools.lru_cache(maxsize=4096)
def _complaints(spec: ArraySpec, kind: LeafKind) -> tuple[str, ...]:
    """The problems of arrays with this spec and kind, as predicates."""
    complaints = []
    if spec.size == 0:
        complaints.append(
            f"has the shape {list(spec.shape)}: Orbax refuses arrays without elements; drop it."
        )
    if spec.dtype.name not in HELD:
        complaints.append(dtype_problem(spec.dtype, "Orbax cannot store"))
    if kind is LeafKind.SCALAR and np.issubdtype(spec.dtype, np.complexfloating):
        complaints.append("is a complex scalar, which Orbax refuses; reshape it to an array of one element.")
    return tuple(complaints)


def _of_key(key: Key) -> Iterator[str]:
    if any(not name for name in key.names):
        yield f"{_tick(key)} has an empty component in {list(key.names)}; rename it."
    name = array_name(key)
    if name.startswith("/") or ".." in name.split("/"):
        yield f"{_tick(key)} would be stored as a path that leaves the checkpoint; rename it."
    if not is_unicode(name):
        yield f"{_tick(key)} {NOT_UNICODE}; rename it."
    yield from index_flaws(key)


def _of_names(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Keys that would share a stored array: its name joins components with `.`, so `a.b` and `a/b` do."""
    keys = [leaf.key for leaf in leaves if leaf.spec is not None]
    names = [array_prefix(array_name(key)) for key in keys]
    if len(set(names)) == len(names):
        return
    holders: dict[str, list[Key]] = defaultdict(list)
    for name, key in zip(names, keys, strict=True):
        holders[name].append(key)
    for name, several in holders.items():
        if len(several) > 1:
            listed = " and ".join(map(_tick, several))
            yield f"{listed} would share the stored array `{shown(name.rstrip('/'))}`; rename one of them."


def _of_strings(leaves: Iterable[Leaf]) -> Iterator[str]:
    """Strings that Orbax would not find by their JSON pointers, in which `/` nests and `~` escapes."""
    names = {array_name(leaf.key): leaf.key for leaf in leaves if leaf.kind is LeafKind.STRING}
    for name, key in names.items():
        if "~" in name:
            yield f"{_tick(key)} is a string with `~` in its key, which Orbax cannot look up; rename it."
        parts = name.split("/")
        for i in range(1, len(parts)):
            if (outer := names.get("/".join(parts[:i]))) is not None:
                yield f"The strings {_tick(outer)} and {_tick(key)} would overwrite each other; rename one."
