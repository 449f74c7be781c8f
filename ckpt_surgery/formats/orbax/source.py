"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand.

The item that is read lies in a directory alone, in a step, or in one of a CheckpointManager's steps. Source
of the conventions: orbax-checkpoint 0.12.8. An unfinished save has `.orbax-checkpoint-tmp` in its name, or
neither a commit time nor a commit file. Names: `ckpt_surgery.formats.shared.orbax_layout`.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Choices, SourceDetails
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.orbax.tree import (
    ARRAY_METADATA,
    SHARDINGS,
    STRINGS,
    STRUCTURE,
    Tree,
    array_prefix,
    read_random_keys,
    read_shardings,
    read_strings,
    read_tree,
)
from ckpt_surgery.formats.plain_files import ListedSource
from ckpt_surgery.formats.registry import Directory, Listing, Selection
from ckpt_surgery.formats.shared.msgpack.source import leaf_of, readers_of
from ckpt_surgery.formats.shared.ocdbt.reader import Database, begin_reading
from ckpt_surgery.formats.shared.orbax_layout import (
    CHECKPOINT_METADATA,
    COMMIT_FILE,
    MANIFEST,
    PROCESS_PREFIX,
    TREE_METADATA,
    UNFINISHED,
    V1_MARKER,
    committed,
    is_checkpoint,
    is_item,
    steps_in,
)
from ckpt_surgery.formats.shared.steps import check_no_choice, choose_item, items_beside, locate, quoted
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.files import Files, IndexedFiles, array_manifest
from ckpt_surgery.formats.shared.zarr.layout import FILE_NAMES, zarr_names
from ckpt_surgery.formats.shared.zarr.metadata import parse_array
from ckpt_surgery.storage.failures import about_key, damaged, with_key
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import FileStat, check_link, directory_names, exists, real_path
from ckpt_surgery.storage.record_files import KEPT, RECORD_NAME
from ckpt_surgery.storage.views import prefetch

JSON_FILE = "metadata"
"""The only file of an item that Orbax's JsonSave wrote, in older versions."""
_TREE_HANDLER = re.compile(r"(Standard|PyTree)\w*Handler$")
_KEY_DTYPE = np.dtype(np.uint32)
"""Element type of PRNG keys, whatever their implementation."""


# --- the item ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrbaxItem:
    """The item that was chosen, and what the step around it says."""

    directory: str
    """Real path of the item's directory."""
    root: str
    """Real path of what the user named: links must stay within it."""
    step: int | None
    item: str | None
    metadata: Mapping[str, Any]
    """Custom metadata of the step, or of a v1 checkpoint."""


def _check_finished(directory: str) -> None:
    named = UNFINISHED in os.path.basename(directory)
    if named or not committed(directory):
        without = f"it has no {COMMIT_FILE} and its {CHECKPOINT_METADATA} has no commit time"
        why = f"its name has `{UNFINISHED}`" if named else without
        what = f"{shown(directory)} was never committed: {why}"
        raise SourceError(what, hint="The save was interrupted; use another checkpoint.")


def _located(path: str, selection: Selection) -> OrbaxItem:
    """Find the item to read. Raises SourceError or UsageError with the names there are to choose from."""
    root = real_path(path)
    _check_finished(root)
    if UNFINISHED in os.path.basename(os.path.dirname(root)):
        _check_finished(os.path.dirname(root))
    directory, step = locate(path, selection.step, {} if is_checkpoint(root) else steps_in(root), committed)
    if step is not None:
        _check_finished(directory)
    about = _metadata_of(directory)
    custom, handlers = about.get("custom_metadata"), about.get("item_handlers")
    name = None
    if is_item(directory) or isinstance(handlers, str):
        if not is_item(directory) and not _is_tree_handler(handlers):
            _refuse_item_without_arrays(directory)
        check_no_choice(directory, item=selection.item)
    else:
        name = _chosen_item(directory, handlers if isinstance(handlers, dict) else {}, selection.item)
        directory = os.path.join(directory, name)
        check_link(directory, root)
    return OrbaxItem(directory, root, step, name, custom if isinstance(custom, dict) else {})


def _metadata_of(directory: str) -> Mapping[str, Any]:
    """The document of a step, or of a checkpoint; empty where there is none."""
    path = os.path.join(directory, CHECKPOINT_METADATA)
    return read_json(path) if exists(path) else {}


def _choices(location: OrbaxItem) -> Choices:
    """The steps and items that an item was chosen from."""
    steps = {} if location.step is None else steps_in(location.root)
    finished = {name for name in steps if committed(os.path.join(location.root, name))}
    return Choices(
        tuple(sorted(steps[name] for name in finished)),
        tuple(sorted(number for name, number in steps.items() if name not in finished)),
        () if location.item is None else items_beside(location.directory),
    )


def _is_tree_handler(name: Any) -> bool:
    return isinstance(name, str) and _TREE_HANDLER.search(name) is not None


def _refuse_item_without_arrays(directory: str) -> None:
    """Raise UsageError for an item of JSON, which is not damaged, and SourceError for other files alone."""
    names = directory_names(directory)
    if names.files and not names.directories:
        hint = "Name the step above it, or another item."
        if JSON_FILE in names.files:
            raise UsageError(f"{shown(directory)} is an item of JSON, without arrays", hint=hint)
        raise SourceError(f"{shown(directory)} holds no arrays, only {few(names.files)}", hint=hint)


