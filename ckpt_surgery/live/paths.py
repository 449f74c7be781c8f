"""Paths of pytrees as keys of checkpoints: the names under which Orbax saves leaves.

Found by saving every kind of container with orbax-checkpoint 0.12.8; tests/live/test_tree.py repeats it.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_surgery.core.keys import Key


def key_of(path: Sequence[Any]) -> Key:
    """The key under which Orbax saves a leaf with this path of `jax.tree_util`.

    Lists, tuples and nodes that were registered without names are sequences; NamedTuples, dataclasses and
    modules are dicts of their attributes. Numbers as keys of dicts, which NNX has for its lists, stay keys
    of dicts.
    """
    kinds = _kinds()
    names, sequences = [], []
    for entry in path:
        attribute, is_index = kinds.get(type(entry), (None, False))
        names.append(str(entry if attribute is None else getattr(entry, attribute)))
        sequences.append(is_index)
    return Key(tuple(names), tuple(sequences))


@functools.cache
def _kinds() -> Mapping[type, tuple[str, bool]]:
    """By the type of an entry: the attribute with its name, and whether it indexes a sequence."""
    from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

    return {
        DictKey: ("key", False),
        GetAttrKey: ("name", False),
        SequenceKey: ("idx", True),
        FlattenedIndexKey: ("key", True),
    }
