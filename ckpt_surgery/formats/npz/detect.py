"""Which paths are NumPy's `.npz` files, and which file of a directory is meant."""

import os
from pathlib import Path

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.zip_layout import first_name
from ckpt_surgery.storage.listing import entries, not_one

SUFFIX = ".npz"
MEMBER_SUFFIX = ".npy"


def detect(path: Path) -> bool:
    """Whether a path is an `.npz` file, or a directory with one and nothing else; damaged ones too."""
    if os.path.isdir(path):
        try:
            names = [entry.name for entry in entries(os.fspath(path))]
        except SourceError:
            return False
        return len(names) == 1 and names[0].endswith(SUFFIX)
    first = first_name(os.fspath(path))
    if first is None:
        return path.name.endswith(SUFFIX) and os.path.isfile(path)
    return first.endswith(MEMBER_SUFFIX)


def chosen(directory: str) -> str:
    """The name of the only `.npz` file in a directory. Raises SourceError where there is none or several."""
    names = sorted(entry.name for entry in entries(directory) if entry.name.endswith(SUFFIX))
    if len(names) != 1:
        raise not_one(directory, ".npz files", names)
    return names[0]
