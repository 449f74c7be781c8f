"""Reading Flax checkpoints: documents of MessagePack, one or several, and streams of them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.manifests import Chunk, Manifest, raw_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.flax.detect import INDEX_SUFFIX, Location, locate
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.hf_index import check_shards, read_index, shard_names
from ckpt_surgery.formats.shared.msgpack_arrays import manifest_of, read_pieces
from ckpt_surgery.formats.shared.msgpack_nodes import ArrayAt, BytesAt, Node, Plain
from ckpt_surgery.formats.shared.msgpack_tree import MOST_VALUES, read_tree, read_value, starts_stream
from ckpt_surgery.formats.shared.raw_arrays import Opaque, stretch
from ckpt_surgery.formats.shared.zarr_arrays import ArraysSource
from ckpt_surgery.formats.shared.zarr_files import (
    Files,
    StoredArray,
    check_complete,
    file_array,
    file_manifest,
)
from ckpt_surgery.storage.listing import DAMAGED, FileStat, about, named
from ckpt_surgery.storage.reading import OpenFile, opened, stat_file

BYTES = np.dtype("S1")
"""Of which a byte string is listed as an array."""
PLACEHOLDER = "PLACEHOLDER://"
"""How strings begin that stand for arrays in Orbax before `_METADATA`."""
MULTIHOST = "//GDAPlaceholder:"
"""How strings begin that stand for arrays of several hosts: then the path of a zarr array."""
MULTIHOST_SUFFIX = "_gda"
"""Of the directory that those paths are relative to, beside the file."""


@dataclass(frozen=True)
class Found:
    """A leaf, or an empty container, where it was found."""

    key: Key
    node: Node
    file: str
    """Its path."""


@dataclass(frozen=True)
class Listed:
    """A leaf, and what reading it takes."""

    leaf: Leaf
    found: Found
    array: StoredArray | None = None
    """Where it is in zarr."""
    files: Mapping[str, FileStat] = field(default_factory=dict)
    """Of its own, by path."""


@dataclass(frozen=True)
class Contents:
    """All that is known of a checkpoint without reading arrays."""

    found: tuple[Found, ...]
    files: Mapping[str, FileStat]
    """By path."""
    metadata: Mapping[str, Any]


# --- trees ------------------------------------------------------------------------------------------------


def flattened(
    node: Node,
    names: tuple[str, ...] = (),
    lists: tuple[bool, ...] = (),
    is_leaf: Callable[[Node], bool] = lambda node: False,
) -> Iterator[tuple[Key, Node]]:
    """The leaves of a tree in its order; empty containers are leaves, and those that `is_leaf` says.

    `names`, `lists`: of the key so far.
    """
    if not isinstance(node, dict | list) or not node or is_leaf(node):
        yield Key(names, lists), node
        return
    members: Iterable[tuple[str | int, Node]] = node.items() if isinstance(node, dict) else enumerate(node)
    for name, member in members:
        yield from flattened(member, (*names, str(name)), (*lists, isinstance(node, list)), is_leaf)


def read_document(file: OpenFile) -> list[Found]:
    """The leaves of a file that is one document. Raises SourceError where it is damaged, or holds no tree."""
    tree = read_tree(file)
    if not isinstance(tree, dict | list):
        raise SourceError(
            f"{shown(file.path)} holds {_told(tree)} and no tree of named arrays",
            hint="Save it as `{'name': value}`.",
        )
    return [Found(key, node, file.path) for key, node in flattened(tree) if key.names]


def read_stream(file: OpenFile) -> list[Found]:
    """The leaves of a file that is a stream, as EasyLM writes them: records of a key and a document.

    A record is a list of two: the key's components, or its text, and a byte string that is the document.
    Raises SourceError where it is damaged. A stream that was cut between two records is a whole one.
    """
    found: list[Found] = []
    at, end = 0, file.stat.size
    while at < end:
        start = at
        record, at = read_value(file, start, end)
        with about(file.path):
            names, inside = _record(record, start)
        node, last = read_value(file, inside.offset, inside.offset + inside.length)
        with about(file.path):
            if last != inside.offset + inside.length:
                raise SourceError(f"byte {last}: more follows in a record than its document", hint=DAMAGED)
            leaves = flattened(node, names, (False,) * len(names))
            found += (Found(key, leaf, file.path) for key, leaf in leaves)
            if len(found) > MOST_VALUES:
                raise SourceError(f"there are more than {MOST_VALUES} leaves", hint=DAMAGED)
    return found


def _record(record: Node, start: int) -> tuple[tuple[str, ...], BytesAt]:
    """Key and contents of the record of a stream that begins at `start`."""
    if isinstance(record, list) and len(record) == 2:
        key, inside = record
        parts = key if isinstance(key, list) else key.split("/") if isinstance(key, str) else [None]
        names = tuple(str(part) for part in parts if type(part) in (str, int))
        if isinstance(inside, BytesAt) and len(names) == len(parts) and names:
            return names, inside
    raise SourceError(f"byte {start}: a record is not a key and a byte string", hint=DAMAGED)


# --- leaves -----------------------------------------------------------------------------------------------


def leaf_of(found: Found) -> Leaf:
    """A leaf as the engine knows it. Raises SourceError for what has no place in a checkpoint."""
    key, node = found.key, found.node
    if isinstance(node, ArrayAt):
        kind = LeafKind.SCALAR if node.scalar else LeafKind.ARRAY
        return Leaf(key, kind, node.spec, manifest_of(node, found.file))
    if node is None:
        return Leaf(key, LeafKind.EMPTY, empty="None")
    if isinstance(node, dict | list):
        return Leaf(key, LeafKind.EMPTY, empty="Dict" if isinstance(node, dict) else "List")
    if isinstance(node, BytesAt):
        return Leaf(key, LeafKind.ARRAY, ArraySpec((node.length,), BYTES))
    if not isinstance(node, str):
        return _number(key, node)
    if node.startswith(PLACEHOLDER):
        raise SourceError(
            "it stands for an array that Orbax stored elsewhere",
            hint="Open the directory that the file is in.",
        )
    return Leaf(key, LeafKind.STRING, string=node)


def opaque_of(found: Found) -> Opaque | None:
    """What there is of a byte string, which no function takes; None for other leaves."""
    node = found.node
    if not isinstance(node, BytesAt):
        return None
    stored = stretch(ArraySpec((node.length,), np.dtype("V1")), found.file, node.offset)
    return Opaque(f"is {_told(node)}, which no other format holds", "Save it as an array.", stored, BYTES)


def _number(key: Key, value: Plain) -> Leaf:
    """A Python number: bool, int64 (uint64 where it must be), float64 or complex128."""
    array = np.asarray(value)
    spec, data = ArraySpec((), array.dtype), array.tobytes()
    manifest = Manifest(spec, (), raw_codec(0), {(): Chunk("", 0, len(data), data)})
    return Leaf(key, LeafKind.SCALAR, spec, manifest)


def _told(node: Node) -> str:
    if isinstance(node, ArrayAt):
        return f"an array without a name, {node.spec},"
    if isinstance(node, BytesAt):
        return f"a byte string of the length {node.length}"
    return f"a Python {type(node).__name__}"


# --- arrays of several hosts ------------------------------------------------------------------------------


def _multihost_array(directory: str, found: Found, path: str) -> Listed:
    """The zarr array that a placeholder stands for. Raises SourceError where it is not whole."""
    if not set(path.split("/")).isdisjoint(("", ".", "..")) or "\0" in path:
        raise SourceError(
            f"its array is said to be in `{shown(path[:200])}`, which is no path below the checkpoint",
            hint="Only arrays beside the checkpoint are read.",
        )
    place = f"{os.path.basename(found.file)}{MULTIHOST_SUFFIX}/{path}"
    files = Files.of(directory, place)
    stored = file_array(files, place)
    manifest = file_manifest(files, place, stored.definition)
    check_complete(stored.definition, manifest)
    leaf = Leaf(found.key, LeafKind.ARRAY, stored.definition.spec, manifest)
    return Listed(leaf, found, stored, files.by_path)


def list_leaves(directory: str, found: Iterable[Found]) -> dict[str, Listed]:
    """Leaves by their keys' text. Raises SourceError where two have the same, and for what is no leaf."""
    listed: dict[str, Listed] = {}
    for item in found:
        text = item.key.text
        if text in listed:
            raise SourceError(
                f"two leaves have the key `{shown(text[:200])}`: "
                f"{list(listed[text].leaf.key.names)[:20]} and {list(item.key.names)[:20]}",
                hint="Rename one of them before it is saved.",
            )
        try:
            listed[text] = _listed(directory, item)
        except SourceError as error:
            raise named(item.key, error) from error
    return listed


