"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.formats.listed_source import ListedSource
from ckpt_surgery.formats.orbax.detect import OrbaxItem, choices, locate_item
from ckpt_surgery.formats.orbax.store import ItemArrays, array_manifest, begin_store
from ckpt_surgery.formats.orbax.structure import Structure
from ckpt_surgery.formats.orbax.tree import (
    Tree,
    TreeLeaf,
    read_random_keys,
    read_shardings,
    read_strings,
    read_tree,
)
from ckpt_surgery.formats.registry import Directory, Listing, Selection
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.storage.failures import DAMAGED, with_key
from ckpt_surgery.storage.listing import exists
from ckpt_surgery.storage.record_files import RECORD_NAME

HISTORY = "ckpt_surgery"
"""Entry of custom metadata with the recipes that a checkpoint went through."""
_KEY_DTYPE = np.dtype(np.uint32)
"""Element type of PRNG keys, whatever their implementation."""


def list_leaves(store: ItemArrays, tree: Tree) -> dict[str, Leaf]:
    """Every leaf of an item by its key's text, in the order of its `_METADATA`."""
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
            raise with_key(entry.key, error) from error
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
    """A leaf that is not an array in the store."""
    if entry.is_string:
        return Leaf(entry.key, LeafKind.STRING, string=strings[entry.name])
    if not entry.is_aggregated:
        return Leaf(entry.key, LeafKind.EMPTY, empty=entry.value_type)
    assert structure is not None
    try:
        return structure.leaf(entry.key)
    except SourceError as error:
        raise with_key(entry.key, error) from error


def _random_key(entry: TreeLeaf, random_keys: Mapping[str, str | None]) -> str | None:
    """The PRNG implementation of a uint32 array; None where it is not a PRNG key.

    Orbax records `write_shape` in `_METADATA` for the arrays that it also lists in `array_metadatas`.
    """
    if entry.has_array_metadata and entry.name not in random_keys:
        raise SourceError(
            "whether it is a PRNG key is unknown: array_metadatas does not list it", hint=DAMAGED
        )
    return random_keys.get(entry.name)


def read(path: str, selection: Selection) -> ListedSource:
    """Open a flat checkpoint, a step, an item, or the step and item that `selection` names.

    The index of its arrays is decoded while the tree is read; leaves are listed when they are asked for.
    """
    location = locate_item(path, selection)
    directory = Directory(location.directory, location.root)
    begun = begin_store(location.directory, directory.walked())
    tree = read_tree(location.directory)
    record_file = os.path.join(location.directory, RECORD_NAME)
    listing = Listing(
        leaves={},
        metadata={**_metadata_of_step(location, tree, record_file), **tree.metadata},
        step=location.step,
        item=location.item,
        decode=decode_region,
        directory=directory,
        details=SourceDetails(choices=partial(choices, location), record_file=record_file),
    )

    def rest() -> Listing:
        store, structure = begun(tree), tree.structure
        leaves = list_leaves(store, tree)
        if structure is None:
            return replace(listing, leaves=leaves, files=store.by_path)
        aggregated = [entry.key for entry in tree.entries if entry.is_aggregated]
        readers = structure.readers(aggregated)
        files = {**store.by_path, structure.path: structure.stat}
        return replace(listing, leaves=leaves, files=files, readers=readers)

    return ListedSource(path, "orbax", listing, rest)


def _metadata_of_step(location: OrbaxItem, tree: Tree, record_file: str) -> Mapping[str, Any]:
    """The step's metadata, without the history of another item: this one's is in its own metadata."""
    found = location.metadata
    if HISTORY not in found or HISTORY in tree.metadata or not exists(record_file):
        return found
    return {name: value for name, value in found.items() if name != HISTORY}
