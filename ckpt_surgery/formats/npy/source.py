"""Reading `.npy` files: a directory of them, whose paths are the keys, or a single one."""

import os
from collections.abc import Mapping

from ckpt_surgery.core.errors import SourceError
from ckpt_surgery.core.keys import natural_order
from ckpt_surgery.core.text import shown
from ckpt_surgery.formats.registry import Listing, Selection
from ckpt_surgery.formats.shared.npy import NPY_SUFFIX, NpyArray, leaf_of, read_npy
from ckpt_surgery.storage.failures import with_path
from ckpt_surgery.storage.listing import FileStat, is_directory, real_path, walk
from ckpt_surgery.storage.reading import opened


def read(path: str, selection: Selection) -> Listing:
    """Open a directory of `.npy` files, or one of them, whose name is then the key.

    Other files in a directory are ignored; links that leave it are refused.
    """
    if is_directory(path):
        files = _files_of(path)
        arrays = {name: _read_header(os.path.join(path, name), stat)[1] for name, stat in files.items()}
        return _listing(path, files, arrays)
    directory, name = os.path.split(path)
    stat, array = _read_header(path, None)
    return _listing(directory, {name: stat}, {name: array})


def _files_of(directory: str) -> dict[str, FileStat]:
    """The `.npy` files below a directory in the order of their names, numbers in them by value."""
    stats = walk(directory, real_path(directory))
    names = sorted((name for name in stats if name.endswith(NPY_SUFFIX)), key=natural_order)
    if not names:
        raise SourceError(f"{shown(directory)} holds no .npy file", hint="Check the path.")
    for name in names:
        if any("\udc80" <= character <= "\udcff" for character in name):
            raise SourceError(
                f"{shown(os.path.join(directory, name))} has a name that is not valid UTF-8",
                hint="Rename it.",
            )
    return {name: stats[name] for name in names}


def _read_header(path: str, expected: FileStat | None) -> tuple[FileStat, NpyArray]:
    with opened(path, expected) as file, with_path(path):
        return file.stat, read_npy(file.read, file.stat.size)


def _listing(directory: str, files: Mapping[str, FileStat], arrays: Mapping[str, NpyArray]) -> Listing:
    """`files`, `arrays`: size and time, and header, of each file by its name in `directory`."""
    paths = {name: os.path.join(directory, name) for name in files}
    leaves = {_key(name): leaf_of(_key(name), array, paths[name], 0) for name, array in arrays.items()}
    return Listing(leaves, {paths[name]: stat for name, stat in files.items()})


def _key(name: str) -> str:
    return name.removesuffix(NPY_SUFFIX)