def _listed(directory: str, item: Found) -> Listed:
    if isinstance(item.node, str) and item.node.startswith(MULTIHOST):
        return _multihost_array(directory, item, item.node.removeprefix(MULTIHOST))
    return Listed(leaf_of(item), item)


# --- the source -------------------------------------------------------------------------------------------


class FlaxSource(ArraysSource):
    """A Flax checkpoint, opened for reading. Safe to use from several threads."""

    def __init__(self, path: str, location: Location, contents: Contents):
        listed = list_leaves(location.directory, contents.found)
        super().__init__(
            path=path,
            format="flax",
            directory=location.directory,
            leaves={text: item.leaf for text, item in listed.items()},
            arrays={text: item.array for text, item in listed.items() if item.array is not None},
            files={**contents.files, **_own_files(listed.values())},
            metadata=contents.metadata,
            step=location.step,
            opaque=opaque_leaves(item.found for item in listed.values()),
        )
        self._cut = {
            text: item.found
            for text, item in listed.items()
            if isinstance(item.found.node, ArrayAt) and not item.leaf.manifest
        }
        """Arrays in pieces that no grid fits."""

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        cut = self._cut.get(leaf.key.text)
        if cut is None:
            return super().read(leaf, region)
        assert isinstance(cut.node, ArrayAt)
        try:
            return read_pieces(cut.node, cut.file, region, self._files)
        except SourceError as error:
            raise named(leaf.key, error) from error


