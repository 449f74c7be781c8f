"""NumPy's `.npy`: a directory of such files, whose paths are the keys, or a single one. Only read."""

from ckpt_surgery.formats.registry import Format
from ckpt_surgery.formats.shared.npy import MAGIC, NPY_SUFFIX
from ckpt_surgery.storage.listing import is_directory, is_file, names_below
from ckpt_surgery.storage.reading import opened

BESIDE = (NPY_SUFFIX, ".json", ".md", ".txt")
"""Suffixes of the files that a directory of arrays may hold."""
MOST_LISTED = 10_000
"""Number of files after which a directory is judged by the names seen so far."""


def detect(path: str) -> bool:
    """Whether a path is a `.npy` file, or a directory with nothing but those and notes; damaged ones too."""
    if not is_directory(path):
        return _is_array(path)
    has_array = False
    for count, name in enumerate(names_below(path)):
        if not name.endswith(BESIDE) or count == MOST_LISTED:
            return has_array and name.endswith(BESIDE)
        has_array |= name.endswith(NPY_SUFFIX)
    return has_array


def _is_array(path: str) -> bool:
    if path.endswith(NPY_SUFFIX):
        return is_file(path)
    with opened(path) as file:
        return file.read(0, min(len(MAGIC), file.stat.size)) == MAGIC


FORMAT = Format(
    name="npy",
    detect=detect,
    module=__name__,
    suffixes=(NPY_SUFFIX,),
    holds_empty=False,
    holds_lists=False,
)
