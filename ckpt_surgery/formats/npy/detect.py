"""Which paths are NumPy's `.npy` files, or directories of them."""

import os
from collections.abc import Iterator
from pathlib import Path

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.storage.listing import entries
from ckpt_surgery.storage.reading import opened

MAGIC = b"\x93NUMPY"
"""How a file begins."""
SUFFIX = ".npy"
BESIDE = (SUFFIX, ".json", ".md", ".txt")
"""What may lie in a directory that is taken for one of arrays."""
MOST_LISTED = 10_000
"""Files that are looked at before a directory is taken for what the names so far say."""


def detect(path: Path) -> bool:
    """Whether a path is a `.npy` file, or a directory with nothing but those and notes; damaged ones too."""
    if not os.path.isdir(path):
        return _is_array(path)
    found = False
    try:
        for count, name in enumerate(_names_below(os.fspath(path))):
            if not name.endswith(BESIDE) or count == MOST_LISTED:
                return found and name.endswith(BESIDE)
            found |= name.endswith(SUFFIX)
    except SourceError:
        return False
    return found


def _is_array(path: Path) -> bool:
    if path.name.endswith(SUFFIX):
        return os.path.isfile(path)
    try:
        with opened(os.fspath(path)) as file:
            return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC
    except SourceError:
        return False


def _names_below(directory: str) -> Iterator[str]:
    """Of files, as far as one asks; files before directories. Linked directories are not entered."""
    pending = [directory]
    while pending:
        listed = entries(pending.pop())
        yield from (entry.name for entry in listed if not entry.is_dir(follow_symlinks=False))
        pending += (entry.path for entry in listed if entry.is_dir(follow_symlinks=False))
