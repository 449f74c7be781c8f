"""Reading zarr groups: versions 2 and 3, nested, or a single array.

Sources: the zarr v2 and v3 specifications; zarr-python 3.1. A chunk without a file has the fill value. Each
array's own metadata decides; consolidated metadata only shows whether an array is missing.
"""

import json
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key, natural_order
from ckpt_surgery.core.leaves import Leaf, LeafKind
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Directory, Listing, Selection
from ckpt_surgery.formats.shared.zarr import layout
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.files import Files, array_manifest, file_array
from ckpt_surgery.storage.failures import about_key, damaged
from ckpt_surgery.storage.json_files import read_json
from ckpt_surgery.storage.listing import is_directory, real_path
from ckpt_surgery.storage.record_files import RECORD_NAME


def read(path: str, selection: Selection) -> Listing:
    """Open a group, or a single array, whose key is then `array`."""
    if not is_directory(path):
        what = f"{shown(path)} is not a directory, as zarr groups are"
        raise SourceError(what, hint="Name the group's directory.")
    files = Files.of(path)
    attributes = dict(_root_attributes(files))
    record = attributes.pop(RECORD_NAME, None)
    directories = array_directories(files)
    _check_nothing_lost(files, directories)
    leaves = {}
    for directory in sorted(directories, key=natural_order):
        key = Key.parse(directory or "array")
        with about_key(key):
            array = file_array(files, directory)
            manifest = array_manifest(files, posixpath.join(directory, ""), array, filled=True)
        leaves[key.text] = Leaf(key, LeafKind.ARRAY, array.spec, manifest)
    text, whole = None if record is None else json.dumps(record), Directory(path, real_path(path))
    details = SourceDetails(holds_record=True, record=text)
    return Listing(leaves, files.by_path, attributes, decode=decode_region, directory=whole, details=details)


def foreign_files(directory: str, names: Sequence[str]) -> list[str]:
    """Files that zarr did not write, out of all in the directory; `--overwrite` refuses to delete them."""
    own = layout.zarr_names(names)
    return [name for name in names if name not in own]


def _node(files: Files, directory: str) -> dict[str, Any]:
    """The contents of a `zarr.json`."""
    path = os.path.join(files.root, posixpath.join(directory, layout.NODE_3))
    node = read_json(path)
    if node.get("zarr_format") != 3 or node.get("node_type") not in ("group", "array"):
        raise damaged(f"{shown(path)} is neither a group nor an array of zarr v3")
    return node


def _root_attributes(files: Files) -> Mapping[str, Any]:
    """The user's attributes. Raises SourceError where the directory is neither group nor array."""
    if layout.NODE_3 in files.stats:
        attributes = _node(files, "").get("attributes") or {}
    elif layout.GROUP_2 in files.stats or layout.ARRAY_2 in files.stats:
        path = os.path.join(files.root, layout.ATTRIBUTES_2)
        attributes = read_json(path) if layout.ATTRIBUTES_2 in files.stats else {}
    else:
        lacking = f"it has no {layout.NODE_3}, {layout.GROUP_2} or {layout.ARRAY_2}"
        raise damaged(f"{shown(files.root)} is not a zarr group: {lacking}")
    if not isinstance(attributes, dict):
        raise damaged(f"{shown(files.root)}: the attributes are not a JSON object")
    return attributes


def array_directories(files: Files) -> set[str]:
    """The directories of all arrays; "" is the root. Everything below an array belongs to it."""
    arrays: set[str] = set()
    by_depth = sorted({posixpath.dirname(n) for n in files.names if posixpath.basename(n) in layout.RESERVED})
    for directory in by_depth:  # a directory comes before those in it
        if not any(above in arrays for above in _above(directory)) and _is_array(files, directory):
            arrays.add(directory)
    return arrays


def _above(directory: str) -> Iterator[str]:
    """The directories that contain a directory, up to the root."""
    while directory:
        directory = posixpath.dirname(directory)
        yield directory


def _is_array(files: Files, directory: str) -> bool:
    """Whether a directory is an array."""
    names = (layout.GROUP_2, layout.ARRAY_2, layout.NODE_3)
    group, array_2, node = (posixpath.join(directory, name) for name in names)
    if group in files.stats and read_json(os.path.join(files.root, group)).get("zarr_format") != 2:
        raise damaged(f"{shown(os.path.join(files.root, group))} is not a group of zarr v2")
    return array_2 in files.stats or (node in files.stats and _node(files, directory)["node_type"] == "array")


def _check_nothing_lost(files: Files, directories: set[str]) -> None:
    """Raise SourceError for chunks without an array, and for arrays that only consolidated metadata has."""
    inside: dict[str, bool] = {}
    for name in files.names:
        directory, base = posixpath.split(name)
        if directory not in inside:
            inside[directory] = any(d in directories for d in (directory, *_above(directory)))
        if not inside[directory] and layout.CHUNK_PART.fullmatch(base):
            what = f"{shown(os.path.join(files.root, name))} looks like a chunk"
            raise damaged(f"{what}, but no {layout.ARRAY_2} or {layout.NODE_3} says of which array")
    for array in _consolidated(files):
        if array not in directories:
            what = f"`{shown(array)}` is in the consolidated metadata of {shown(files.root)}"
            hint = "Take another copy; if it was deleted on purpose, consolidate the metadata again."
            raise SourceError(f"{what}, but its own metadata is missing", hint=hint)


def _consolidated(files: Files) -> list[str]:
    """The arrays in the group's consolidated metadata; none where there is no such metadata."""
    old, metadata = layout.CONSOLIDATED_2 in files.stats, None
    if old:
        metadata = read_json(os.path.join(files.root, layout.CONSOLIDATED_2))
    elif layout.NODE_3 in files.stats:
        metadata = _node(files, "").get("consolidated_metadata")
    if metadata is None:
        return []
    nodes = metadata.get("metadata") if isinstance(metadata, dict) else None
    if not isinstance(nodes, dict):
        raise damaged(f"{shown(files.root)}: the consolidated metadata is malformed")
    if old:
        return [posixpath.dirname(name) for name in nodes if posixpath.basename(name) == layout.ARRAY_2]
    return [n for n, node in nodes.items() if isinstance(node, dict) and node.get("node_type") == "array"]
