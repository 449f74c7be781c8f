"""Reading T5X checkpoints, and Orbax's from before it wrote `_METADATA`.

The tree is one MessagePack file. A leaf is an array in that file, or stands for a zarr array beside it: a
TensorStore spec in T5X, the string `PLACEHOLDER://<directory>` in Orbax.

Source of the format: google-research/t5x, `t5x/checkpoints.py`. Versions from 1 on are
`{version, optimizer: {target, state[, flax_mutables]}}`, and keys start below `optimizer`; version 0 is a
bare tree. The kvstore's path is relative to the file, also where its driver is `gfile` or `gcs`: the bucket
there is a dummy. Before 0.1.14 the path was at the top of the spec. Old checkpoints have bfloat16 as uint16,
and say so nowhere: that is left to the recipe's `bitcast`.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.flax.source import PLACEHOLDER, Found, flattened, leaf_of, opaque_leaves
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.limits import MOST_AXES
from ckpt_surgery.formats.shared.msgpack_arrays import manifest_of, read_pieces
from ckpt_surgery.formats.shared.msgpack_nodes import ArrayAt, Node
from ckpt_surgery.formats.shared.msgpack_tree import read_tree
from ckpt_surgery.formats.shared.raw_arrays import read_raw
from ckpt_surgery.formats.shared.zarr_arrays import ArraysSource
from ckpt_surgery.formats.shared.zarr_files import (
    Files,
    StoredArray,
    check_complete,
    file_array,
    file_manifest,
)
from ckpt_surgery.formats.t5x.detect import ROOT_NAMES, Location, locate
from ckpt_surgery.storage.listing import DAMAGED, FileStat, about, named
from ckpt_surgery.storage.reading import opened

NEWEST = 3
"""Version of T5X's files."""
SPEC_NAMES = {"driver", "kvstore", "metadata"}
"""What T5X itself knows a TensorStore spec by."""
LOCAL = ("file", "gfile", "gcs")
"""Drivers of key-value stores whose paths are taken to be local."""


@dataclass(frozen=True)
class Listed:
    """A leaf, and what reading it takes."""

    leaf: Leaf
    node: Node
    """What stands for it in the tree."""
    array: StoredArray | None = None
    """Where it is in zarr."""
    files: Mapping[str, FileStat] = field(default_factory=dict)
    """Of its own, by path."""

    @property
    def cut(self) -> bool:
        """Whether it is an array in pieces of the tree's file that no grid fits."""
        return isinstance(self.node, ArrayAt) and self.leaf.manifest is None


@dataclass(frozen=True)
class Contents:
    """All that is known of a checkpoint without reading arrays."""

    listed: Mapping[str, Listed]
    """By key text."""
    stat: FileStat
    """Of the tree's file."""


# --- the tree ---------------------------------------------------------------------------------------------


def read_contents(location: Location) -> Contents:
    """List every leaf. Raises SourceError where the file is damaged or an array is not whole."""
    path = location.path
    with opened(path) as file:
        root, stat = read_tree(file), file.stat
    with about(path):
        tree = _below_root(root)
    listed: dict[str, Listed] = {}
    for key, node in flattened(tree, is_leaf=_is_spec) if tree else ():
        if key.text in listed:
            text = shown(key.text[:200])
            raise SourceError(f"{shown(path)}: two leaves have the key `{text}`", hint=DAMAGED)
        try:
            listed[key.text] = _listed(location, key, node)
        except SourceError as error:
            raise named(key, error) from error
    return Contents(listed, stat)


def _listed(location: Location, key: Key, node: Node) -> Listed:
    directory = array_directory(node)
    if directory is None:
        return Listed(leaf_of(Found(key, node, location.path)), node)
    files = Files.of(location.directory, directory)
    stored = file_array(files, directory)
    manifest = file_manifest(files, directory, stored.definition)
    check_complete(stored.definition, manifest)
    _check_agrees(_told_spec(location, node), stored.definition.spec)
    leaf = Leaf(key, LeafKind.ARRAY, stored.definition.spec, manifest)
    return Listed(leaf, node, stored, files.by_path)


def _below_root(root: Node) -> dict[str | int, Node]:
    """The tree of leaves: what is below `optimizer`, or all of it in version 0."""
    if isinstance(root, dict) and set(root) == ROOT_NAMES:
        version, tree = root["version"], root["optimizer"]
        if type(version) is not int or not 0 <= version <= NEWEST:
            raise SourceError(
                f"its version is {shown(repr(version)[:100])}, known are those up to {NEWEST}",
                hint="Save it again with a T5X that writes one of them.",
            )
    else:
        tree = root
    if not isinstance(tree, dict) or _is_spec(tree):
        raise SourceError("it holds no tree of named leaves", hint=DAMAGED)
    return tree


def _is_spec(node: Node) -> bool:
    return isinstance(node, dict) and node.keys() >= SPEC_NAMES


# --- arrays in zarr ---------------------------------------------------------------------------------------


