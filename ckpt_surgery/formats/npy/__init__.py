"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

import os
from collections.abc import Mapping

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.text import is_unicode, shown
from ckpt_surgery.formats.registry import Format, Listing, Selection
from ckpt_surgery.formats.shared.npy import MAGIC, NPY_SUFFIX, leaf_of, read_npy
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat, is_directory, is_file, names_below, real_path, walk
from ckpt_surgery.storage.reading import opened

BESIDE = (NPY_SUFFIX, ".json", ".md", ".txt")
"""Suffixes of the files that a directory of arrays may hold."""
MOST_LISTED = 10_000
"""Number of files after which a directory is judged by the names seen so far."""


def detect(path: str) -> bool:
    """Whether a path is a `.npy` file, or a directory with nothing but those and notes; damaged ones too."""
    if not is_directory(path):
        if path.endswith(NPY_SUFFIX):
            return is_file(path)
        with opened(path) as file:
            return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC
    has_array = False
    for count, name in enumerate(names_below(path)):
        if not name.endswith(BESIDE) or count == MOST_LISTED:
            return has_array and name.endswith(BESIDE)
        has_array |= name.endswith(NPY_SUFFIX)
    return has_array


FORMAT = Format(
    name="npy",
    detect=detect,
    module=__name__,
    suffixes=(NPY_SUFFIX,),
    holds_empty=False,
    holds_lists=False,
)


def read(path: str, selection: Selection) -> Listing:
    """Open one `.npy` file, whose name is then the key, or all of a directory; others are ignored."""
    directory, name = (path, "") if is_directory(path) else os.path.split(path)
    listed: Mapping[str, FileStat | None] = {name: None} if name else _files_of(path)
    leaves, files = {}, {}
    for name, expected in listed.items():
        file_path, key = os.path.join(directory, name), name.removesuffix(NPY_SUFFIX)
        with opened(file_path, expected) as file, with_path(file_path):
            leaves[key] = leaf_of(key, read_npy(file.read, file.stat.size), file_path, 0)
            files[file_path] = file.stat
    return Listing(leaves, files)


def _files_of(directory: str) -> dict[str, FileStat]:
    """The `.npy` files below a directory in the order of their names, numbers in them by value."""
    stats = walk(directory, real_path(directory))
    names = sorted((name for name in stats if name.endswith(NPY_SUFFIX)), key=natural_order)
    if not names:
        raise SourceError(f"{shown(directory)} holds no .npy file", hint="Check the path.")
    for name in names:
        if not is_unicode(name):
            where = shown(os.path.join(directory, name))
            raise SourceError(f"{where} has a name that is not valid UTF-8", hint="Rename it.")
    return {name: stats[name] for name in names}
