"""The leaves of MessagePack trees as Flax writes them, and reading those that lie in the tree's own file.

Flax, T5X, and Orbax's structure files share this. A leaf may instead stand for a zarr array beside the file;
which ones do, and where the array lies, is for each format to say.
"""

from collections.abc import Callable, Iterable, Iterator
from math import gcd, prod

import numpy as np

from ckpt_surgery.core.arrays import ArraySpec, Region, Shape, grid_counts
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import Key
from ckpt_surgery.core.leaves import Leaf, LeafKind, Unreadable
from ckpt_surgery.core.manifests import Chunk, Manifest, contiguous, raw_codec
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Listing, Reader
from ckpt_surgery.formats.shared.boxes import Box, Boxes
from ckpt_surgery.formats.shared.msgpack.tree import ArrayAt, BytesAt, Node
from ckpt_surgery.formats.shared.zarr.decoding import decode_region
from ckpt_surgery.formats.shared.zarr.files import Files, array_manifest, file_array
from ckpt_surgery.storage.failures import about_key
from ckpt_surgery.storage.listing import FileStat
from ckpt_surgery.storage.regions import overlaps

MOST_CHUNKS = 4096
"""Largest number of chunks of a grid; finer grids are not useful."""
BYTES = np.dtype("S1")
"""Element type with which a byte string is listed as an array."""
PLACEHOLDER = "PLACEHOLDER://"
"""Beginning of strings that stand for arrays in Orbax before `_METADATA`."""


def flattened(
    node: Node,
    names: tuple[str, ...] = (),
    lists: tuple[bool, ...] = (),
    is_leaf: Callable[[Node], bool] = lambda node: False,
) -> Iterator[tuple[Key, Node]]:
    """The leaves of a tree in its order. Empty containers are leaves, and so is what `is_leaf` accepts.

    `names`, `lists`: the components of the key so far, and which of them are list indices.
    """
    if not isinstance(node, dict | list) or not node or is_leaf(node):
        yield Key(names, lists), node
        return
    members: Iterable[tuple[str | int, Node]] = node.items() if isinstance(node, dict) else enumerate(node)
    for name, member in members:
        yield from flattened(member, (*names, str(name)), (*lists, isinstance(node, list)), is_leaf)


def leaf_of(key: Key, node: Node, file: str, readers: dict[str, Reader]) -> Leaf:
    """The leaf of a node of a file; if it takes a reader, this goes into `readers`. Refuses placeholders."""
    if isinstance(node, ArrayAt):
        stored, kind = stored_array(node, file), LeafKind.SCALAR if node.scalar else LeafKind.ARRAY
        if isinstance(stored, Manifest):
            return Leaf(key, kind, node.spec, stored)
        readers[key.text] = stored
        return Leaf(key, kind, node.spec)
    if node is None:
        return Leaf(key, LeafKind.EMPTY, empty="None")
    if isinstance(node, dict | list):
        return Leaf(key, LeafKind.EMPTY, empty="Dict" if isinstance(node, dict) else "List")
    if isinstance(node, BytesAt):
        why = f"is {description_of(node)}, which no other format holds"
        spec, unreadable = ArraySpec((node.length,), BYTES), Unreadable(why, "Save it as an array.")
        return Leaf(key, LeafKind.ARRAY, spec, unreadable=unreadable)
    if not isinstance(node, str):  # a number: bool, int64 (uint64 where it must be), float64 or complex128
        number = np.asarray(node)
        spec, data = ArraySpec((), number.dtype), number.tobytes()
        manifest = Manifest(spec, (), raw_codec(0), {(): Chunk("", 0, len(data), data)})
        return Leaf(key, LeafKind.SCALAR, spec, manifest)
    if node.startswith(PLACEHOLDER):
        what = "it stands for an array that Orbax stored elsewhere"
        raise SourceError(what, hint="Open the directory that the file is in.")
    return Leaf(key, LeafKind.STRING, string=node)


def description_of(node: Node) -> str:
    """Description of a node, for messages."""
    if isinstance(node, ArrayAt):
        return f"an array without a name, {node.spec},"
    if isinstance(node, BytesAt):
        return f"a byte string of the length {node.length}"
    return f"a Python {type(node).__name__}"


def stored_array(array: ArrayAt, file: str) -> Manifest | Boxes:
    """The manifest of an array in a file, its pieces cut to a grid; or boxes, where that is very fine."""
    spec, pieces = array.spec, array.pieces
    if len(pieces) == 1 or not spec.size:
        return contiguous(spec, file, pieces[0].offset)
    grid = _grid(array)
    if grid is None:
        ranges, whole = [(piece.offset, piece.length) for piece in pieces], Region.whole(spec.shape)
        parts = overlaps(spec, ranges, whole)
        return Boxes(
            spec,
            [Box(Region.of_slices(p.place, spec.shape), contiguous(p.box, file, p.offset)) for p in parts],
        )
    step = prod(grid) * spec.dtype.itemsize
    starts = (start for piece in pieces for start in range(piece.offset, piece.offset + piece.length, step))
    indices = np.ndindex(*grid_counts(spec.shape, grid))
    chunks = {index: Chunk(file, start, step) for index, start in zip(indices, starts, strict=True)}
    return Manifest(spec, grid, raw_codec(spec.ndim), chunks)


def _grid(array: ArrayAt) -> Shape | None:
    """The largest chunk shape with which each chunk lies in one piece and divides the array."""
    shape, itemsize = array.spec.shape, array.spec.dtype.itemsize
    together = gcd(*(piece.length // itemsize for piece in array.pieces))
    for axis in range(len(shape)):
        row = prod(shape[axis + 1 :])
        if together % row == 0:
            grid = (*(1,) * axis, gcd(together // row, shape[axis]), *shape[axis + 1 :])
            return grid if prod(grid_counts(shape, grid)) <= MOST_CHUNKS else None
    return None


def list_tree(
    nodes: Iterable[tuple[Key, Node]], file: str, root: str, zarr_of: Callable[[Node], str | None]
) -> Listing:
    """The leaves of the tree in a file, and all but the file itself that reading them takes.

    `zarr_of`: the directory below `root` of the zarr array that a node stands for; None for other nodes.
    Raises SourceError where two keys are the same as text, and with the key for what cannot be a leaf.
    """
    leaves: dict[str, Leaf] = {}
    readers: dict[str, Reader] = {}
    files: dict[str, FileStat] = {}
    for key, node in nodes:
        text = key.text
        if text in leaves:
            raise SourceError(
                f"two leaves have the key `{shown(text[:200])}`: "
                f"{list(leaves[text].key.names)[:20]} and {list(key.names)[:20]}",
                hint="Rename one of them before it is saved.",
            )
        with about_key(key):
            directory = zarr_of(node)
            if directory is None:
                leaves[text] = leaf_of(key, node, file, readers)
                continue
            beside = Files.of(root, directory)
            array = file_array(beside, directory)
            manifest = array_manifest(beside, f"{directory}/", array)
            leaves[text] = Leaf(key, LeafKind.ARRAY, array.spec, manifest)
            files |= beside.by_path
    return Listing(leaves, files, readers=readers, decode=decode_region)
