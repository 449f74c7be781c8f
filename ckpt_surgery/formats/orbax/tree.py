"""The leaves of an Orbax item as its files describe them: the tree, shardings, PRNG keys, strings.

Older versions of Orbax have the tree in a MessagePack file beside the arrays, the structure file. Up to 0.3
it alone records the tree; 0.4 and 0.5 wrote it along with `_METADATA`. A leaf is the string
`PLACEHOLDER://NAME` where it is the array NAME of the store. Otherwise it is the value itself: small arrays,
scalars and strings that were aggregated, as Flax requests with Orbax as its backend.

Source of the formats: orbax-checkpoint 0.2.7 to 0.12.8, observed.
"""

import functools
import os
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any

import msgpack
import msgspec

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.frozen import frozen
from ckpt_surgery.core.keys import Key, nested
from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.shared.msgpack import tree as msgpack_tree
from ckpt_surgery.formats.shared.msgpack.source import PLACEHOLDER, flattened
from ckpt_surgery.formats.shared.msgpack.tree import Node
from ckpt_surgery.formats.shared.orbax_layout import TREE_METADATA
from ckpt_surgery.storage.failures import damaged
from ckpt_surgery.storage.json_files import malformed, read_form, read_json
from ckpt_surgery.storage.listing import FileStat, exists
from ckpt_surgery.storage.reading import opened

STRUCTURE, SHARDINGS, STRINGS = "checkpoint", "_sharding", "_strings.json"
FILES = (STRUCTURE, SHARDINGS, STRINGS)
ARRAY_METADATA = "array_metadatas/process_"
EMPTY_KINDS = ("None", "Dict", "List", "Tuple", "NamedTuple")


@frozen()
class TreeLeaf:
    """One leaf of the tree."""

    key: Key
    value_type: str
    """The type in `_METADATA`; without that file, the kind of an empty node, or nothing."""
    skipped: bool
    """Whether it is not in the store: an empty node, or a value in the structure file."""
    has_array_metadata: bool
    """Whether the writer also recorded it in `array_metadatas`."""
    name: str
    """Name of the array in the store, and of strings and shardings in their files."""

    is_array: bool
    """Whether it is an array in the store."""

    @property
    def is_string(self) -> bool:
        """Whether its value is in the file of strings."""
        return self.value_type == "string" and not self.skipped

    @property
    def is_aggregated(self) -> bool:
        """Whether its value is in the structure file."""
        return self.skipped and self.value_type not in EMPTY_KINDS


def array_name(key: Key) -> str:
    """The name of a leaf in the store: its components joined with `.`."""
    return ".".join(key.names)


@dataclass(frozen=True)
class Structure:
    """A structure file, read except for the elements of its arrays."""

    path: str
    leaves: Sequence[tuple[Key, Node]]
    """The leaves of its tree, in their order; empty containers are leaves."""
    stat: FileStat
    """Size and time of the file when it was read."""

    def node(self, key: Key) -> Node:
        """The value of a leaf that is in the file."""
        there = key.names in self._nodes
        if not there or _array_of(self._nodes[key.names]) is not None:
            has = "has a placeholder there" if there else "does not have it"
            raise damaged(f"its value should be in {shown(self.path)}, which {has}")
        return self._nodes[key.names]

    @functools.cached_property
    def _nodes(self) -> Mapping[tuple[str, ...], Node]:
        return {key.names: node for key, node in self.leaves}


@dataclass(frozen=True)
class Tree:
    """The tree of `_METADATA`, and the structure file where that is needed."""

    file: str
    """Name of the file that the tree was read from."""
    entries: tuple[TreeLeaf, ...]
    ocdbt: bool | None
    zarr: int
    filled: bool
    """Whether chunks with nothing but the fill value were left out when arrays were stored."""
    metadata: Mapping[str, Any]
    structure: Structure | None = None
    """The structure file, where it holds aggregated values."""


class _KeyPart(msgspec.Struct, gc=False):
    """A component of a key, in JSON."""

    key: str
    key_type: int


class _About(msgspec.Struct, gc=False):
    """Metadata of the value of a leaf, in JSON."""

    value_type: str
    skip_deserialize: bool
    write_shape: Any = msgspec.UNSET


