"""Reading T5X checkpoints, and Orbax's from before it wrote `_METADATA`.

The tree is one MessagePack file. A leaf is an array in that file, or stands for a zarr array beside it: a
TensorStore spec in T5X, the string `PLACEHOLDER://<directory>` in Orbax.

Source of the format: google-research/t5x, `t5x/checkpoints.py`. Versions from 1 on are
`{version, optimizer: {target, state[, flax_mutables]}}`, and keys start below `optimizer`; version 0 is a
bare tree. The kvstore's path is relative to the file, also where its driver is `gfile` or `gcs`: the bucket
there is a placeholder. Before 0.1.14 the path was at the top of the spec. Old checkpoints have bfloat16 as
uint16, and do not record that: `uint16="bfloat16"` reads it so.
"""

import posixpath
from dataclasses import replace
from functools import partial

from ckpt_surgery.core.arrays import ArraySpec, Region
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.manifests import contiguous
from ckpt_surgery.core.protocols import SourceDetails
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.chunk_reading import read_stored
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.limits import MOST_AXES
from ckpt_surgery.formats.shared.msgpack.source import PLACEHOLDER, flattened, list_tree
from ckpt_surgery.formats.shared.msgpack.tree import T5X_ROOT, ArrayAt, Node, read_tree
from ckpt_surgery.formats.t5x import choices, locate_file
from ckpt_surgery.storage.failures import about_key, damaged, with_path
from ckpt_surgery.storage.reading import opened

NEWEST = 3
"""Newest version of T5X's files that is read."""
SPEC_NAMES = {"driver", "kvstore", "metadata"}
"""Names by which T5X itself recognizes a TensorStore spec."""
LOCAL = ("file", "gfile", "gcs")
"""Drivers of key-value stores whose paths are read as local ones."""


def _below_root(root: Node) -> dict[str | int, Node]:
    """The tree of leaves: what is below `optimizer`, or all of it in version 0."""
    if isinstance(root, dict) and set(root) == T5X_ROOT:
        version, tree = root["version"], root["optimizer"]
        if type(version) is not int or not 0 <= version <= NEWEST:
            what = f"its version is {shown(repr(version)[:100])}; the newest known version is {NEWEST}"
            raise SourceError(what, hint="Save it again with a T5X that writes one of them.")
    else:
        tree = root
    if not isinstance(tree, dict) or _is_spec(tree):
        raise damaged("it holds no tree of named leaves")
    return tree


def _is_spec(node: Node) -> bool:
    return isinstance(node, dict) and node.keys() >= SPEC_NAMES


def array_directory(node: Node) -> str | None:
    """The directory of the zarr array that a leaf stands for, relative to the file; None for other leaves."""
    if isinstance(node, str):
        return _relative(node.removeprefix(PLACEHOLDER)) if node.startswith(PLACEHOLDER) else None
    if not isinstance(node, dict) or not _is_spec(node):
        return None
    kvstore = node["kvstore"]
    if not isinstance(kvstore, dict):
        raise damaged("its TensorStore spec has no kvstore with a driver and a path")
    drivers = (("driver", node["driver"], ("zarr",)), ("kvstore", kvstore.get("driver"), LOCAL))
    for part, driver, known in drivers:
        if driver not in known:
            what = f"its TensorStore spec has the {part} {shown(repr(driver)[:100])}, which cannot be read"
            raise SourceError(what, hint=f"Known: {', '.join(known)}.")
    parts = [part for part in (kvstore.get("path", ""), node.get("path", "")) if part != ""]
    if not all(isinstance(part, str) for part in parts):
        raise damaged("its TensorStore spec has a path that is not text")
    return _relative("/".join(part.rstrip("/") or part for part in parts if isinstance(part, str)))


def _relative(path: str) -> str:
    """A path below the checkpoint's directory, normalized. Raises SourceError for any other path."""
    plain = posixpath.normpath(path)
    if not path or plain.startswith("/") or plain in (".", "..") or ".." in path.split("/") or "\0" in path:
        what = f"its array should be in `{shown(path[:200])}`, which is not a path below the checkpoint"
        raise SourceError(what, hint="Only arrays in the checkpoint's own directory are read.")
    return plain


def _check_agrees(node: Node, spec: ArraySpec, file: str) -> None:
    """Raise SourceError where an array's own metadata differ from what the tree records, if it does."""
    assert isinstance(node, dict)
    about_array, dtype = node["metadata"], node.get("dtype")
    shape = _sizes(file, about_array.get("shape") if isinstance(about_array, dict) else None)
    if shape not in (None, spec.shape):
        raise damaged(f"it is {spec}, but has the shape {shape} in the tree")
    if isinstance(dtype, str) and dtype != spec.dtype.name:
        raise damaged(f"it is {spec}, but {shown(dtype[:100])} in the tree")


def _sizes(file: str, node: Node) -> tuple[int, ...] | None:
    """A shape, as a list, as the map that Flax makes of a tuple, or as an array."""
    if node is None:
        return None
    if isinstance(node, ArrayAt):
        if len(node.pieces) != 1 or node.spec.ndim != 1 or node.spec.size > MOST_AXES:
            raise damaged(f"the shape in its TensorStore spec is {node.spec}")
        manifest = contiguous(node.spec, file, node.pieces[0].offset)
        return tuple(read_stored(manifest, Region.whole(node.spec.shape)).tolist())
    members = [node.get(str(i)) for i in range(len(node))] if isinstance(node, dict) else node
    if not isinstance(members, list) or not all(type(n) is int for n in members):
        raise damaged("the shape in its TensorStore spec is not made of integers")
    return tuple(n for n in members if isinstance(n, int))


def read(path: str, selection: Selection) -> Listing:
    """Open a file, the directory with a file `checkpoint`, or one that holds several steps."""
    location = locate_file(path, selection)
    with opened(location.path) as file:
        root, stat = read_tree(file), file.stat
    with with_path(location.path):
        tree = _below_root(root)
        nodes = list(flattened(tree, is_leaf=_is_spec)) if tree else []
    listing = list_tree(nodes, location.path, location.directory, array_directory)
    disguised = set()
    for key, node in nodes:
        spec = listing.leaves[key.text].spec
        if _is_spec(node) and spec is not None:
            with about_key(key):
                _check_agrees(node, spec, location.path)
            # T5X stored bfloat16 so, and reads it as such. Source: google-research/t5x,
            # `LazyAwaitableArray.from_tensor_store_spec` of `checkpoint_importer.py`.
            disguised |= {key.text} if spec.dtype.name == "uint16" else set()
    details = SourceDetails(partial(choices, path, location), disguised_bfloat16=frozenset(disguised))
    files = {location.path: stat, **listing.files}
    return replace(listing, files=files, step=location.step, item=location.item, details=details)
