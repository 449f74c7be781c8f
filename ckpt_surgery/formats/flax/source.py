"""Reading Flax checkpoints: documents of MessagePack, one or several, and streams of them."""

import os
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.flax import INDEX_SUFFIX, locate
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.config_files import read_sharded
from ckpt_surgery.formats.shared.msgpack import tree as msgpack_tree
from ckpt_surgery.formats.shared.msgpack.source import description_of, flattened, list_tree
from ckpt_surgery.storage.failures import damaged, with_path
from ckpt_surgery.storage.reading import OpenFile, opened

MULTIHOST = "//GDAPlaceholder:"
"""Beginning of strings that stand for arrays of several hosts; the path of one in `FILE_gda` follows."""


def read_stream(file: OpenFile) -> list[tuple[Key, msgpack_tree.Node]]:
    """The leaves of a file that is a stream, as EasyLM writes them: records of a key and a document.

    A record is a list of two: the components of the key, or its text, and a byte string that is the document.
    Raises SourceError where the file is damaged; a stream that was cut off between two records cannot be
    recognized.
    """
    nodes: list[tuple[Key, msgpack_tree.Node]] = []
    at = 0
    while at < file.stat.size:
        start = at
        record, at = msgpack_tree.read_value(file, start, file.stat.size)
        with with_path(file.path):
            names, inside = _record(record, start)
        stop = inside.offset + inside.length
        node, last = msgpack_tree.read_value(file, inside.offset, stop)
        with with_path(file.path):
            if last != stop:
                raise damaged(f"byte {last}: more follows in a record than its document")
            nodes += flattened(node, names, (False,) * len(names))
            if len(nodes) > msgpack_tree.MOST_VALUES:
                raise damaged(f"there are more than {msgpack_tree.MOST_VALUES} leaves")
    return nodes


def _record(record: msgpack_tree.Node, start: int) -> tuple[tuple[str, ...], msgpack_tree.BytesAt]:
    """Key and contents of the record of a stream that begins at `start`."""
    if isinstance(record, list) and len(record) == 2:
        key, inside = record
        parts = key if isinstance(key, list) else key.split("/") if isinstance(key, str) else [None]
        names = tuple(str(part) for part in parts if type(part) in (str, int))
        if isinstance(inside, msgpack_tree.BytesAt) and len(names) == len(parts) and names:
            return names, inside
    raise damaged(f"byte {start}: a record is not a key and a byte string")


def _multihost_directory(name: str, node: msgpack_tree.Node) -> str | None:
    """The directory beside a file of the zarr array that a placeholder stands for; None for other nodes."""
    if not isinstance(node, str) or not node.startswith(MULTIHOST):
        return None
    path = node.removeprefix(MULTIHOST)
    if not set(path.split("/")).isdisjoint(("", ".", "..")) or "\0" in path:
        what = f"its array should be in `{shown(path[:200])}`, which is not a path below the checkpoint"
        raise SourceError(what, hint="Only arrays beside the checkpoint are read.")
    return f"{os.path.basename(name)}_gda/{path}"


def read(path: str, selection: Selection) -> Listing:
    """Open a file, an index, or a directory that holds one of them, or several steps."""
    chosen = locate(path, selection)
    if chosen.name.endswith(INDEX_SUFFIX):
        return read_sharded(chosen.directory, chosen.name, _read_file)
    return replace(_read_file(chosen.directory, chosen.name), step=chosen.step)


def _read_file(directory: str, name: str) -> Listing:
    """The leaves of one file."""
    with opened(os.path.join(directory, name)) as file:
        if not file.stat.size:
            raise damaged(f"{shown(file.path)} is empty")
        if msgpack_tree.starts_stream(file):
            nodes = read_stream(file)
        else:
            tree = msgpack_tree.read_tree(file)
            if not isinstance(tree, dict | list):
                what = f"{shown(file.path)} holds {description_of(tree)} and no tree of named arrays"
                raise SourceError(what, hint="Save it as `{'name': value}`.")
            nodes = list(flattened(tree)) if tree else []
    listing = list_tree(nodes, file.path, directory, partial(_multihost_directory, name))
    return replace(listing, files={file.path: file.stat, **listing.files})
