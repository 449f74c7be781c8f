"""The names of files in zarr groups and arrays, and which directories are groups or arrays."""

import itertools
import os
import posixpath
import re
from collections.abc import Iterable

from ckpt_surgery.core.arrays import Region, Shape
from ckpt_surgery.storage.listing import has_entry, is_directory, real_path

FILE_NAMES = {2: ".zarray", 3: "zarr.json"}
"""Name of the file with an array's metadata, by zarr version."""
DRIVERS = {2: "zarr", 3: "zarr3"}
"""Names of TensorStore's drivers, by zarr version."""
SUFFIX = ".zarr"
GROUP_2, ARRAY_2, ATTRIBUTES_2, CONSOLIDATED_2 = ".zgroup", FILE_NAMES[2], ".zattrs", ".zmetadata"
NODE_3 = FILE_NAMES[3]
RESERVED = (GROUP_2, ARRAY_2, ATTRIBUTES_2, CONSOLIDATED_2, NODE_3)
"""Names of files with metadata, in either version."""
CHUNK_PART = re.compile(r"(c|[0-9]+)(\.[0-9]+)*")
"""One component of a chunk's name below its array: `0.3`, or `c`, `0` and `3` of `c/0/3`."""


def detect(path: str) -> bool:
    """Whether a directory is a zarr group or array: by its metadata, or by its name where that is gone."""
    if not is_directory(path):
        return False
    known = any(has_entry(os.path.join(path, name)) for name in RESERVED if name != ATTRIBUTES_2)
    return known or os.path.basename(real_path(path)).endswith(SUFFIX)


def zarr_names(names: Iterable[str]) -> set[str]:
    """Files that zarr writes, out of these relative paths: metadata, and chunks below arrays."""
    listed = list(names)
    nodes = {posixpath.dirname(name) for name in listed if posixpath.basename(name) in FILE_NAMES.values()}
    return {name for name in listed if posixpath.basename(name) in RESERVED or _is_chunk(name, nodes)}


def _is_chunk(name: str, nodes: set[str]) -> bool:
    """Whether one of the directories above is a node, below which all components are those of a chunk."""
    while name and CHUNK_PART.fullmatch(posixpath.basename(name)):
        name = posixpath.dirname(name)
        if name in nodes:
            return True
    return False


def chunk_name(index: Shape, zarr: int) -> str:
    """The name of a chunk of a written array: `0.1` in version 2, `c/0/1` in version 3."""
    return ".".join(map(str, index)) or "0" if zarr == 2 else "/".join(("c", *map(str, index)))


def chunk_names(region: Region, chunks: Shape, zarr: int) -> list[str]:
    """The names of the chunks that a region touches, in C order."""
    bounds = zip(region.starts, region.stops, chunks, strict=True)
    touched = (range(start // n, -(-stop // n)) for start, stop, n in bounds)
    return [chunk_name(index, zarr) for index in itertools.product(*touched)]
