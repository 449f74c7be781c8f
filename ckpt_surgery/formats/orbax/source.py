"""Reading Orbax checkpoints: every leaf from metadata alone, then regions of arrays on demand.

The item that is read lies in a directory alone, in a step, or in one of a CheckpointManager's steps. Source
of the conventions: orbax-checkpoint 0.12.8. An unfinished save has `.orbax-checkpoint-tmp` in its name, or
neither a commit time nor a commit file. Names: `ckpt_surgery.formats.shared.orbax_layout`.
"""

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from ckpt_surgery.core.errors import SourceError, UsageError
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import Choices, SourceDetails
from ckpt_surgery.core.text import few, shown
from ckpt_surgery.formats.orbax import tree as item_tree
from ckpt_surgery.formats.plain_files import ListedSource
from ckpt_surgery.formats.registry import Directory, Listing, Reader, Selection
from ckpt_surgery.formats.shared import orbax_layout as layout
from ckpt_surgery.formats.shared.msgpack.source import leaf_of
from ckpt_surgery.formats.shared.ocdbt.reader import Database, begin_reading
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


def _check_finished(directory: str) -> None:
    named = layout.UNFINISHED in os.path.basename(directory)
    if named or not layout.committed(directory):
        without = f"it has no {layout.COMMIT_FILE} and its {layout.CHECKPOINT_METADATA} has no commit time"
        why = f"its name has `{layout.UNFINISHED}`" if named else without
        what = f"{shown(directory)} was never committed: {why}"
        raise SourceError(what, hint="The save was interrupted; use another checkpoint.")


def _metadata_of(directory: str) -> Mapping[str, Any]:
    """The document of a step, or of a checkpoint; empty where there is none."""
    path = os.path.join(directory, layout.CHECKPOINT_METADATA)
    return read_json(path) if exists(path) else {}