class _Leaf(msgspec.Struct, gc=False):
    """A leaf, in JSON."""

    key_metadata: tuple[_KeyPart, ...]
    value_metadata: _About


class _Document(msgspec.Struct):
    """The members of `_METADATA` that are needed."""

    tree_metadata: dict[str, _Leaf]
    use_ocdbt: bool | None = None
    use_zarr3: bool | None = None
    store_array_data_equal_to_fill_value: bool | None = None
    custom_metadata: Any = None


def read_tree(directory: str) -> Tree:
    """Read the tree of an item. Raises SourceError where it is missing or malformed, or leaves collide."""
    path = os.path.join(directory, TREE_METADATA)
    tree = _tree_of_metadata(directory, path) if exists(path) else _tree_of_structure(directory)
    _check_distinct(tree.entries)
    return tree


def _tree_of_metadata(directory: str, path: str) -> Tree:
    document = read_form(path, _Document)
    try:
        entries = tuple([_entry(leaf) for leaf in document.tree_metadata.values()])
    except ValueError as error:
        raise malformed(path, error) from error
    aggregated = next((entry for entry in entries if entry.is_aggregated), None)
    structure = None if aggregated is None else read_structure(directory)
    if aggregated is not None and structure is None:
        what = f"`{shown(aggregated.key.printed)}`: its value is in the file {STRUCTURE}"
        raise damaged(f"{what}, which {shown(directory)} does not have")
    custom = document.custom_metadata
    return Tree(
        TREE_METADATA,
        entries,
        document.use_ocdbt,
        3 if document.use_zarr3 else 2,
        # Before 0.10 Orbax stored such chunks in zarr 2 only, which had no fill value then.
        bool(document.use_zarr3) and not document.store_array_data_equal_to_fill_value,
        custom if isinstance(custom, dict) else {},
        structure,
    )


def read_structure(directory: str) -> Structure | None:
    """The structure file of an item; None where it has none."""
    path = os.path.join(directory, STRUCTURE)
    if not exists(path):
        return None
    with opened(path) as file:
        return Structure(path, tuple(flattened(msgpack_tree.read_tree(file))), file.stat)


def _tree_of_structure(directory: str) -> Tree:
    """The tree of an item from before `_METADATA`, in a database; later versions have other files, too."""
    structure = read_structure(directory)
    if exists(os.path.join(directory, os.path.dirname(ARRAY_METADATA))):
        raise damaged(f"{shown(directory)} has no {TREE_METADATA}")
    if structure is None:
        raise SourceError(
            f"{shown(directory)} is an OCDBT store without the {TREE_METADATA} that Orbax writes",
            hint="If it is part of a checkpoint, such as `ocdbt.process_0`, name the directory above it; if "
            "it is a copy of one, it is incomplete. If TensorStore alone wrote it, read it with TensorStore "
            "and give `ckpt_surgery.apply` the tree of arrays.",
        )
    kinds, entries = {dict: "Dict", list: "List", type(None): "None"}, []
    for key, node in structure.leaves:
        name = _array_of(node)
        if name is None:
            kind = kinds.get(type(node), "")
            entries.append(TreeLeaf(key, kind, True, False, array_name(key), False))
        else:
            entries.append(TreeLeaf(key, "np.ndarray", False, False, name, True))
    return Tree(STRUCTURE, tuple(entries), True, 2, False, {}, structure)


def _array_of(node: Node) -> str | None:
    """The name of the stored array that a node stands for; None for other nodes."""
    if isinstance(node, str) and node.startswith(PLACEHOLDER):
        return node.removeprefix(PLACEHOLDER)
    return None


def _entry(leaf: _Leaf) -> TreeLeaf:
    parts, about = leaf.key_metadata, leaf.value_metadata
    names = tuple([intern(part.key) for part in parts])
    key = Key(names, _sequences(tuple([part.key_type for part in parts])))
    kind, skipped = intern(about.value_type), about.skip_deserialize
    is_array = kind != "string" and not skipped
    return TreeLeaf(key, kind, skipped, about.write_shape is not msgspec.UNSET, array_name(key), is_array)


