"""The names of files in zarr groups and arrays, and which directories are groups or arrays."""

import os
from pathlib import Path

from ckpt_surgery.storage.listing import has_entry, is_directory, real_path

FILE_NAMES = {2: ".zarray", 3: "zarr.json"}
"""Name of the file with an array's metadata, by zarr version."""
SUFFIX = ".zarr"
GROUP_2, ARRAY_2, ATTRIBUTES_2, CONSOLIDATED_2 = ".zgroup", FILE_NAMES[2], ".zattrs", ".zmetadata"
NODE_3 = FILE_NAMES[3]
RESERVED = (GROUP_2, ARRAY_2, ATTRIBUTES_2, CONSOLIDATED_2, NODE_3)
"""Names of files with metadata, in either version."""


def detect(path: Path) -> bool:
    """Whether a directory is a zarr group or array: by its metadata, or by its name where that is gone."""
    root = os.fspath(path)
    if not is_directory(root):
        return False
    known = any(has_entry(os.path.join(root, name)) for name in RESERVED if name != ATTRIBUTES_2)
    return known or os.path.basename(real_path(root)).endswith(SUFFIX)
