"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand."""

import os
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np

from ckpt_surgery.core.arrays import Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.formats.orbax.detect import OrbaxItem, choices, locate
from ckpt_surgery.formats.orbax.store import Store, array_manifest, begin_store
from ckpt_surgery.formats.orbax.structure import Structure
from ckpt_surgery.formats.orbax.tree import (
    Tree,
    TreeLeaf,
    read_random_keys,
    read_shardings,
    read_strings,
    read_tree,
)
from ckpt_surgery.formats.registry import Selection
from ckpt_surgery.formats.shared.zarr.arrays import CACHE_BYTES, ArrayReader
from ckpt_surgery.formats.shared.zarr.files import StoredArray
from ckpt_surgery.storage.failures import DAMAGED, named
from ckpt_surgery.storage.listing import FileStat, digest, exists, walk
from ckpt_surgery.storage.record_files import RECORD_NAME

HISTORY = "ckpt_surgery"
"""Entry of custom metadata with the recipes that a checkpoint went through."""
_KEY_DTYPE = np.dtype(np.uint32)
"""Element type of PRNG keys, whatever their implementation."""


def list_leaves(store: Store, tree: Tree) -> dict[str, Leaf]:
    """Every leaf of an item by its key's text, in the order of its `_METADATA`.

    Raises SourceError where anything is missing, too short or malformed.
    """
    shardings = read_shardings(store.directory)
    random_keys = cache(lambda: read_random_keys(store.directory, store.files))
    strings = read_strings(store.directory, tree.entries)
    leaves: dict[str, Leaf] = {}
    for entry in tree.entries:
        if not entry.is_array:
            leaves[entry.key.text] = _plain_leaf(entry, strings, tree.structure)
            continue
        try:
            place = store.place(entry.name)
            array = store.definition(place)
            impl = _random_key(entry, random_keys()) if array.spec.dtype == _KEY_DTYPE else None
            kind = LeafKind.SCALAR if entry.value_type == "scalar" else LeafKind.ARRAY
            manifest = array_manifest(store, place, array)
        except SourceError as error:
            raise named(entry.key, error) from error
        leaves[entry.key.text] = Leaf(
            entry.key,
            LeafKind.PRNG_KEY if impl else kind,
            array.spec,
            manifest,
            shardings.get(entry.name),
            impl,
        )
    return leaves


def _plain_leaf(entry: TreeLeaf, strings: Mapping[str, str], structure: Structure | None) -> Leaf:
    """A leaf that is not an array in the store. Raises SourceError where its value is missing."""
    if entry.is_string:
        return Leaf(entry.key, LeafKind.STRING, string=strings[entry.name])
    if not entry.is_aggregated:
        return Leaf(entry.key, LeafKind.EMPTY, empty=entry.value_type)
    assert structure is not None
    try:
        return structure.leaf(entry.key)
    except SourceError as error:
        raise named(entry.key, error) from error


def _random_key(entry: TreeLeaf, random_keys: Mapping[str, str | None]) -> str | None:
    """The PRNG implementation of a uint32 array; None where it is not a PRNG key.

    Orbax records `write_shape` in `_METADATA` for the arrays that it also lists in `array_metadatas`. Raises
    SourceError where the file that lists the array is missing.
    """
    if entry.has_array_metadata and entry.name not in random_keys:
        raise SourceError(
            "whether it is a PRNG key is unknown: array_metadatas does not list it", hint=DAMAGED
        )
    return random_keys.get(entry.name)


class OrbaxSource:
    """One item of an Orbax checkpoint, opened for reading. Safe to use from several threads."""

    format = "orbax"

    def __init__(self, path: str, location: OrbaxItem, cache_bytes: int = CACHE_BYTES):
        self.path = path
        self.step = location.step
        self.item = location.item
        self.record_file = os.path.join(location.directory, RECORD_NAME)
        self._location = location
        self.cache_bytes = cache_bytes
        self._begun = begin_store(location.directory, self._walked())  # continues while the tree is read
        self._tree = read_tree(location.directory)
        self.metadata: Mapping[str, Any] = {**self._metadata_of_step(), **self._tree.metadata}

    def _metadata_of_step(self) -> Mapping[str, Any]:
        """The step's metadata, without the history of another item: this one's is in its own metadata."""
        found = self._location.metadata
        if HISTORY not in found or HISTORY in self._tree.metadata or not exists(self.record_file):
            return found
        return {name: value for name, value in found.items() if name != HISTORY}

    @cached_property
    def _store(self) -> Store:
        return self._begun(self._tree)

    @cached_property
    def _leaves(self) -> Mapping[str, Leaf]:
        return list_leaves(self._store, self._tree)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """Names of arrays in the store, by the text of their keys."""
        return {entry.key.text: entry.name for entry in self._tree.entries if entry.is_array}

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's order. Reads no array.

        Raises SourceError where the checkpoint is not whole.
        """
        return self._leaves

    @property
    def details(self) -> SourceDetails:
        """The steps and items of the path, and where the record is."""
        return SourceDetails(choices=lambda: choices(self._location), record_file=self.record_file)

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be read."""
        if leaf.key.text in self._names:
            return self._reader.read(leaf, region)
        assert self._tree.structure is not None
        return self._tree.structure.read(leaf, region)

    def opaque_elements(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of an array that no function can use: a byte string in the structure file.

        Raises SourceError where they cannot be read.
        """
        structure = self._tree.structure
        if structure is None or leaf.key.text in self._names:
            return self.read(leaf, region)
        return structure.opaque_elements(leaf, region)

    def files(self) -> Iterator[str]:
        """Paths of all files below the item's directory."""
        yield from (os.path.join(self._location.directory, name) for name in self._walked())

    def fingerprint(self) -> str:
        """Digest of the item's files but the record: names, sizes, modification times."""
        return digest({name: stat for name, stat in self._walked().items() if name != RECORD_NAME})

    def _walked(self) -> Mapping[str, FileStat]:
        return walk(self._location.directory, self._location.root)

    @cached_property
    def _reader(self) -> ArrayReader:
        return ArrayReader(
            self._location.directory, self._stored, self._store.chunk_files, cache_bytes=self.cache_bytes
        )

    def _stored(self, text: str) -> StoredArray:
        """What reading an array takes; `text` is that of its key."""
        return self._store.array(self._store.place(self._names[text]))


def open_orbax(path: str, selection: Selection) -> OrbaxSource:
    """Open a flat checkpoint, a step, an item, or the step and item that `selection` names."""
    return OrbaxSource(path, locate(path, selection))
