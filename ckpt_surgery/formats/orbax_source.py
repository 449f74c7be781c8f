"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from ckpt_surgery.arrays import Leaf, LeafKind, Region
from ckpt_surgery.errors import SourceError
from ckpt_surgery.formats import Selection
from ckpt_surgery.formats.files import DAMAGED, FileStat, digest, named, walk
from ckpt_surgery.formats.orbax_layout import TREE_METADATA, Location, locate
from ckpt_surgery.formats.orbax_store import Store, array_manifest, open_store
from ckpt_surgery.formats.orbax_tree import (
    EMPTY_KINDS,
    Entry,
    Tree,
    read_random_keys,
    read_shardings,
    read_strings,
    read_tree,
)
from ckpt_surgery.formats.zarr_arrays import CACHE_BYTES, ArrayReader, StoredArray
from ckpt_surgery.formats.zarr_metadata import ZarrArray, parse_array
from ckpt_surgery.keys import shown


@dataclass(frozen=True)
class Listing:
    """Everything that is known without reading arrays."""

    leaves: Mapping[str, Leaf]
    arrays: Mapping[str, tuple[str, ZarrArray]]
    """By key text: an array's name in the store, and its definition."""
    store: Store

    def stored(self, text: str) -> StoredArray:
        """What reading a leaf's array takes."""
        return self.store.array(*self.arrays[text])


def list_leaves(directory: str, root: str, tree: Tree) -> Listing:
    """Every leaf of an item in the order of its `_METADATA`; links are held to `root`.

    Raises SourceError where anything is missing, too short or malformed.
    """
    files = walk(directory, root)
    some = any(entry.is_array for entry in tree.entries)
    store = (
        open_store(directory, files, tree.ocdbt, tree.zarr)
        if some
        else Store(directory, files, None, tree.zarr)
    )
    shardings = read_shardings(directory)
    random_keys = cache(lambda: read_random_keys(directory, files))
    strings = read_strings(directory, tree.entries)
    leaves: dict[str, Leaf] = {}
    arrays: dict[str, tuple[str, ZarrArray]] = {}
    for entry in tree.entries:
        text, name = entry.key.text, entry.name
        if not entry.is_array:
            leaves[text] = _plain_leaf(entry, strings)
            continue
        try:
            array = _definition(store, name)
            # PRNG keys are made of uint32, whatever their implementation.
            impl = _random_key(entry, random_keys()) if array.spec.dtype == np.uint32 else None
            leaves[text] = _array_leaf(entry, store, array, shardings.get(name), impl)
        except SourceError as error:
            raise named(entry.key, error) from error
        arrays[text] = name, array
    return Listing(leaves, arrays, store)


def _plain_leaf(entry: Entry, strings: Mapping[str, str]) -> Leaf:
    if entry.is_string:
        return Leaf(entry.key, LeafKind.STRING, string=strings[entry.name])
    if entry.value_type not in EMPTY_KINDS:
        raise SourceError(
            f"`{shown(entry.key.text)}` is an empty node of the unknown kind `{shown(entry.value_type)}`",
            hint=DAMAGED,
        )
    return Leaf(entry.key, LeafKind.EMPTY, empty=entry.value_type)


def _definition(store: Store, name: str) -> ZarrArray:
    text = store.definition(name)
    if text is None:
        raise SourceError(
            f"it is in {TREE_METADATA}, but there is no array `{shown(name)}` in {shown(store.directory)}",
            hint=DAMAGED,
        )
    return parse_array(text, store.zarr)


def _random_key(entry: Entry, random_keys: Mapping[str, str | None]) -> str | None:
    """The PRNG implementation of a uint32 array, None where it is no key.

    Orbax notes `write_shape` in `_METADATA` for the arrays that it also lists in `array_metadatas`. Raises
    SourceError where a file that could tell is missing.
    """
    if entry.has_array_metadata and entry.name not in random_keys:
        raise SourceError(
            "whether it is a PRNG key cannot be told: array_metadatas does not list it", hint=DAMAGED
        )
    return random_keys.get(entry.name)


def _array_leaf(entry: Entry, store: Store, array: ZarrArray, sharding: str | None, impl: str | None) -> Leaf:
    kind = LeafKind.SCALAR if entry.value_type == "scalar" else LeafKind.ARRAY
    return Leaf(
        key=entry.key,
        kind=LeafKind.PRNG_KEY if impl else kind,
        spec=array.spec,
        manifest=array_manifest(store, entry.name, array),
        sharding=sharding,
        prng_impl=impl,
    )


class OrbaxSource:
    """One item of an Orbax checkpoint, opened for reading. Safe to use from several threads."""

    format = "orbax"

    def __init__(self, path: str, location: Location, cache_bytes: int = CACHE_BYTES):
        self.path = path
        self.step = location.step
        self.item = location.item
        self._location = location
        self._cache_bytes = cache_bytes
        self._tree = read_tree(location.directory)
        self.metadata: Mapping[str, Any] = {**location.metadata, **self._tree.metadata}

    @cached_property
    def _listing(self) -> Listing:
        return list_leaves(self._location.directory, self._location.root, self._tree)

    def leaves(self) -> Mapping[str, Leaf]:
        """Every leaf by its key's text, in the checkpoint's order. Reads no array.

        Raises SourceError where the checkpoint is not whole.
        """
        return self._listing.leaves

    def read(self, leaf: Leaf, region: Region) -> np.ndarray:
        """The elements of `region`, in the leaf's dtype. Raises SourceError where they cannot be had."""
        return self._reader.read(leaf, region)

    def files(self) -> Iterator[str]:
        """Paths of all files below the item's directory."""
        yield from (os.path.join(self._location.directory, name) for name in self._walked())

    def fingerprint(self) -> str:
        """Of the item's files: names, sizes, modification times."""
        return digest(self._walked())

    def _walked(self) -> Mapping[str, FileStat]:
        return walk(self._location.directory, self._location.root)

    @cached_property
    def _reader(self) -> ArrayReader:
        return ArrayReader(self._location.directory, self._listing.stored, cache_bytes=self._cache_bytes)


def open_orbax(path: str, selection: Selection) -> OrbaxSource:
    """Open a flat checkpoint, a step, an item, or the step and item that `selection` names."""
    return OrbaxSource(path, locate(path, selection))