def _choices(root: str, directory: str, step: int | None, item: str | None) -> Choices:
    """The steps and items that the item in a directory was chosen from."""
    steps = {} if step is None else layout.steps_in(root)
    finished = {name for name in steps if layout.committed(os.path.join(root, name))}
    return Choices(
        tuple(sorted(steps[name] for name in finished)),
        tuple(sorted(number for name, number in steps.items() if name not in finished)),
        () if item is None else items_beside(directory),
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
        if layout.is_item(os.path.join(directory, name)) or _is_tree_handler(handlers.get(name))
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


def _files(
    directory: str,
    stats: Mapping[str, FileStat],
    tree: item_tree.Tree,
    database: Callable[[], Database] | None,
) -> Files:
    """The files of an item's arrays. `database`: completes reading the index, where there is one."""
    if database is not None:
        return IndexedFiles(directory, stats, database())
    if tree.ocdbt and any(entry.is_array for entry in tree.entries):
        parts = {name.split("/")[0] for name in stats if name.startswith(layout.PROCESS_PREFIX)}
        merged = f"the databases of its {len(parts)} process(es) were never merged"
        why = f"{merged}, so the save was not finished" if parts else "its arrays cannot be found"
        raise damaged(f"{shown(directory)} has no {layout.MANIFEST}: {why}")
    prefetch(directory, (name for name in stats if posixpath.basename(name) == FILE_NAMES[tree.zarr]))
    return Files(directory, stats)


def _leaves(files: Files, tree: item_tree.Tree, readers: dict[str, Reader]) -> dict[str, Leaf]:
    """The leaves of an item, in its order. What reads those without a manifest goes into `readers`."""
    shardings = item_tree.read_shardings(files.root)
    random_keys = cache(lambda: item_tree.read_random_keys(files.root, files.stats))
    strings = item_tree.read_strings(files.root, tree.entries)
    leaves: dict[str, Leaf] = {}
    for entry in tree.entries:
        key, text = entry.key, entry.key.text
        if entry.is_array:
            try:  # quicker than `about_key`, for each of very many
                prefix = files.prefix_of(item_tree.array_prefix(entry.name))
                about = files.text(prefix + FILE_NAMES[tree.zarr])
                if about is None:
                    array_text = f"array `{shown(prefix.removesuffix('/'))}` in {shown(files.root)}"
                    raise damaged(f"it is in {tree.file}, but there is no {array_text}")
                array = parse_array(about, tree.zarr)
                impl = None
                if array.spec.dtype == np.uint32:  # that of PRNG keys, whatever their implementation
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
                leaves[text] = leaf_of(key, tree.structure.node(key), tree.structure.path, readers)
        else:
            leaves[text] = Leaf(key, LeafKind.EMPTY, empty=entry.value_type)
    return leaves


def read(path: str, selection: Selection) -> ListedSource:
    """Open what `selection` names. The index is decoded while the tree is read; leaves are listed later."""
    root = real_path(path)  # which links must not leave
    _check_finished(root)
    if layout.UNFINISHED in os.path.basename(os.path.dirname(root)):
        _check_finished(os.path.dirname(root))
    steps = {} if layout.is_checkpoint(root) else layout.steps_in(root)
    directory, step = locate(path, selection.step, steps, layout.committed)
    if step is not None:
        _check_finished(directory)
    about, item = _metadata_of(directory), None
    custom, handlers = about.get("custom_metadata"), about.get("item_handlers")
    if layout.is_item(directory) or isinstance(handlers, str):
        if not layout.is_item(directory) and not _is_tree_handler(handlers):
            _refuse_item_without_arrays(directory)
        check_no_choice(directory, item=selection.item)
    else:
        item = _chosen_item(directory, handlers if isinstance(handlers, dict) else {}, selection.item)
        directory = os.path.join(directory, item)
        check_link(directory, root)
    whole = Directory(directory, root)
    names = whole.walked()
    database = begin_reading(directory) if layout.MANIFEST in names else None
    tree = item_tree.read_tree(directory)
    metadata = dict(custom) if isinstance(custom, dict) else {}
    if RECORD_NAME in names:  # then the step's history, the recipes that it went through, is another item's
        metadata.pop("ckpt_surgery", None)
    choices = partial(_choices, root, directory, step, item)
    listing = Listing(
        leaves={},
        metadata={**metadata, **tree.metadata},
        step=step,
        item=item,
        decode=decode_region,
        directory=whole,
        details=SourceDetails(choices=choices, record_file=os.path.join(directory, RECORD_NAME)),
    )

    def rest() -> Listing:
        files, structure = _files(directory, names, tree, database), tree.structure
        readers: dict[str, Reader] = {}
        leaves = _leaves(files, tree, readers)
        known = dict(files.by_path)
        if structure is not None:
            known[structure.path] = structure.stat
        return replace(listing, leaves=leaves, files=known, readers=readers)

    return ListedSource(path, "orbax", listing, rest)


_FILES_OF_STEP = {layout.CHECKPOINT_METADATA, layout.COMMIT_FILE, layout.V1_MARKER}
_ITEMS_OF_STEP = {"metrics", "descriptor"}
"""Items that Orbax adds to a step by itself."""
_FILES_OF_ITEM = {layout.TREE_METADATA, layout.MANIFEST, *item_tree.FILES}
_DIRECTORIES_OF_ITEM = {"d", os.path.dirname(item_tree.ARRAY_METADATA)}


def foreign_files(directory: str, names: Sequence[str]) -> Iterator[str]:
    """Files that Orbax did not write, out of `names`: relative paths of all files in the directory.

    `--overwrite` refuses to delete them. Source of the names: what orbax-checkpoint 0.2.7 to 0.12.8 writes.
    Items that are no trees of arrays (JSON, the state of a data loader, metrics) have files with names of
    their handlers' own, so all that is in an item that the checkpoint lists belongs to it.
    """
    if layout.is_item(directory):
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
        if layout.is_item(os.path.join(directory, first)):
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
            known = first in (*_DIRECTORIES_OF_ITEM, KEPT) or first.startswith(layout.PROCESS_PREFIX)
        else:
            known = name in _FILES_OF_ITEM or name in _FILES_OF_STEP
        if not known and name not in own:
            yield name
