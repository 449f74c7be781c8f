"""Which paths are NumPy's `.npy` files, or directories of them."""

import os

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.npy_layout import MAGIC, NPY_SUFFIX
from ckpt_surgery.storage.listing import is_directory, is_file, names_below
from ckpt_surgery.storage.reading import opened

BESIDE = (NPY_SUFFIX, ".json", ".md", ".txt")
"""Suffixes of the files that a directory of arrays may hold."""
MOST_LISTED = 10_000
"""Number of files after which a directory is judged by the names seen so far."""


def detect(path: PathLike) -> bool:
    """Whether a path is a `.npy` file, or a directory with nothing but those and notes; damaged ones too."""
    place = os.fspath(path)
    if not is_directory(place):
        return _is_array(place)
    found = False
    try:
        for count, name in enumerate(names_below(place)):
            if not name.endswith(BESIDE) or count == MOST_LISTED:
                return found and name.endswith(BESIDE)
            found |= name.endswith(NPY_SUFFIX)
    except SourceError:
        return False
    return found


def _is_array(path: str) -> bool:
    if path.endswith(NPY_SUFFIX):
        return is_file(path)
    try:
        with opened(path) as file:
            return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC
    except SourceError:
        return False
