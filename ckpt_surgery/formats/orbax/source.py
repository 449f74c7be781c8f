"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand."""

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.listed_source import ListedSource
from ckpt_surgery.formats.orbax.detect import choices, locate_item
from ckpt_surgery.formats.orbax.structure import STRUCTURE, Structure
from ckpt_surgery.formats.orbax.tree import (
    ARRAY_METADATA,
    SHARDINGS,
    STRINGS,
    Tree,
    TreeLeaf,
    array_prefix,
    read_random_keys,
    read_shardings,
    read_strings,
    read_tree,
)
from ckpt_surgery.formats.registry import Directory, Listing, Selection
from ckpt_surgery.formats.shared.ocdbt.reader import begin_reading
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
    TREE_METADATA,
    V1_MARKER,
    is_item,
)
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.files import Files, IndexedFiles, array_manifest
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES, zarr_names
from ckpt_surgery.formats.shared.zarr.metadata import ZarrArray, parse_array
from ckpt_surgery.storage.companion_names import KEPT
from ckpt_surgery.storage.failures import about_key, damaged, with_key
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import FileStat, exists
from ckpt_surgery.storage.record_files import RECORD_NAME
from ckpt_surgery.storage.views import prefetch

HISTORY = "ckpt_surgery"
"""Entry of custom metadata with the recipes that a checkpoint went through."""
_KEY_DTYPE = np.dtype(np.uint32)
"""Element type of PRNG keys, whatever their implementation."""


def _begin_files(directory: str, stats: Mapping[str, FileStat]) -> Callable[[Tree], Files]:
    """Start to read the index of an item's arrays, where it has one; calling the result completes that.

    The result takes the tree, which says whether an index must exist.
    """
    database = begin_reading(directory) if MANIFEST in stats else None

    def finish(tree: Tree) -> Files:
        if database is not None:
            return IndexedFiles(directory, stats, database())
        if tree.ocdbt and any(entry.is_array for entry in tree.entries):
            parts = {name.split("/")[0] for name in stats if name.startswith(PROCESS_PREFIX)}
            merged = f"the databases of its {len(parts)} process(es) were never merged"
            why = f"{merged}, so the save was not finished" if parts else "its arrays cannot be found"
            raise damaged(f"{shown(directory)} has no {MANIFEST}: {why}")
        prefetch(directory, (name for name in stats if posixpath.basename(name) == FILE_NAMES[tree.zarr]))
        return Files(directory, stats)

    return finish


def _array(files: Files, prefix: str, tree: Tree) -> ZarrArray:
    """The metadata of an array."""
    text = files.text(prefix + FILE_NAMES[tree.zarr])
    if text is None:
        raise damaged(
            f"it is in {tree.file}, but there is no array `{shown(prefix.removesuffix('/'))}` "
            f"in {shown(files.root)}"
        )
    return parse_array(text, tree.zarr)


def list_leaves(files: Files, tree: Tree) -> dict[str, Leaf]:
    """List the leaves of an item by their keys' texts, in the order of its `_METADATA`."""
    shardings = read_shardings(files.root)
    random_keys = cache(lambda: read_random_keys(files.root, files.stats))
    strings = read_strings(files.root, tree.entries)
    leaves: dict[str, Leaf] = {}
    for entry in tree.entries:
        if not entry.is_array:
            leaves[entry.key.text] = _plain_leaf(entry, strings, tree.structure)
            continue
        try:
            prefix = files.prefix_of(array_prefix(entry.name))
            array = _array(files, prefix, tree)
            impl = None
            if array.spec.dtype == _KEY_DTYPE:
                # Orbax records `write_shape` in `_METADATA` for what it also lists in `array_metadatas`.
                if entry.has_array_metadata and entry.name not in random_keys():
                    raise damaged("whether it is a PRNG key is unknown: array_metadatas does not list it")
                impl = random_keys().get(entry.name)
            kind = LeafKind.SCALAR if entry.value_type == "scalar" else LeafKind.ARRAY
            manifest = array_manifest(files, prefix, array, tree.filled)
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
    with about_key(entry.key):
        return structure.leaf(entry.key)


