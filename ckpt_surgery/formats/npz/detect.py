"""Which paths are NumPy's `.npz` files, and which file of a directory is meant."""

import os

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.npy_layout import NPY_SUFFIX
from ckpt_surgery.formats.shared.single_file import not_one
from ckpt_surgery.formats.shared.zip.layout import first_name
from ckpt_surgery.storage.listing import is_directory, is_file, names_in

SUFFIX = ".npz"


def detect(path: PathLike) -> bool:
    """Whether a path is an `.npz` file, or a directory with one and nothing else; damaged ones too."""
    place = os.fspath(path)
    if is_directory(place):
        try:
            names = names_in(place)
        except SourceError:
            return False
        return len(names) == 1 and names[0].endswith(SUFFIX)
    first = first_name(place)
    if first is None:
        return place.endswith(SUFFIX) and is_file(place)
    return first.endswith(NPY_SUFFIX)


def chosen(directory: str) -> str:
    """The name of the only `.npz` file in a directory. Raises SourceError where there is none or several."""
    names = [name for name in names_in(directory) if name.endswith(SUFFIX)]
    if len(names) != 1:
        raise not_one(directory, ".npz files", names)
    return names[0]
