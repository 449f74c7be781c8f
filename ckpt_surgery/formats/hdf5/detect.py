"""Which paths are HDF5 files or Keras's archives with one in them, and which file of a directory is meant."""

import os

from ckpt_surgery.core.arguments import PathLike
from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.formats.shared.single_file import not_one
from ckpt_surgery.formats.shared.zip.layout import first_name
from ckpt_surgery.storage.listing import is_directory, is_file, names_in
from ckpt_surgery.storage.reading import opened

SUFFIXES = (".h5", ".hdf5")
ARCHIVE_SUFFIX = ".keras"
"""Suffix of Keras 3's zip archives."""
WEIGHTS = "model.weights.h5"
"""The member of such an archive that holds the arrays."""
CONFIG = "config.json"
"""The member that holds the config of the model."""
ARCHIVE_MEMBERS = ("metadata.json", CONFIG, WEIGHTS)
"""Members that such an archive begins with one of."""
SIGNATURE = b"\x89HDF\r\n\x1a\n"
SIGNATURE_AT = (0, 512, 1024, 2048)
"""Offsets at which the signature is looked for: anything may come before it, in a block of such a size."""
_ZIP = b"PK\x03\x04"


def detect(path: PathLike) -> bool:
    """Whether a path is such a file, or a directory with one and nothing else; damaged ones too."""
    place = os.fspath(path)
    try:
        if is_directory(place):
            names = names_in(place)
            return len(names) == 1 and _named(names[0])
        return is_archive(place) or _looks_right(place)
    except SourceError:
        return False


def is_archive_name(name: str) -> bool:
    """Whether a file is, or is to be, one of Keras's archives, by its name alone."""
    return name.lower().endswith(ARCHIVE_SUFFIX)


def is_archive(path: str) -> bool:
    """Whether a file is one of Keras's archives, by its name and the member at its beginning."""
    if not is_archive_name(path):
        return False
    first = first_name(path)
    return is_file(path) if first is None else first in ARCHIVE_MEMBERS


def chosen(directory: str) -> str:
    """The name of the only such file in a directory. Raises SourceError where there is none or several."""
    names = [name for name in names_in(directory) if _named(name)]
    if len(names) != 1:
        raise not_one(directory, "HDF5 files", names)
    return names[0]


def _named(name: str) -> bool:
    return name.lower().endswith((*SUFFIXES, ARCHIVE_SUFFIX))


def _looks_right(path: str) -> bool:
    """Whether a file has the signature, or the suffix and does not begin as a zip archive."""
    with opened(path) as file:
        size = file.stat.size
        for at in SIGNATURE_AT:
            if at + len(SIGNATURE) <= size and file.read(at, len(SIGNATURE)) == SIGNATURE:
                return True
        head = file.read(0, min(len(_ZIP), size))
    return path.lower().endswith(SUFFIXES) and head != _ZIP
