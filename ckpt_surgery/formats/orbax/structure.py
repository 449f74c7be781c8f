"""The structure file of older versions of Orbax: the tree in MessagePack, beside an item's arrays.

Up to 0.3 it alone records the tree; 0.4 and 0.5 wrote it along with `_METADATA`. A leaf is the string
`PLACEHOLDER://NAME` where it is the array NAME of the store. Otherwise it is the value itself: small arrays,
scalars and strings that were aggregated, as Flax requests with Orbax as its backend.

Source of the format: orbax-checkpoint 0.2.7 to 0.5.9, observed.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgpack

from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.nesting import nested
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Reader
from ckpt_surgery.formats.shared.msgpack.nodes import Node
from ckpt_surgery.formats.shared.msgpack.source import PLACEHOLDER, FoundNode, flattened, leaf_of, readers_of
from ckpt_surgery.formats.shared.msgpack.tree import read_tree
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.listing import FileStat, exists
from ckpt_surgery.storage.reading import opened

STRUCTURE = "checkpoint"

# --- reading ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Structure:
    """A structure file, read except for the elements of its arrays."""

    path: str
    leaves: Sequence[tuple[Key, Node]]
    """The leaves of its tree, in their order; empty containers are leaves."""
    stat: FileStat
    """Size and time of the file when it was read."""

    def leaf(self, key: Key) -> Leaf:
        """The leaf whose value is in the file."""
        found = self._found(key)
        if array_of(found.node) is not None:
            raise damaged(f"its value should be in {shown(self.path)}, which has a placeholder there")
        return leaf_of(found)

    def readers(self, keys: Iterable[Key]) -> Mapping[str, Reader]:
        """Readers of the arrays stored in pieces, among the leaves of these keys."""
        return readers_of(map(self._found, keys))

    def _found(self, key: Key) -> FoundNode:
        if key.names not in self._nodes:
            raise damaged(f"its value should be in {shown(self.path)}, which does not have it")
        return FoundNode(key, self._nodes[key.names], self.path)

    @cached_property
    def _nodes(self) -> Mapping[tuple[str, ...], Node]:
        return {key.names: node for key, node in self.leaves}


def array_of(node: Node) -> str | None:
    """The name of the stored array that a node stands for; None for other nodes."""
    if isinstance(node, str) and node.startswith(PLACEHOLDER):
        return node.removeprefix(PLACEHOLDER)
    return None


def read_structure(directory: str) -> Structure | None:
    """The structure file of an item; None where it has none."""
    path = os.path.join(directory, STRUCTURE)
    if not exists(path):
        return None
    with opened(path) as file:
        return Structure(path, tuple(flattened(read_tree(file))), file.stat)


# --- writing ----------------------------------------------------------------------------------------------


_EMPTY: Mapping[str | None, Any] = {"None": None, "Dict": {}}
"""Empty nodes by their kinds; those of the others are lists."""


def structure_bytes(leaves: Iterable[tuple[Leaf, str]]) -> bytes:
    """A structure file for leaves with their names in the store: placeholders, and empty nodes as they are.

    Older versions find the leaves by it, before they read `_METADATA`.
    """
    values = (
        (leaf.key, _EMPTY.get(leaf.empty, []) if leaf.kind is LeafKind.EMPTY else PLACEHOLDER + stored)
        for leaf, stored in leaves
    )
    return msgpack.packb(nested(values))  # type: ignore[no-any-return]