def read(path: str, selection: Selection) -> ListedSource:
    """Open a flat checkpoint, a step, an item, or the step and item that `selection` names.

    The index of its arrays is decoded while the tree is read; leaves are listed when they are asked for.
    """
    location = locate_item(path, selection)
    directory = Directory(location.directory, location.root)
    names = directory.walked()
    begun = _begin_files(location.directory, names)
    tree = read_tree(location.directory)
    record_file = os.path.join(location.directory, RECORD_NAME)
    about = location.metadata
    if RECORD_NAME in names:  # then the step's history is that of another item
        about = {name: value for name, value in about.items() if name != HISTORY}
    listing = Listing(
        leaves={},
        metadata={**about, **tree.metadata},
        step=location.step,
        item=location.item,
        decode=decode_region,
        directory=directory,
        details=SourceDetails(choices=partial(choices, location), record_file=record_file),
    )

    def rest() -> Listing:
        files, structure = begun(tree), tree.structure
        leaves = list_leaves(files, tree)
        if structure is None:
            return replace(listing, leaves=leaves, files=files.by_path)
        aggregated = [entry.key for entry in tree.entries if entry.is_aggregated]
        readers = structure.readers(aggregated)
        known = {**files.by_path, structure.path: structure.stat}
        return replace(listing, leaves=leaves, files=known, readers=readers)

    return ListedSource(path, "orbax", listing, rest)


# --- foreign files ----------------------------------------------------------------------------------------


_FILES_OF_STEP = {CHECKPOINT_METADATA, COMMIT_FILE, V1_MARKER}
_ITEMS_OF_STEP = {"metrics", "descriptor"}
"""Items that Orbax adds to a step by itself."""
_JSON = ["metadata"]
"""The only file of a JSON item, as older versions write it."""
_FILES_OF_ITEM = {TREE_METADATA, SHARDINGS, STRINGS, STRUCTURE, MANIFEST}
_DIRECTORIES_OF_ITEM = {"d", os.path.dirname(ARRAY_METADATA)}


def foreign_files(directory: str, names: Sequence[str]) -> Iterator[str]:
    """Files that Orbax did not write, out of `names`: relative paths of all files in the directory.

    `--overwrite` refuses to delete them. Source of the names: what orbax-checkpoint 0.2.7 to 0.12.8 writes.
    Items that are no trees of arrays (JSON, the state of a data loader, metrics) have files with names of
    their handlers' own, so all that is in an item that the checkpoint lists belongs to it.
    """
    if is_item(directory):
        yield from _beside_item(names)
        return
    inside: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = name.partition("/")
        if rest:
            inside.setdefault(first, []).append(rest)
        elif name not in _FILES_OF_STEP:
            yield name
    path = os.path.join(directory, CHECKPOINT_METADATA)
    handlers = read_json(path).get("item_handlers") if exists(path) else None
    listed = _ITEMS_OF_STEP | (set(handlers) if isinstance(handlers, dict) else set())
    for first, within in inside.items():
        if is_item(os.path.join(directory, first)):
            others: Sequence[str] = list(_beside_item(within))
        else:
            others = [] if first in listed or within == _JSON else within
        yield from (f"{first}/{name}" for name in others)


def _beside_item(names: Sequence[str]) -> Iterator[str]:
    """Files that do not belong to an item, out of names relative to its directory."""
    own = zarr_names(names)
    for name in names:
        first, _, rest = name.partition("/")
        if rest:
            known = first in (*_DIRECTORIES_OF_ITEM, KEPT) or first.startswith(PROCESS_PREFIX)
        else:
            known = name in _FILES_OF_ITEM or name in _FILES_OF_STEP
        if not known and name not in own:
            yield name
