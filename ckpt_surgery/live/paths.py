"""Paths of pytrees as keys of checkpoints: the names under which Orbax saves leaves.

Observed by saving every kind of container with orbax-checkpoint 0.12.8; tests/live/test_tree.py repeats it.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.keys import SEPARATOR, Key


def key_of(path: Sequence[Any]) -> Key:
    """Key under which Orbax saves a leaf with this path of `jax.tree_util`.

    Lists, tuples and nodes that were registered without names are sequences; NamedTuples, dataclasses and
    modules are dicts of their attributes. Numbers as keys of dicts, which NNX has for its lists, stay keys
    of dicts. A tuple of texts as a key of a dict, which Orbax does not save, is its parts joined by slashes.
    """
    names, sequences = [], []
    for entry in path:
        name, is_index = _name_of(entry)
        names.append(SEPARATOR.join(name) if is_flat_key(name) else str(name))
        sequences.append(is_index)
    return Key(tuple(names), tuple(sequences))


def orbax_name(path: Sequence[Any]) -> str:
    """Name that `apply_transformations` of Orbax matches: parts joined by slashes, each as `str` gives it.

    It differs from the text of `key_of` for tuples as keys of dicts: `('a', 'b')`, not `a/b`.
    """
    return SEPARATOR.join(str(_name_of(entry)[0]) for entry in path)


def _name_of(entry: Any) -> tuple[Any, bool]:
    """Name of a path's entry in its container; True if that is an index of a sequence."""
    attribute, is_index = _kinds().get(type(entry), (None, False))
    return entry if attribute is None else getattr(entry, attribute), is_index


def is_flat_key(name: Any) -> bool:
    """True if the key of a dict is a whole path, as `flax.traverse_util.flatten_dict` makes them."""
    return isinstance(name, tuple) and bool(name) and all(isinstance(part, str) for part in name)


@functools.cache
def _kinds() -> Mapping[type, tuple[str, bool]]:
    """Attribute with an entry's name, and True for an index of a sequence, by the entry's type."""
    from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

    return {
        DictKey: ("key", False),
        GetAttrKey: ("name", False),
        SequenceKey: ("idx", True),
        FlattenedIndexKey: ("key", True),
    }