def _chosen_item(directory: str, handlers: Mapping[str, Any], wanted: str | None) -> str:
    present = directory_names(directory).directories
    items = [
        name
        for name in present
        if is_item(os.path.join(directory, name)) or _is_tree_handler(handlers.get(name))
    ]
    missing = [name for name, handler in handlers.items() if _is_tree_handler(handler) and name not in items]
    if missing and wanted is None:
        hint = "The checkpoint is incomplete; take another copy, or choose another item: `item=NAME`."
        raise SourceError(f"{shown(directory)} should hold {quoted(missing)}, which is missing", hint=hint)
    name = choose_item(directory, items, wanted, present)
    if name is None:
        _refuse_item_without_arrays(directory)
        hint = f"It has {quoted(present)}." if present else "It is incomplete; take another copy."
        raise SourceError(f"{shown(directory)} has no item with arrays", hint=hint)
    return name


# --- leaves -----------------------------------------------------------------------------------------------


def _files(
    directory: str,
    stats: Mapping[str, FileStat],
    tree: Tree,
    database: Callable[[], Database] | None,
) -> Files:
    """The files of an item's arrays. `database`: completes reading the index, where there is one."""
    if database is not None:
        return IndexedFiles(directory, stats, database())
    if tree.ocdbt and any(entry.is_array for entry in tree.entries):
        parts = {name.split("/")[0] for name in stats if name.startswith(PROCESS_PREFIX)}
        merged = f"the databases of its {len(parts)} process(es) were never merged"
        why = f"{merged}, so the save was not finished" if parts else "its arrays cannot be found"
        raise damaged(f"{shown(directory)} has no {MANIFEST}: {why}")
    prefetch(directory, (name for name in stats if posixpath.basename(name) == FILE_NAMES[tree.zarr]))
    return Files(directory, stats)


def _leaves(files: Files, tree: Tree) -> dict[str, Leaf]:
    """The leaves of an item by their keys' texts, in the order of its `_METADATA`."""
    shardings = read_shardings(files.root)
    random_keys = cache(lambda: read_random_keys(files.root, files.stats))
    strings = read_strings(files.root, tree.entries)
    leaves: dict[str, Leaf] = {}
    for entry in tree.entries:
        key, text = entry.key, entry.key.text
        if entry.is_array:
            try:
                prefix = files.prefix_of(array_prefix(entry.name))
                about = files.text(prefix + FILE_NAMES[tree.zarr])
                if about is None:
                    array_text = f"array `{shown(prefix.removesuffix('/'))}` in {shown(files.root)}"
                    raise damaged(f"it is in {tree.file}, but there is no {array_text}")
                array = parse_array(about, tree.zarr)
                impl = None
                if array.spec.dtype == _KEY_DTYPE:
                    # Orbax records `write_shape` in `_METADATA` for what it also lists in `array_metadatas`.
                    if entry.has_array_metadata and entry.name not in random_keys():
                        raise damaged("whether it is a PRNG key is unknown: array_metadatas does not list it")
                    impl = random_keys().get(entry.name)
                manifest = array_manifest(files, prefix, array, tree.filled)
            except SourceError as error:
                raise with_key(key, error) from error
            kind = LeafKind.SCALAR if entry.value_type == "scalar" else LeafKind.ARRAY
            kind = LeafKind.PRNG_KEY if impl else kind
            leaves[text] = Leaf(key, kind, array.spec, manifest, shardings.get(entry.name), impl)
        elif entry.is_string:
            leaves[text] = Leaf(key, LeafKind.STRING, string=strings[entry.name])
        elif entry.is_aggregated:
            assert tree.structure is not None
            with about_key(key):
                leaves[text] = leaf_of(tree.structure.found(key))
        else:
            leaves[text] = Leaf(key, LeafKind.EMPTY, empty=entry.value_type)
    return leaves


def read(path: str, selection: Selection) -> ListedSource:
    """Open a flat checkpoint, a step, an item, or the step and item that `selection` names.

    The index of its arrays is decoded while the tree is read; leaves are listed when they are asked for.
    """
    location = _located(path, selection)
    directory = Directory(location.directory, location.root)
    names = directory.walked()
    database = begin_reading(location.directory) if MANIFEST in names else None
    tree = read_tree(location.directory)
    about = location.metadata
    if RECORD_NAME in names:  # then the step's history, the recipes that it went through, is another item's
        about = {name: value for name, value in about.items() if name != "ckpt_surgery"}
    record_file = os.path.join(location.directory, RECORD_NAME)
    listing = Listing(
        leaves={},
        metadata={**about, **tree.metadata},
        step=location.step,
        item=location.item,
        decode=decode_region,
        directory=directory,
        details=SourceDetails(choices=partial(_choices, location), record_file=record_file),
    )

    def rest() -> Listing:
        files, structure = _files(location.directory, names, tree, database), tree.structure
        leaves = _leaves(files, tree)
        if structure is None:
            return replace(listing, leaves=leaves, files=files.by_path)
        readers = readers_of(structure.found(entry.key) for entry in tree.entries if entry.is_aggregated)
        known = {**files.by_path, structure.path: structure.stat}
        return replace(listing, leaves=leaves, files=known, readers=readers)

    return ListedSource(path, "orbax", listing, rest)


# --- foreign files ----------------------------------------------------------------------------------------


_FILES_OF_STEP = {CHECKPOINT_METADATA, COMMIT_FILE, V1_MARKER}
_ITEMS_OF_STEP = {"metrics", "descriptor"}
"""Items that Orbax adds to a step by itself."""
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
    handlers = _metadata_of(directory).get("item_handlers")
    listed = _ITEMS_OF_STEP | (set(handlers) if isinstance(handlers, dict) else set())
    for first, within in inside.items():
        if is_item(os.path.join(directory, first)):
            others: Sequence[str] = list(_beside_item(within))
        else:
            others = [] if first in listed or within == [JSON_FILE] else within
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