def array_directory(node: Node) -> str | None:
    """The directory of the zarr array that a leaf stands for, relative to the file; None: for no such thing.

    Raises SourceError for a spec that is malformed, of another driver, or with a path that leads elsewhere.
    """
    if isinstance(node, str):
        return _relative(node.removeprefix(PLACEHOLDER)) if node.startswith(PLACEHOLDER) else None
    if not isinstance(node, dict) or not _is_spec(node):
        return None
    kvstore = node["kvstore"]
    if not isinstance(kvstore, dict):
        raise SourceError("its TensorStore spec has no kvstore with a driver and a path", hint=DAMAGED)
    for part, driver, known in (
        ("driver", node["driver"], ("zarr",)),
        ("kvstore", kvstore.get("driver"), LOCAL),
    ):
        if driver not in known:
            raise SourceError(
                f"its TensorStore spec has the {part} {shown(repr(driver)[:100])}, which cannot be read",
                hint=f"Known: {', '.join(known)}.",
            )
    parts = [part for part in (kvstore.get("path", ""), node.get("path", "")) if part != ""]
    if not all(isinstance(part, str) for part in parts):
        raise SourceError("its TensorStore spec has a path that is no text", hint=DAMAGED)
    return _relative("/".join(part.rstrip("/") or part for part in parts if isinstance(part, str)))


def _relative(path: str) -> str:
    """A path in the checkpoint's directory, without `.` and `/` at its end. Raises SourceError for others."""
    plain = posixpath.normpath(path)
    if not path or plain.startswith("/") or plain in (".", "..") or ".." in path.split("/") or "\0" in path:
        raise SourceError(
            f"its array is said to be in `{shown(path[:200])}`, which is no path below the checkpoint",
            hint="Only arrays in the checkpoint's own directory are read.",
        )
    return plain


@dataclass(frozen=True)
class ToldSpec:
    """What the tree says of an array; None where it does not."""

    shape: tuple[int, ...] | None
    dtype: str | None


def _told_spec(location: Location, node: Node) -> ToldSpec:
    """Of a spec; of a placeholder nothing is told."""
    if not isinstance(node, dict):
        return ToldSpec(None, None)
    about_array, dtype = node["metadata"], node.get("dtype")
    shape = about_array.get("shape") if isinstance(about_array, dict) else None
    return ToldSpec(_sizes(location, shape), dtype if isinstance(dtype, str) else None)


def _sizes(location: Location, node: Node) -> tuple[int, ...] | None:
    """A shape, as a list, as the map that Flax makes of a tuple, or as an array."""
    if isinstance(node, ArrayAt):
        manifest = manifest_of(node, location.path)
        if manifest is None or node.spec.ndim != 1 or node.spec.size > MOST_AXES:
            raise SourceError(f"the shape in its TensorStore spec is {node.spec}", hint=DAMAGED)
        return tuple(read_raw(manifest, Region.whole(node.spec.shape)).tolist())
    if node is None:
        return None
    members: Sequence[Node] = node if isinstance(node, list) else ()
    if isinstance(node, dict):
        members = [node.get(str(i)) for i in range(len(node))]
    sizes = tuple(n for n in members if type(n) is int)
    if not isinstance(node, list | dict) or len(sizes) != len(members):
        raise SourceError("the shape in its TensorStore spec is not made of integers", hint=DAMAGED)
    return sizes


def _check_agrees(told: ToldSpec, spec: ArraySpec) -> None:
    """Raises SourceError where the tree and the array's own metadata differ."""
    if told.shape not in (None, spec.shape):
        raise SourceError(f"it is {spec}, but has the shape {told.shape} in the tree", hint=DAMAGED)
    if told.dtype not in (None, spec.dtype.name):
        raise SourceError(f"it is {spec}, but {shown(str(told.dtype)[:100])} in the tree", hint=DAMAGED)


# --- the source -------------------------------------------------------------------------------------------


class T5XSource(ArraysSource):
    """A T5X checkpoint, opened for reading. Safe to use from several threads."""

    def __init__(self, path: str, location: Location, contents: Contents):
        listed = contents.listed
        files = {file: stat for item in listed.values() for file, stat in item.files.items()}
        super().__init__(
            path=path,
            format="t5x",
            directory=location.directory,
            leaves={text: item.leaf for text, item in listed.items()},
            arrays={text: item.array for text, item in listed.items() if item.array is not None},
            files={location.path: contents.stat, **files},
            metadata={},
            step=location.step,
            opaque=opaque_leaves(Found(item.leaf.key, item.node, location.path) for item in listed.values()),
        )
        self.item = location.item
        self._file = location.path
        self._cut = {text: item.node for text, item in listed.items() if item.cut}

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        array = self._cut.get(leaf.key.text)
        if not isinstance(array, ArrayAt):
            return super().read(leaf, region)
        try:
            return read_pieces(array, self._file, region, self._files)
        except SourceError as error:
            raise named(leaf.key, error) from error


def open_t5x(path: str, selection: Selection) -> T5XSource:
    """Open a file, the directory with a file `checkpoint`, or one that holds several steps.

    Raises SourceError where the checkpoint is not whole, UsageError for a step or an item it cannot have.
    """
    location = locate(path, selection)
    return T5XSource(path, location, read_contents(location))