def opaque_leaves(found: Iterable[Found]) -> dict[str, Opaque]:
    """Those leaves that are byte strings, by key text."""
    opaque = {item.key.text: opaque_of(item) for item in found}
    return {text: one for text, one in opaque.items() if one is not None}


def _own_files(listed: Iterable[Listed]) -> dict[str, FileStat]:
    return {path: stat for item in listed for path, stat in item.files.items()}


def open_flax(path: str, selection: Selection) -> FlaxSource:
    """Open a file, an index, or a directory that holds one of them, or several steps.

    Raises SourceError where the checkpoint is not whole, UsageError for a step it cannot have, or an item.
    """
    location = locate(path, selection)
    return FlaxSource(path, location, _contents(location))


def _contents(location: Location) -> Contents:
    if location.name.endswith(INDEX_SUFFIX):
        return _sharded(location)
    path = os.path.join(location.directory, location.name)
    found, stat = _read(path)
    return Contents(tuple(found), {path: stat}, {})


def _read(path: str) -> tuple[list[Found], FileStat]:
    """The leaves of one file, and what it was like."""
    with opened(path) as file:
        if not file.stat.size:
            raise SourceError(f"{shown(file.path)} is empty", hint=DAMAGED)
        read = read_stream if starts_stream(file) else read_document
        return read(file), file.stat


def _sharded(location: Location) -> Contents:
    """The leaves of all shards. Raises SourceError where they and the index differ."""
    directory, path = location.directory, os.path.join(location.directory, location.name)
    weights, metadata = read_index(path)
    paths = {name: os.path.join(directory, name) for name in shard_names(directory, weights)}
    read = {name: _read(shard) for name, shard in paths.items()}
    held = {name: [item.key.text for item in found] for name, (found, _) in read.items()}
    check_shards(directory, weights, held)
    files = {path: stat_file(path), **{paths[name]: stat for name, (_, stat) in read.items()}}
    return Contents(tuple(item for found, _ in read.values() for item in found), files, metadata)
