"""Paths of pytrees as keys of checkpoints."""

from collections.abc import Sequence
from typing import Any

from ckpt_surgery.core.keys import Key


def key_of(path: Sequence[Any]) -> Key:
    """The key under which Orbax saves a leaf with this path of `jax.tree_util`."""
    entries = [_entry(entry) for entry in path]
    return Key(tuple(name for name, _ in entries), tuple(is_index for _, is_index in entries))


def _entry(entry: Any) -> tuple[str, bool]:
    """Name of a component, and whether it indexes a sequence."""
    from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

    match entry:
        case SequenceKey(idx=index):
            return str(index), True
        case FlattenedIndexKey(key=index):
            return str(index), True
        case DictKey(key=name):
            return str(name), False
        case GetAttrKey(name=name):
            return str(name), False
    return str(entry), False