@functools.lru_cache(maxsize=1024)
def _sequences(kinds: tuple[int, ...]) -> tuple[bool, ...]:
    """For each component, whether it is a list index."""
    if not set(kinds) <= {1, 2}:
        raise ValueError(f"{kinds} are not kinds of keys")
    return tuple([kind == 1 for kind in kinds])


def _check_distinct(entries: Sequence[TreeLeaf]) -> None:
    """Raise SourceError where keys are the same as text, or arrays have the same name in the store."""
    hint = "Save the checkpoint again with one of the two renamed."
    if alike := _alike(entries, [entry.key.text for entry in entries]):
        names = " and ".join(shown(repr(entry.key.names)) for entry in alike)
        raise SourceError(f"Two leaves are both called `{shown(alike[0].key.printed)}`: {names}", hint=hint)
    arrays = [entry for entry in entries if entry.is_array]
    if alike := _alike(arrays, [array_prefix(entry.name) for entry in arrays]):
        keys = " and ".join(f"`{shown(entry.key.printed)}`" for entry in alike)
        what = f"{keys} share the stored array `{shown(alike[1].name)}`: Orbax kept only one of them"
        raise SourceError(what, hint=hint)


def _alike(entries: Sequence[TreeLeaf], names: Sequence[str]) -> tuple[TreeLeaf, TreeLeaf] | None:
    """Two entries with the same name; None where all names differ."""
    if len(set(names)) == len(names):
        return None
    known: dict[str, TreeLeaf] = {}
    pairs = ((known.setdefault(name, entry), entry) for entry, name in zip(entries, names, strict=True))
    return next((one, other) for one, other in pairs if one is not other)


def array_prefix(name: str) -> str:
    """TensorStore's path of an array: it adds a slash unless there is one."""
    return name if not name or name.endswith("/") else f"{name}/"


def read_shardings(directory: str) -> dict[str, str]:
    """Sharding texts by array name; empty where the checkpoint has none."""
    path = os.path.join(directory, SHARDINGS)
    if not exists(path):
        return {}
    shardings = {}
    texts: dict[str, str] = {}
    for encoded, text in read_form(path, dict[str, str]).items():
        try:
            name = urlsafe_b64decode(encoded).decode()
        except ValueError as error:
            raise damaged(f"{shown(path)} has the name `{shown(encoded)}`, which is not base64") from error
        shardings[name] = texts.setdefault(text, text)  # most are alike
    return shardings


def read_random_keys(directory: str, files: Iterable[str]) -> dict[str, str | None]:
    """Implementations of typed PRNG keys by array name, None for other arrays; of all processes."""
    implementations: dict[str, str | None] = {}
    for file in sorted(files):
        if not file.startswith(ARRAY_METADATA):
            continue
        path = os.path.join(directory, file)
        try:
            for element in read_json(path)["array_metadatas"]:
                about = element["array_metadata"]
                extra = about.get("ext_metadata") or {}
                implementations[about["param_name"]] = extra.get("random_key_impl")
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(f"{shown(path)} is malformed") from error
    return implementations


def read_strings(directory: str, entries: Iterable[TreeLeaf]) -> dict[str, str]:
    """String leaves by array name."""
    names = [entry.name for entry in entries if not entry.is_array and entry.is_string]
    document = read_json(os.path.join(directory, STRINGS)) if names else {}
    strings = {}
    for name in names:
        value: Any = document
        for token in name.split("/"):  # Orbax uses names as JSON pointers (RFC 6901)
            token = token.replace("~1", "/").replace("~0", "~")
            value = value.get(token) if isinstance(value, dict) else None
        if not isinstance(value, str):
            raise damaged(f"`{shown(name)}` is a string that {STRINGS} does not have")
        strings[name] = value
    return strings


def structure_bytes(leaves: Iterable[Leaf]) -> bytes:
    """A structure file, by which older versions find the leaves: placeholders of arrays, and empty nodes."""
    empty: Mapping[str, Any] = {"None": None, "Dict": {}}  # those of the other kinds are lists
    values = (
        (leaf.key, empty.get(leaf.empty, []) if leaf.empty else PLACEHOLDER + array_name(leaf.key))
        for leaf in leaves
    )
    return msgpack.packb(nested(values))  # type: ignore[no-any-return]
